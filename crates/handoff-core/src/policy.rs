//! The operator's settings that decisions depend on, and the rules themselves by name.

use handoff_protocol::{NanoUsd, Tier, TierName};

/// Settings. Durations in milliseconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// From staging until the reaper expires a transfer that was not activated.
    pub time_to_live_ms: u64,
    /// From insolvency until the reaper terminates.
    pub grace_ms: u64,
    /// From activate until a claim is too late.
    pub authorization_ms: u64,
    /// How long an incarnation may run without renewing.
    pub lease_ms: u64,
    /// How often it renews.
    pub renew_ms: u64,
    /// The unit of compute that is reserved and charged.
    pub tick_ms: u64,
    /// How long a meter waits for an older epoch to close before the transfer is insolvent.
    pub wait_ms: u64,
    /// How long a lease must have been over, in unbroken service, before a transfer is assigned anew.
    pub reassign_after_ms: u64,
    /// What the last snapshot may cost.
    pub final_snapshot_cost: NanoUsd,
    /// A budget lease is granted in slices of the budget: the whole divided by this.
    pub slices: i64,
    /// The sizes on offer.
    pub tiers: Vec<Tier>,
    /// The rules in force: all of them.
    pub rules: Rules,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            time_to_live_ms: 30 * 60_000,
            grace_ms: 60_000,
            authorization_ms: 45_000,
            lease_ms: 30_000,
            renew_ms: 10_000,
            tick_ms: 10_000,
            wait_ms: 5 * 60_000,
            reassign_after_ms: 60_000,
            final_snapshot_cost: NanoUsd::ZERO,
            slices: 2,
            tiers: Tier::defaults(),
            rules: Rules::all(),
        }
    }
}

impl Policy {
    /// The tier with this name.
    pub fn tier(&self, name: &TierName) -> Option<&Tier> {
        self.tiers.iter().find(|tier| tier.name == *name)
    }

    /// What is kept for grace and the last snapshot.
    pub fn wind_down(&self, tier: &Tier) -> NanoUsd {
        tier.frozen_cost(self.grace_ms).plus(self.final_snapshot_cost)
    }
}

/// A rule whose absence loses a session, runs two copies, or passes the budget. The model checker takes each
/// one out and must find that out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// State changes name the session's epoch.
    EpochCheck,
    /// A claim waits until the former holder is out.
    ClaimWaitsForLease,
    /// A re-claim waits until the old lease is over.
    ReclaimWaitsForLease,
    /// While a final is pending, its former holder neither re-claims nor stores checkpoints.
    FinalSeals,
    /// A resume needs the source's own final while the source holds the session.
    ResumeNeedsFinal,
    /// Only the holder's snapshot can be final.
    FinalOnlyFromHolder,
    /// A source returns only while it still holds the session.
    ReturnOnlyByHolder,
    /// An old epoch's lease stays charged until its closing report.
    OldLeaseStaysCharged,
    /// Reports of each epoch count on their own.
    ReportsPerEpoch,
    /// Only a tick that does not fit makes a transfer insolvent.
    InsolventOnlyByTick,
}

/// Which rules are in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    removed: u32,
}

impl Rules {
    /// All of them: the only value outside the model checker.
    pub const fn all() -> Self {
        Self { removed: 0 }
    }

    /// All but one, for the model checker.
    #[cfg(feature = "mutants")]
    #[must_use]
    pub const fn without(rule: Rule) -> Self {
        Self { removed: 1 << rule as u32 }
    }

    /// Whether a rule is in force.
    pub const fn keep(self, rule: Rule) -> bool {
        self.removed & (1 << rule as u32) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mutant_lacks_one_rule_and_no_other() {
        let rules = [Rule::EpochCheck, Rule::FinalSeals, Rule::InsolventOnlyByTick];
        assert!(rules.iter().all(|rule| Rules::all().keep(*rule)));
        let mutant = Rules::without(Rule::FinalSeals);
        assert_eq!(rules.map(|rule| mutant.keep(rule)), [true, false, true]);
    }

    #[test]
    fn the_wind_down_pays_grace_at_the_frozen_price_and_the_last_snapshot() {
        let mut policy = Policy::default();
        let tier = policy.tiers[0].clone();
        assert_eq!(policy.wind_down(&tier), NanoUsd::from_nano(168_000));
        policy.final_snapshot_cost = NanoUsd::from_nano(2_000);
        assert_eq!(policy.wind_down(&tier), NanoUsd::from_nano(170_000));
    }
}
