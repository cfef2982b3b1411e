//! The arithmetic of the lease as the sandbox's init keeps it: how long the payload may run, and the two
//! independent reasons to hold it still. Pure: the time is an argument, in milliseconds of CLOCK_BOOTTIME.
//!
//! A grant counts from the *first sending* of the claim or renewal that it came from, so that whatever was
//! lost on the way back can only shorten it. The holder stops at two thirds: the last third is the margin in
//! which clock rates and pauses may differ before the control plane lets somebody else claim.

use serde::{Deserialize, Serialize};

/// A lease as it is handed to the init before the claim leaves, and again with every confirmed renewal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Grant {
    /// When the claim or renewal was sent for the first time: CLOCK_BOOTTIME, milliseconds.
    pub first_sent_ms: u64,
    /// The boot that this clock belongs to (`/proc/sys/kernel/random/boot_id`).
    pub boot_id: String,
    /// The whole lease, in milliseconds, as the control plane counts it.
    pub lease_ms: u64,
}

impl Grant {
    /// When the payload is frozen: CLOCK_BOOTTIME, milliseconds.
    pub fn frozen_at_ms(&self) -> u64 {
        let two_thirds = u128::from(self.lease_ms) * 2 / 3;
        self.first_sent_ms.saturating_add(u64::try_from(two_thirds).unwrap_or(u64::MAX))
    }
}

/// Why a grant was not taken. What was granted before stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(tag = "why", rename_all = "snake_case")]
pub enum Declined {
    /// The clock it counts on ended with another boot.
    #[error("the lease counts on the clock of another boot")]
    OtherBoot,
    /// Nothing can have been sent yet at that time, so the grant counts on some other clock.
    #[error("the lease was first sent at {first_sent_ms} ms, and it is {now_ms} ms")]
    NotYetSent {
        /// What the grant said.
        first_sent_ms: u64,
        /// What the clock said.
        now_ms: u64,
    },
    /// It ends before the one that is held. A delayed message is no reason to stop sooner.
    #[error("the lease held until {held_ms} ms is longer")]
    Shorter {
        /// The deadline that stands.
        held_ms: u64,
    },
}

/// Why the payload is held still. Either suffices, and each is lifted on its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reasons {
    /// Two thirds of the lease are over.
    pub lease: bool,
    /// The node said `freeze`.
    pub command: bool,
}

impl Reasons {
    /// Whether there is one.
    pub fn any(self) -> bool {
        self.lease || self.command
    }
}

/// What the init knows about the right to run.
#[derive(Debug, Clone)]
pub struct Keeper {
    boot_id: String,
    grant: Option<Grant>,
    commanded: bool,
}

impl Keeper {
    /// A keeper without a lease on the clock of this boot. The payload may load, and may not go.
    pub fn new(boot_id: impl Into<String>) -> Self {
        Self { boot_id: boot_id.into(), grant: None, commanded: false }
    }

    /// Takes a grant, the first one or one that ends later.
    ///
    /// # Errors
    /// [`Declined`]; the lease that was held stands.
    pub fn accept(&mut self, grant: Grant, now_ms: u64) -> Result<(), Declined> {
        if grant.boot_id != self.boot_id {
            return Err(Declined::OtherBoot);
        }
        if grant.first_sent_ms > now_ms {
            return Err(Declined::NotYetSent { first_sent_ms: grant.first_sent_ms, now_ms });
        }
        if let Some(held_ms) = self.frozen_at_ms()
            && grant.frozen_at_ms() < held_ms
        {
            return Err(Declined::Shorter { held_ms });
        }
        self.grant = Some(grant);
        Ok(())
    }

    /// The node's own freeze, apart from the lease.
    pub fn set_commanded(&mut self, freeze: bool) {
        self.commanded = freeze;
    }

    /// The lease that is held, expired or not.
    pub fn grant(&self) -> Option<&Grant> {
        self.grant.as_ref()
    }

