//! The store's time: never steps back, not even over a restart, and never stands still.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use handoff_protocol::Timestamp;
use rustix::time::{ClockId, clock_gettime};

/// Where a store takes its time from. It must not step back while it is used.
pub trait StoreClock: Send + Sync {
    /// The present time.
    fn now(&self) -> Timestamp;
}

impl<F: Fn() -> Timestamp + Send + Sync> StoreClock for F {
    fn now(&self) -> Timestamp {
        self()
    }
}

/// The host's clock as it was when the store was opened, carried on by CLOCK_BOOTTIME alone.
///
/// Leases are counted by their holders in boot time. A step of the host's clock must not end them here while they
/// run on there, so it is not followed: see "Why does the store not follow the host's clock?" in docs/DESIGN.md.
#[derive(Debug)]
pub struct SystemClock {
    opened_at: Timestamp,
    boot_ms: u64,
}

impl Default for SystemClock {
    fn default() -> Self {
        Self { opened_at: wall(), boot_ms: boot_ms() }
    }
}

impl SystemClock {
    /// The time at a moment of CLOCK_BOOTTIME.
    const fn at(&self, boot_ms: u64) -> Timestamp {
        self.opened_at.plus_ms(boot_ms.saturating_sub(self.boot_ms))
    }
}

impl StoreClock for SystemClock {
    fn now(&self) -> Timestamp {
        self.at(boot_ms())
    }
}

/// Milliseconds since the machine was started, sleep included.
fn boot_ms() -> u64 {
    let time = clock_gettime(ClockId::Boottime);
    time.tv_sec.unsigned_abs() * 1000 + time.tv_nsec.unsigned_abs() / 1_000_000
}

fn wall() -> Timestamp {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_unix_ms(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

/// A clock that starts no earlier than the last time a store was written at.
pub(crate) struct StoreTime {
    clock: Arc<dyn StoreClock>,
    /// What the clock is behind by.
    behind_ms: u64,
    last: Mutex<Timestamp>,
}

impl StoreTime {
    pub(crate) fn new(clock: Arc<dyn StoreClock>, high_water: Option<Timestamp>) -> Self {
        let now = clock.now();
        let behind_ms = high_water.map_or(0, |high_water| high_water.ms_since(now));
        if behind_ms > 0 {
            tracing::warn!(
                behind_ms,
                "the clock was set back since the store was last written; time goes on from there"
            );
        }
        Self { clock, behind_ms, last: Mutex::new(now.plus_ms(behind_ms)) }
    }

    pub(crate) fn now(&self) -> Timestamp {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        *last = (*last).max(self.clock.now().plus_ms(self.behind_ms));
        *last
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicI64, Ordering};

    use super::*;

    #[test]
    fn time_goes_on_by_boot_time_alone() {
        let time = Timestamp::from_unix_ms;
        let clock = SystemClock { opened_at: time(1_000), boot_ms: 70 };
        let read = [70, 71, 95, 60_070].map(|boot_ms| clock.at(boot_ms));
        assert_eq!(read, [time(1_000), time(1_001), time(1_025), time(61_000)]);
    }

    #[test]
    fn it_starts_at_the_hosts_time() {
        let before = wall();
        let clock = SystemClock::default();
        let (read, after) = (clock.now(), wall());
        assert!(before <= read && read <= after.plus_ms(1), "{before} {read} {after}");
        assert!(clock.now() >= read);
    }

    #[test]
    fn time_goes_on_from_the_high_water_mark() {
        let hand = Arc::new(AtomicI64::new(500));
        let of_clock = Arc::clone(&hand);
        let clock = move || Timestamp::from_unix_ms(of_clock.load(Ordering::Relaxed));
        let time = StoreTime::new(Arc::new(clock), Some(Timestamp::from_unix_ms(2_000)));
        assert_eq!(time.now(), Timestamp::from_unix_ms(2_000));
        hand.store(510, Ordering::Relaxed);
        assert_eq!(time.now(), Timestamp::from_unix_ms(2_010));
        hand.store(100, Ordering::Relaxed);
        assert_eq!(time.now(), Timestamp::from_unix_ms(2_010));
    }
}
