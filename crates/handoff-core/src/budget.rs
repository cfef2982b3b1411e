//! Where a transfer's money is, and what an epoch may be granted.
//!
//! The control plane keeps `recorded + Σ charge(epoch) + reserve ≤ allocated` and never sees single holds. An
//! unclosed epoch is charged at its limit: its node may be spending it right now, unheard. Money leaves only
//! through [`grant`]; an epoch's limit is never lowered.

use handoff_protocol::NanoUsd;

use crate::policy::{Policy, Rule};
use crate::state::{Epoch, Generation};
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

    /// What of the wind-down the meter of this assignment may charge over all its own epochs. What epochs of other
    /// assignments have used is gone. While one of them may still report, or was written off unheard, all of it
    /// may be.
    pub fn wind_down_at(&self, generation: Generation) -> NanoUsd {
        let reserve = self.budget.map_or(NanoUsd::ZERO, |budget| budget.reserve);
        let elsewhere = self.epochs.values().filter(|account| account.generation != generation);
        let used = elsewhere.map(|account| match account.closed {
            Some(Closing::Reported) => account.totals.wind_down_usd,
            Some(Closing::WrittenOff) | None => reserve,
        });
        reserve.minus(used.sum())
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
    // What was spent beyond the limit is charged as well, so more of it cannot be had from what is free.
    wanted.min(limit.max(spent).plus(transfer.free(policy))).max(limit)
}

/// What one tick of the transfer's tier costs.
pub fn tick_cost(policy: &Policy, transfer: &Transfer) -> NanoUsd {
    transfer.tier.as_ref().map_or(NanoUsd::ZERO, |tier| tier.run_cost(policy.tick_ms))
}

/// The least budget that a tier can be run with: the wind-down and one tick.
pub fn least(policy: &Policy, tier: &handoff_protocol::Tier) -> NanoUsd {
    policy.wind_down(tier).plus(tier.run_cost(policy.tick_ms))
}

#[cfg(test)]
mod tests {
    use handoff_protocol::Totals;

    use super::*;
    use crate::grid::CommandKind;
    use crate::machine::world::{BUDGET, ONE, RESERVE, TICK, World, nano};

    fn account(limit: i64, spent: i64, closed: Option<Closing>) -> EpochAccount {
        let totals = Totals { model_usd: nano(spent), ..Totals::default() };
        let world = World::active();
        EpochAccount { limit: nano(limit), totals, closed, ..world.of(ONE).epochs[&Epoch(2)] }
    }

    #[test]
    fn an_epoch_is_charged_at_its_limit_until_its_closing_report() {
        for (closed, charge, leased) in
            [(None, 10, 6), (Some(Closing::WrittenOff), 10, 6), (Some(Closing::Reported), 4, 0)]
        {
            let account = account(10, 4, closed);
            assert_eq!((account.charge(), account.leased()), (nano(charge), nano(leased)), "{closed:?}");
        }
        let over = account(10, 12, None);
        assert_eq!((over.charge(), over.leased()), (nano(12), nano(0)));
    }

    /// H-81
    #[test]
    fn the_reserve_is_released_with_the_last_closing() {
        let mut world = World::active();
        world.give(world.report(|usage| usage.totals.wind_down_usd = nano(5)));
        assert_eq!(world.of(ONE).reserve(), RESERVE);
        world.give(world.command(CommandKind::Terminate, ONE));
        assert_eq!(world.of(ONE).reserve(), RESERVE, "its epoch is open");
        world.give(world.report(|usage| usage.closing = true));
        assert_eq!((world.of(ONE).reserve(), world.of(ONE).spent()), (nano(5), nano(5)));
        assert_eq!(world.of(ONE).free(&world.policy), BUDGET.minus(nano(5)));
    }

    #[test]
    fn a_grant_is_a_slice_beyond_what_is_spent_as_far_as_there_is_money() {
        let world = World::authorized();
        let slice = nano((BUDGET.nano() - RESERVE.nano()) / 2);
        let grant = |limit, spent| grant(&world.policy, world.of(ONE), limit, spent);
        assert_eq!(grant(nano(0), nano(0)), slice);
        assert_eq!(grant(nano(0), nano(7)), slice.plus(nano(7)));
        assert_eq!(grant(BUDGET, nano(0)), BUDGET, "it is never lowered");
        let mut small = World::authorized();
        small.policy.slices = 1_000_000;
        assert_eq!(super::grant(&small.policy, small.of(ONE), nano(0), nano(0)), TICK, "one tick at least");
    }
}
