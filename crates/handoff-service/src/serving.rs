//! Since when the control plane has served without a break. A lease that ran out while nobody could renew it says
//! nothing about its holder, so a holder is given up only after a stretch of service (H-70) in which it could have.
//!
//! The stretch begins anew when a write failed for a reason that is everybody's (the store is full, or does not
//! answer), when a round of the reaper could not look, and when the process stood still: its beat came late by
//! boot time, which goes on while a process is stopped and while the machine sleeps.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use handoff_core::ledger::LedgerError;
use handoff_protocol::Timestamp;
use rustix::time::{ClockId, clock_gettime};

/// How often the process looks whether it stood still.
pub(crate) const BEAT: Duration = Duration::from_secs(5);
/// How late a beat may come: a busy host is late, a stopped process is later.
const LATE_MS: u64 = 5_000;

/// The present stretch of service.
#[derive(Debug)]
pub(crate) struct Serving {
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    since: Timestamp,
    beat_at_ms: u64,
    broken: bool,
}

impl Serving {
    pub(crate) fn since(now: Timestamp) -> Self {
        Self { inner: Mutex::new(Inner { since: now, beat_at_ms: boot_ms(), broken: false }) }
    }

    /// Something failed that everybody needs.
    pub(crate) fn broke(&self) {
        self.lock().broken = true;
    }

    /// The same, if this error is of that kind. A refusal or one unreadable row is not: whoever meets it would
    /// otherwise keep all others from being assigned anew.
    pub(crate) fn failed(&self, error: &LedgerError) {
        match error {
            LedgerError::Full | LedgerError::Unavailable(_) => self.broke(),
            LedgerError::Refused(_)
            | LedgerError::RequestConflict
            | LedgerError::VersionMismatch { .. }
            | LedgerError::Broken { .. } => {}
        }
    }

    /// Looks at the clock, so that a standstill shows.
    pub(crate) fn beat(&self) {
        self.beat_at(boot_ms());
    }

    /// Whether it was broken since [`Serving::take_break`].
    pub(crate) fn is_broken(&self) -> bool {
        self.beat();
        self.lock().broken
    }

    /// Whether it was broken, forgetting that. Whoever asks reads the time after this and hands it to
    /// [`Serving::unbroken_since`]: in the other order a break in between would be dated before itself.
    pub(crate) fn take_break(&self) -> bool {
        self.beat();
        std::mem::take(&mut self.lock().broken)
    }

    /// Since when service is unbroken: since `now`, where it was broken.
    pub(crate) fn unbroken_since(&self, was_broken: bool, now: Timestamp) -> Timestamp {
        let mut inner = self.lock();
        if was_broken {
            tracing::info!("service was broken: nobody is given up before a new stretch of it");
            inner.since = now;
        }
        inner.since
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn beat_at(&self, boot_ms: u64) {
        let mut inner = self.lock();
        let every_ms = u64::try_from(BEAT.as_millis()).unwrap_or(u64::MAX);
        inner.broken |= boot_ms.saturating_sub(inner.beat_at_ms) > every_ms + LATE_MS;
        inner.beat_at_ms = inner.beat_at_ms.max(boot_ms);
    }
}

fn boot_ms() -> u64 {
    let time = clock_gettime(ClockId::Boottime);
    time.tv_sec.unsigned_abs() * 1000 + time.tv_nsec.unsigned_abs() / 1_000_000
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Timestamp = Timestamp::from_unix_ms(1_000);
    const LATER: Timestamp = Timestamp::from_unix_ms(9_000);

    fn since(serving: &Serving, now: Timestamp) -> Timestamp {
        // Without a look at the real clock, which would bring its own beat in between.
        let was_broken = std::mem::take(&mut serving.lock().broken);
        serving.unbroken_since(was_broken, now)
    }

    /// H-70
    #[test]
    fn a_process_that_stood_still_begins_a_new_stretch() {
        let serving = Serving::since(START);
        let begun = boot_ms();
        for late in [5_000, 10_000, 20_000] {
            serving.beat_at(begun + late);
        }
        assert_eq!(since(&serving, LATER), START, "a busy host is late");
        serving.beat_at(begun + 20_000 + 11_000);
        assert_eq!(since(&serving, LATER), LATER);
        assert_eq!(since(&serving, LATER.plus_ms(1)), LATER);
    }

    /// H-70
    #[test]
    fn only_what_fails_for_everybody_breaks_it() {
        let serving = Serving::since(START);
        for one in [
            LedgerError::RequestConflict,
            LedgerError::VersionMismatch { present: 1 },
            LedgerError::Broken { what: String::new() },
        ] {
            serving.failed(&one);
        }
        assert_eq!(since(&serving, LATER), START);
        for all in [LedgerError::Full, LedgerError::Unavailable("away".into())] {
            let serving = Serving::since(START);
            serving.failed(&all);
            assert_eq!(since(&serving, LATER), LATER);
        }
    }
}
