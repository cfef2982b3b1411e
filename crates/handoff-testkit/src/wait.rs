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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn it_returns_what_is_found_as_soon_as_it_is_found() {
        let mut looks = 0;
        let found = until("the third look", Duration::from_secs(10), async || {
            looks += 1;
            (looks == 3).then_some(looks)
        });
        assert_eq!(found.await, 3);
        let mut looks = 0;
        let found = until_blocking("the third look", Duration::from_secs(10), || {
            looks += 1;
            (looks == 3).then_some(looks)
        });
        assert_eq!(found, 3);
    }

    #[tokio::test]
    #[should_panic(expected = "in vain: a thing that never comes")]
    async fn it_says_what_it_waited_for() {
        until("a thing that never comes", Duration::from_millis(20), async || None::<()>).await;
    }

    #[test]
    #[should_panic(expected = "in vain: a thing that never comes")]
    fn it_says_so_without_a_runtime() {
        until_blocking("a thing that never comes", Duration::from_millis(20), || None::<()>);
    }
}
