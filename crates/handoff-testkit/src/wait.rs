//! Waiting for a condition with a deadline, instead of sleeping and hoping.

use std::time::{Duration, Instant};

/// How often a condition is looked at.
const EVERY: Duration = Duration::from_millis(5);

/// Waits until the probe finds something.
///
/// # Panics
/// When it finds nothing within the deadline; the message says what was waited for.
pub async fn until<T>(what: &str, within: Duration, mut probe: impl AsyncFnMut() -> Option<T>) -> T {
    let started = Instant::now();
    let mut ticks = tokio::time::interval(EVERY);
    loop {
        ticks.tick().await;
        if let Some(found) = probe().await {
            return found;
        }
        assert!(started.elapsed() < within, "waited {within:?} in vain: {what}");
    }
}

/// The same for tests without a runtime.
///
/// # Panics
/// When it finds nothing within the deadline; the message says what was waited for.
pub fn until_blocking<T>(what: &str, within: Duration, mut probe: impl FnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(found) = probe() {
            return found;
        }
        assert!(started.elapsed() < within, "waited {within:?} in vain: {what}");
        std::thread::park_timeout(EVERY);
    }
}