    /// When the payload is frozen, if there is a lease.
    pub fn frozen_at_ms(&self) -> Option<u64> {
        self.grant.as_ref().map(Grant::frozen_at_ms)
    }

    /// Whether `go` may be passed on: only under a lease that has not run out.
    pub fn may_go(&self, now_ms: u64) -> bool {
        self.frozen_at_ms().is_some_and(|deadline| now_ms < deadline)
    }

    /// Why the payload has to stand still now. Without any lease it may still load.
    pub fn reasons(&self, now_ms: u64) -> Reasons {
        let lease = self.frozen_at_ms().is_some_and(|deadline| now_ms >= deadline);
        Reasons { lease, command: self.commanded }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grant(first_sent_ms: u64, lease_ms: u64) -> Grant {
        Grant { first_sent_ms, boot_id: "b".into(), lease_ms }
    }

    /// H-63
    #[test]
    fn the_payload_stops_at_two_thirds_of_the_lease_counted_from_the_first_sending() {
        let mut keeper = Keeper::new("b");
        keeper.accept(grant(1_000, 30_000), 9_000).expect("sent before now");
        assert_eq!(keeper.frozen_at_ms(), Some(21_000));
        assert!(keeper.may_go(20_999) && !keeper.reasons(20_999).any());
        assert!(!keeper.may_go(21_000) && keeper.reasons(21_000).lease);
    }

    #[test]
    fn without_a_lease_it_may_load_and_not_go() {
        let keeper = Keeper::new("b");
        assert!(!keeper.may_go(0) && !keeper.reasons(u64::MAX).any());
    }

    #[test]
    fn a_late_renewal_thaws_and_a_late_message_never_shortens() {
        let mut keeper = Keeper::new("b");
        keeper.accept(grant(0, 30_000), 1).expect("first");
        assert!(keeper.reasons(25_000).lease);
        keeper.accept(grant(24_000, 30_000), 25_000).expect("later");
        assert!(!keeper.reasons(25_000).any() && keeper.may_go(25_000));
        let late = keeper.accept(grant(10_000, 30_000), 25_000);
        assert_eq!(late, Err(Declined::Shorter { held_ms: 44_000 }));
        assert_eq!(keeper.frozen_at_ms(), Some(44_000));
        keeper.accept(grant(24_000, 30_000), 26_000).expect("the same one again is no news and no error");
    }

    #[test]
    fn the_two_reasons_are_lifted_apart() {
        let mut keeper = Keeper::new("b");
        keeper.accept(grant(0, 3_000), 1).expect("first");
        keeper.set_commanded(true);
        assert_eq!(keeper.reasons(2_000), Reasons { lease: true, command: true });
        keeper.accept(grant(2_000, 3_000), 2_500).expect("renewed");
        assert_eq!(keeper.reasons(2_500), Reasons { lease: false, command: true });
        keeper.set_commanded(false);
        assert!(!keeper.reasons(2_500).any());
        keeper.set_commanded(true);
        keeper.set_commanded(false);
        assert!(keeper.reasons(4_000).lease, "a thaw does not lengthen a lease");
    }

    /// H-63
    #[test]
    fn another_boot_and_the_future_are_declined() {
        let mut keeper = Keeper::new("b");
        let other = Grant { boot_id: "c".into(), ..grant(0, 10) };
        assert_eq!(keeper.accept(other, 5), Err(Declined::OtherBoot));
        let future = keeper.accept(grant(6, 10), 5);
        assert_eq!(future, Err(Declined::NotYetSent { first_sent_ms: 6, now_ms: 5 }));
        assert!(keeper.grant().is_none());
    }

    #[test]
    fn a_lease_that_arrives_over_freezes_at_once_and_no_length_overflows() {
        let mut keeper = Keeper::new("b");
        keeper.accept(grant(0, 3_000), 2_000).expect("sent before now");
        assert!(keeper.reasons(2_000).lease && !keeper.may_go(2_000));
        assert_eq!(grant(u64::MAX, u64::MAX).frozen_at_ms(), u64::MAX);
    }
}
