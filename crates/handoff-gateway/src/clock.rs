//! The one clock of the gateway: CLOCK_BOOTTIME, which goes on while the machine sleeps, with the id of the
//! boot it counts from. Tests move it by hand.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use tokio::sync::watch;

/// What waiting for a point in time returns.
pub type Waiting<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// Where the gateway reads time from. Leases and compute are counted in it, never in wall-clock time.
pub trait Clock: Send + Sync + fmt::Debug {
    /// Milliseconds since the machine was started, sleep included.
    fn boot_ms(&self) -> u64;

    /// Which start of the machine [`Clock::boot_ms`] counts from.
    fn boot_id(&self) -> &str;

    /// Ends once [`Clock::boot_ms`] has reached `boot_ms`.
    fn wait_until(&self, boot_ms: u64) -> Waiting<'_>;
}

/// The machine's own clock.
#[derive(Debug)]
pub struct BootClock {
    boot_id: String,
}

/// A timer does not count while the machine sleeps, so a long wait looks at the clock again this often.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

impl BootClock {
    /// The clock of this boot.
    ///
    /// # Errors
    /// When `/proc/sys/kernel/random/boot_id` cannot be read (proc(5)).
    pub fn new() -> std::io::Result<Self> {
        let boot_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
        Ok(Self { boot_id: boot_id.trim().to_owned() })
    }
}

impl Clock for BootClock {
    fn boot_ms(&self) -> u64 {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        let (seconds, nanos) = (time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs());
        seconds * 1000 + nanos / 1_000_000
    }

    fn boot_id(&self) -> &str {
        &self.boot_id
    }

    fn wait_until(&self, boot_ms: u64) -> Waiting<'_> {
        Box::pin(async move {
            loop {
                let left = boot_ms.saturating_sub(self.boot_ms());
                if left == 0 {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(left).min(LOOK_AGAIN)).await;
            }
        })
    }
}

/// A clock that stands still until it is moved: time for tests.
#[derive(Debug)]
pub struct HandClock {
    now: watch::Sender<u64>,
    boot_id: String,
}

impl HandClock {
    /// A clock that shows `boot_ms` in a boot of this name.
    pub fn new(boot_id: &str, boot_ms: u64) -> Self {
        Self { now: watch::Sender::new(boot_ms), boot_id: boot_id.to_owned() }
    }

    /// Moves it on by so many milliseconds.
    pub fn advance(&self, ms: u64) {
        self.now.send_modify(|now| *now += ms);
    }
}

impl Clock for HandClock {
    fn boot_ms(&self) -> u64 {
        *self.now.borrow()
    }

    fn boot_id(&self) -> &str {
        &self.boot_id
    }

    fn wait_until(&self, boot_ms: u64) -> Waiting<'_> {
        let mut moved = self.now.subscribe();
        Box::pin(async move {
            let reached = moved.wait_for(|now| *now >= boot_ms).await;
            // The sender lives in `self`, which this future borrows.
            debug_assert!(reached.is_ok(), "a clock outlives those who wait for it");
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_clock_never_steps_back_and_names_its_boot() {
        let clock = BootClock::new().expect("a boot id");
        let first = clock.boot_ms();
        assert!(clock.boot_ms() >= first && first > 0);
        assert_eq!(clock.boot_id().len(), 36);
    }

    #[tokio::test]
    async fn a_hand_clock_wakes_whoever_waits() {
        let clock = HandClock::new("boot", 10);
        let waits = clock.wait_until(15);
        clock.advance(5);
        waits.await;
        assert_eq!(clock.boot_ms(), 15);
    }
}
