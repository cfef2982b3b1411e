//! The store's time: never steps back, not even over a restart, and never stands still.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Instant, SystemTime};

use handoff_protocol::Timestamp;

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

/// The host's clock, carried on by elapsed time wherever the host's clock is set back.
#[derive(Debug)]
pub struct SystemClock {
    last: Mutex<(Timestamp, Instant)>,
}

impl Default for SystemClock {
    fn default() -> Self {
        Self { last: Mutex::new((wall(), Instant::now())) }
    }
}

impl StoreClock for SystemClock {
    fn now(&self) -> Timestamp {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        *last = carry_on(*last, wall(), Instant::now());
        last.0
    }
}

/// The later of the host's time and the last one carried on. Whole milliseconds only are taken from the elapsed
/// time, so that asking often does not slow it down.
fn carry_on((time, at): (Timestamp, Instant), wall: Timestamp, now: Instant) -> (Timestamp, Instant) {
    let elapsed = u64::try_from(now.saturating_duration_since(at).as_millis()).unwrap_or(0);
    let carried = time.plus_ms(elapsed);
    if wall >= carried { (wall, now) } else { (carried, at + std::time::Duration::from_millis(elapsed)) }
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
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_clock_that_is_set_back_goes_on_by_elapsed_time() {
        let start = Instant::now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        let time = Timestamp::from_unix_ms;
        let last = carry_on((time(1_000), start), time(400), at(25));
        assert_eq!(last.0, time(1_025));
        let last = carry_on(last, time(401), at(26));
        assert_eq!(last.0, time(1_026));
        let last = carry_on(last, time(5_000), at(27));
        assert_eq!(last.0, time(5_000), "and takes the host's time again as soon as that is later");
    }

    #[test]
    fn asking_often_does_not_slow_time_down() {
        let start = Instant::now();
        let time = Timestamp::from_unix_ms;
        let mut last = (time(1_000), start);
        for tenth in 1..=100u64 {
            last = carry_on(last, time(0), start + Duration::from_micros(tenth * 100));
        }
        assert_eq!(last.0, time(1_010));
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
