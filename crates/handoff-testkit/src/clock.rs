//! A clock that stands still until a test moves it.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use handoff_protocol::Timestamp;

/// A clock that a test moves by hand. Clones show the same time.
#[derive(Debug, Clone)]
pub struct ManualClock {
    ms: Arc<AtomicI64>,
}

impl ManualClock {
    /// A clock that shows this time.
    pub fn at(time: Timestamp) -> Self {
        Self { ms: Arc::new(AtomicI64::new(time.unix_ms())) }
    }

    /// The time it shows.
    pub fn now(&self) -> Timestamp {
        Timestamp::from_unix_ms(self.ms.load(Ordering::SeqCst))
    }

    /// Moves it forward by so many milliseconds.
    pub fn advance(&self, ms: u64) {
        self.set(self.now().plus_ms(ms));
    }

    /// Sets it to any time, also an earlier one.
    pub fn set(&self, time: Timestamp) {
        self.ms.store(time.unix_ms(), Ordering::SeqCst);
    }

    /// What an adapter takes its time from.
    pub fn reader(&self) -> impl Fn() -> Timestamp + Send + Sync + 'static {
        let clock = self.clone();
        move || clock.now()
    }
}

impl Default for ManualClock {
    /// Shows 2026-12-01T09:30:00Z.
    fn default() -> Self {
        Self::at(Timestamp::from_unix_ms(1_796_117_400_000))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_moves_only_by_hand_and_for_everybody() {
        let clock = ManualClock::default();
        let (other, read) = (clock.clone(), clock.reader());
        let start = clock.now();
        assert_eq!(start.to_string(), "2026-12-01T09:30:00.000Z");
        other.advance(1500);
        assert_eq!((clock.now(), read()), (start.plus_ms(1500), start.plus_ms(1500)));
        clock.set(start);
        assert_eq!(read(), start);
    }
}
