//! The operator's settings that decisions depend on, and the rules themselves by name.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use handoff_protocol::{NanoUsd, Tier, TierName};

const SECOND_MS: u64 = 1000;
const HOUR_MS: u64 = 3600 * SECOND_MS;
const WEEK_MS: u64 = 7 * 24 * HOUR_MS;
const YEAR_MS: u64 = 365 * 24 * HOUR_MS;

/// What the last snapshot may cost at the most: a billion dollars. With [`MOST_PRICE`] over the longest grace and
/// the longest tick it stays below a fifth of the largest amount, so no wind-down saturates.
const MOST_SNAPSHOT: NanoUsd = NanoUsd::from_nano(1_000_000_000 * 1_000_000_000);
/// Pico-USD per millisecond: a dollar.
const MOST_PRICE: u64 = 1_000_000_000_000;
/// The kernel knows no larger limit of processes.
const MOST_PIDS: u64 = 1 << 22;

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

/// A number that a setting may not be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{setting} is {value}; it may be from {least} to {most}")]
pub struct OutOfRange {
    /// As the operator writes it.
    pub setting: String,
    /// What it is.
    pub value: u64,
    /// What it may be at the least.
    pub least: u64,
    /// What it may be at the most.
    pub most: u64,
}

impl OutOfRange {
    /// Whether a setting is what it may be.
    ///
    /// # Errors
    /// [`OutOfRange`] with all of it, when it is not.
    pub fn check(setting: &str, value: u64, may_be: RangeInclusive<u64>) -> Result<(), Self> {
        let (least, most) = may_be.into_inner();
        if (least..=most).contains(&value) {
            return Ok(());
        }
        Err(Self { setting: setting.to_owned(), value, least, most })
    }
}

/// Why nobody can decide by a policy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidPolicy {
    /// A number is too small or too large.
    #[error(transparent)]
    OutOfRange(#[from] OutOfRange),
    /// Leases would run out between two renewals.
    #[error("renew_ms is {renew_ms}; it may be from 100 to {most}, a third of lease_ms")]
    RenewedTooRarely {
        /// What it is.
        renew_ms: u64,
        /// What it may be at the most.
        most: u64,
    },
    /// The last snapshot's cost is no cost.
    #[error("final_snapshot_usd is {0}; it may be from 0.00 to {MOST_SNAPSHOT}")]
    SnapshotCost(NanoUsd),
    /// No size is on offer.
    #[error("tiers is empty; there must be one at least")]
    NoTier,
    /// A tier cannot be asked for.
    #[error("the name of a tier is '{0}'; it may be any text that is not blank")]
    Unnamed(TierName),
    /// Two tiers cannot be told apart.
    #[error("the name of a tier is '{0}' twice; it may stand once")]
    NamedTwice(TierName),
}

impl Policy {
    /// Whether these are settings that can be decided by: no lease that runs out between two renewals, no time
    /// that turns a deadline into what no calendar has, no amount that saturates.
    ///
    /// # Errors
    /// [`InvalidPolicy`] with the first setting that is not what it may be.
    pub fn check(&self) -> Result<(), InvalidPolicy> {
        for (setting, value, may_be) in [
            ("time_to_live_ms", self.time_to_live_ms, SECOND_MS..=YEAR_MS),
            ("grace_ms", self.grace_ms, 0..=WEEK_MS),
            ("authorization_ms", self.authorization_ms, SECOND_MS..=HOUR_MS),
            ("lease_ms", self.lease_ms, SECOND_MS..=HOUR_MS),
            ("tick_ms", self.tick_ms, 100..=HOUR_MS),
            ("wait_ms", self.wait_ms, 0..=YEAR_MS),
            ("reassign_after_ms", self.reassign_after_ms, SECOND_MS..=YEAR_MS),
            ("slices", u64::try_from(self.slices).unwrap_or(0), 1..=1_000_000),
        ] {
            OutOfRange::check(setting, value, may_be)?;
        }
        let (renew_ms, most) = (self.renew_ms, self.lease_ms / 3);
        if !(100..=most).contains(&renew_ms) {
            return Err(InvalidPolicy::RenewedTooRarely { renew_ms, most });
        }
        if !(NanoUsd::ZERO..=MOST_SNAPSHOT).contains(&self.final_snapshot_cost) {
            return Err(InvalidPolicy::SnapshotCost(self.final_snapshot_cost));
        }
        self.check_tiers()
    }

    fn check_tiers(&self) -> Result<(), InvalidPolicy> {
        if self.tiers.is_empty() {
            return Err(InvalidPolicy::NoTier);
        }
        let mut names = BTreeSet::new();
        for tier in &self.tiers {
            if tier.name.as_str().trim().is_empty() {
                return Err(InvalidPolicy::Unnamed(tier.name.clone()));
            }
            if !names.insert(&tier.name) {
                return Err(InvalidPolicy::NamedTwice(tier.name.clone()));
            }
            for (setting, value, may_be) in [
                ("cpu_millis", tier.cpu_millis.into(), 1..=1_000_000),
                ("memory_bytes", tier.memory_bytes, 1..=1 << 50),
                ("pids", tier.pids.into(), 1..=MOST_PIDS),
                ("egress_bits_per_second", tier.egress_bits_per_second, 1..=i64::MAX.unsigned_abs()),
                ("run_price", tier.run_price.pico(), 0..=MOST_PRICE),
                ("frozen_price", tier.frozen_price.pico(), 0..=MOST_PRICE),
            ] {
                OutOfRange::check(&format!("{setting} of tier '{}'", tier.name), value, may_be)?;
            }
        }
        Ok(())
    }

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
    use handoff_protocol::Timestamp;
    use handoff_protocol::money::PicoUsd;

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

