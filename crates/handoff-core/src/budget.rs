//! Where a transfer's money is, and what an epoch may be granted.
//!
//! The control plane keeps `recorded + Σ charge(epoch) + reserve ≤ allocated` and never sees single holds. An
//! unclosed epoch is charged at its limit: its node may be spending it right now, unheard. Money leaves only
//! through [`grant`]; an epoch's limit is never lowered.

use handoff_protocol::NanoUsd;

use crate::policy::{Policy, Rule};
use crate::state::Epoch;
use crate::transfer::{Closing, EpochAccount, Transfer};

impl EpochAccount {
    /// What the epoch counts for: its limit until the closing report, then what it spent.
    pub fn charge(&self) -> NanoUsd {
        match self.closed {
            Some(Closing::Reported) => self.totals.spendable(),
            Some(Closing::WrittenOff) | None => self.limit.max(self.totals.spendable()),
        }
    }

    /// What it was granted and has not reported as spent.
    pub fn leased(&self) -> NanoUsd {
        match self.closed {
            Some(Closing::Reported) => NanoUsd::ZERO,
            Some(Closing::WrittenOff) | None => self.limit.minus(self.totals.spendable()),
        }
    }
}

impl Transfer {
    /// Whether every epoch is closed.
    pub fn all_epochs_closed(&self) -> bool {
        self.epochs.values().all(|account| account.closed.is_some())
    }

    /// Everything that was spent, by the last reports.
    pub fn spent(&self) -> NanoUsd {
        let recorded = self.budget.map_or(NanoUsd::ZERO, |budget| budget.recorded);
        recorded.plus(self.epochs.values().map(|account| account.totals.spent()).sum())
    }

    /// Granted to unclosed epochs and not reported as spent.
    pub fn leased(&self) -> NanoUsd {
        self.epochs.values().map(EpochAccount::leased).sum()
    }

    /// Kept for the wind-down; once everything is closed, what the wind-down did cost.
    pub fn reserve(&self) -> NanoUsd {
        let used: NanoUsd = self.epochs.values().map(|account| account.totals.wind_down_usd).sum();
        let released = self.status.is_terminal() && self.all_epochs_closed();
        match self.budget {
            Some(budget) if !released => budget.reserve.max(used),
            Some(_) | None => used,
        }
    }

    /// What may still be granted.
    pub fn free(&self, policy: &Policy) -> NanoUsd {
        let Some(budget) = self.budget else { return NanoUsd::ZERO };
        budget.allocated.minus(self.charged(policy))
    }

    /// Recorded, charged and reserved: never more than allocated, unless somebody recorded more than there was.
    pub fn charged(&self, policy: &Policy) -> NanoUsd {
        let recorded = self.budget.map_or(NanoUsd::ZERO, |budget| budget.recorded);
        let newest = self.epochs.keys().next_back().copied();
        let charge = |(epoch, account): (&Epoch, &EpochAccount)| {
            let keep = policy.rules.keep(Rule::OldLeaseStaysCharged) || Some(*epoch) == newest;
            if keep { account.charge() } else { account.totals.spendable() }
        };
        recorded.plus(self.epochs.iter().map(charge).sum()).plus(self.reserve())
    }
}

/// The limit that an epoch may have now: enough for another slice beyond what it spent, as far as there is
/// money, and never less than before.
pub fn grant(policy: &Policy, transfer: &Transfer, limit: NanoUsd, spent: NanoUsd) -> NanoUsd {
    let Some(budget) = transfer.budget else { return limit };
    let spendable = budget.allocated.minus(budget.reserve);
    let slice = NanoUsd::from_nano(spendable.nano() / policy.slices.max(1)).max(tick_cost(policy, transfer));
    let wanted = spent.plus(slice);
    wanted.min(limit.plus(transfer.free(policy))).max(limit)
}

/// What one tick of the transfer's tier costs.
pub fn tick_cost(policy: &Policy, transfer: &Transfer) -> NanoUsd {
    transfer.tier.as_ref().map_or(NanoUsd::ZERO, |tier| tier.run_cost(policy.tick_ms))
}

/// The least budget that a tier can be run with: the wind-down and one tick.
pub fn least(policy: &Policy, tier: &handoff_protocol::Tier) -> NanoUsd {
    policy.wind_down(tier).plus(tier.run_cost(policy.tick_ms))
}
