//! The two facts about time that a lease needs: CLOCK_BOOTTIME, which counts while the machine sleeps, and
//! which boot it counts from.

use std::time::Duration;

use rustix::time::{ClockId, Timespec, clock_gettime};

/// CLOCK_BOOTTIME in milliseconds.
pub fn boot_ms() -> u64 {
    let now: Timespec = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(now.tv_sec).expect("time since boot is not negative");
    let millis = u64::try_from(now.tv_nsec).expect("nanoseconds are not negative") / 1_000_000;
    seconds * 1_000 + millis
}

/// The id of this boot, without its line end. Empty where /proc does not tell.
pub fn boot_id() -> String {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    id.trim_end().to_owned()
}

/// A moment on CLOCK_BOOTTIME by which something has to have happened.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadline(u64);

impl Deadline {
    pub(crate) fn within(duration: Duration) -> Self {
        let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        Self(boot_ms().saturating_add(millis))
    }

    /// What is left of it; nothing once it is over.
    pub(crate) fn left(self) -> Option<Duration> {
        let left = self.0.saturating_sub(boot_ms());
        (left > 0).then(|| Duration::from_millis(left))
    }

    /// Asks again until the answer is yes. Most answers come within the first millisecond, so the pauses
    /// start short.
    pub(crate) fn until(self, mut holds: impl FnMut() -> bool) -> bool {
        let mut pause = Duration::from_micros(200);
        loop {
            if holds() {
                return true;
            }
            let Some(left) = self.left() else { return false };
            rest(pause.min(left));
            pause = (pause * 2).min(Duration::from_millis(20));
        }
    }
}

/// Waits without asking anything: for kernel states that nothing announces.
fn rest(duration: Duration) {
    let _ = rustix::event::poll(&mut [], Some(&timespec(duration)));
}

/// The kernel's form of a duration.
pub(crate) fn timespec(duration: Duration) -> Timespec {
    let seconds = i64::try_from(duration.as_secs()).unwrap_or(i64::MAX);
    Timespec { tv_sec: seconds, tv_nsec: i64::from(duration.subsec_nanos()) }
}