    #[test]
    fn only_settings_that_can_be_decided_by_are_taken() {
        type Change = fn(&mut Policy);
        let cases: [(Change, &str); 26] = [
            (|policy| policy.lease_ms = 0, "lease_ms is 0; it may be from 1000 to 3600000"),
            (|policy| policy.lease_ms = 999, "lease_ms is 999;"),
            (|policy| policy.lease_ms = 3_600_001, "lease_ms is 3600001;"),
            (|policy| policy.renew_ms = 60_000, "renew_ms is 60000; it may be from 100 to 10000, a third"),
            (|policy| policy.renew_ms = 10_001, "renew_ms is 10001;"),
            (|policy| policy.renew_ms = 0, "renew_ms is 0;"),
            (|policy| policy.lease_ms = 29_999, "renew_ms is 10000; it may be from 100 to 9999,"),
            (|policy| policy.tick_ms = 0, "tick_ms is 0; it may be from 100 to 3600000"),
            (|policy| policy.tick_ms = u64::MAX, "tick_ms is 18446744073709551615;"),
            (
                |policy| policy.grace_ms = u64::MAX,
                "grace_ms is 18446744073709551615; it may be from 0 to 604800000",
            ),
            (|policy| policy.grace_ms = i64::MAX.unsigned_abs(), "grace_ms is 9223372036854775807;"),
            (|policy| policy.time_to_live_ms = 0, "time_to_live_ms is 0;"),
            (|policy| policy.authorization_ms = u64::MAX, "authorization_ms is "),
            (|policy| policy.reassign_after_ms = u64::MAX, "reassign_after_ms is "),
            (|policy| policy.wait_ms = u64::MAX, "wait_ms is "),
            (|policy| policy.slices = -1, "slices is 0;"),
            (
                |policy| policy.final_snapshot_cost = NanoUsd::MAX,
                "final_snapshot_usd is 9223372036.854775807; it may",
            ),
            (|policy| policy.tiers.clear(), "tiers is empty"),
            (|policy| policy.tiers[1].name = " ".into(), "the name of a tier is ' '"),
            (|policy| policy.tiers[1].name = "sandbox-small".into(), "'sandbox-small' twice"),
            (|policy| policy.tiers[0].cpu_millis = 0, "cpu_millis of tier 'sandbox-small' is 0;"),
            (|policy| policy.tiers[2].memory_bytes = 0, "memory_bytes of tier 'sandbox-large' is 0;"),
            (
                |policy| policy.tiers[0].pids = 0,
                "pids of tier 'sandbox-small' is 0; it may be from 1 to 4194304",
            ),
            (|policy| policy.tiers[0].egress_bits_per_second = 0, "egress_bits_per_second of tier "),
            (|policy| policy.tiers[0].run_price = PicoUsd::from_pico(u64::MAX), "run_price of tier "),
            (|policy| policy.tiers[0].frozen_price = PicoUsd::from_pico(u64::MAX), "frozen_price of tier "),
        ];
        assert_eq!(Policy::default().check(), Ok(()));
        for (change, said) in cases {
            let mut policy = Policy::default();
            change(&mut policy);
            let error = policy.check().expect_err(said).to_string();
            assert!(error.starts_with(said) || said.starts_with('\'') && error.contains(said), "{error}");
        }
    }

    #[test]
    fn what_is_dearest_is_still_an_exact_amount_and_an_instant() {
        let mut policy = Policy::default();
        (policy.grace_ms, policy.tick_ms, policy.time_to_live_ms) = (WEEK_MS, HOUR_MS, YEAR_MS);
        policy.final_snapshot_cost = MOST_SNAPSHOT;
        let mut tier = policy.tiers[0].clone();
        (tier.run_price, tier.frozen_price) =
            (PicoUsd::from_pico(MOST_PRICE), PicoUsd::from_pico(MOST_PRICE));
        policy.tiers = vec![tier.clone()];
        assert_eq!(policy.check(), Ok(()));
        let dollars = |dollars: i64| NanoUsd::from_nano(dollars * 1_000_000_000);
        assert_eq!(policy.wind_down(&tier), dollars(604_800_000 + 1_000_000_000));
        let least = dollars(604_800_000 + 1_000_000_000 + 3_600_000);
        assert_eq!(crate::budget::least(&policy, &tier), least);
        assert!(least < NanoUsd::from_nano(i64::MAX / 5));
        let deadline = Timestamp::from_unix_ms(1_800_000_000_000).plus_ms(policy.time_to_live_ms);
        assert_eq!(deadline.to_string().parse(), Ok(deadline));
    }
}
