//! The store's time: never steps, neither back nor forward, not even over a restart, and never stands still.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use handoff_protocol::Timestamp;
use rustix::time::{ClockId, clock_gettime};

use crate::anchor::{Anchor, Reading};

/// Where a store takes its time from.
pub trait StoreClock: Send + Sync {
    /// Which start of the machine [`Reading::boot_ms`] counts from; empty where nobody knows.
    fn boot_id(&self) -> &str;

    /// What it shows now. Boot time must not step back while it is used.
    fn read(&self) -> Reading;
}

/// A clock that is moved by hand: its boot time and the host's are one.
impl<F: Fn() -> Timestamp + Send + Sync> StoreClock for F {
    fn boot_id(&self) -> &'static str {
        ""
    }

    fn read(&self) -> Reading {
        let wall = self();
        Reading { boot_ms: wall.unix_ms().max(0).unsigned_abs(), wall }
    }
}

/// The host's clocks: CLOCK_BOOTTIME, which leases are counted in by their holders, and the one on the wall.
#[derive(Debug)]
pub struct SystemClock {
    boot_id: String,
}

impl Default for SystemClock {
    fn default() -> Self {
        let boot_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_else(|error| {
            tracing::warn!(%error, "no boot id: a step of the clock ends leases early if a restart follows");
            String::new()
        });
        Self { boot_id: boot_id.trim_end().to_owned() }
    }
}

impl StoreClock for SystemClock {
    fn boot_id(&self) -> &str {
        &self.boot_id
    }

    fn read(&self) -> Reading {
        let boot = clock_gettime(ClockId::Boottime);
        let boot_ms = boot.tv_sec.unsigned_abs() * 1000 + boot.tv_nsec.unsigned_abs() / 1_000_000;
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let wall = Timestamp::from_unix_ms(i64::try_from(since.as_millis()).unwrap_or(i64::MAX));
        Reading { boot_ms, wall }
    }
}

/// The time of one store. See "Why does the store not follow the host's clock?" in docs/DESIGN.md.
pub(crate) struct StoreTime {
    clock: Arc<dyn StoreClock>,
    course: Mutex<Course>,
}

struct Course {
    anchor: Anchor,
    /// Whether the store holds this anchor.
    is_kept: bool,
    last: Timestamp,
}

impl StoreTime {
    /// Goes on from a stored anchor, and no earlier than the newest time in the store.
    pub(crate) fn new(clock: Arc<dyn StoreClock>, stored: Option<Anchor>, newest: Option<Timestamp>) -> Self {
        let reading = clock.read();
        let (is_kept, anchor) = Anchor::resume(stored, clock.boot_id(), reading, newest);
        let last = anchor.at(reading.boot_ms);
        let (ahead_ms, behind_ms) = (last.ms_since(reading.wall), reading.wall.ms_since(last));
        if ahead_ms.max(behind_ms) > 1000 {
            tracing::warn!(ahead_ms, behind_ms, "the store's time is not the host's, and nears it by 5 %");
        }
        Self { clock, course: Mutex::new(Course { anchor, is_kept, last }) }
    }

    /// The present time.
    pub(crate) fn now(&self) -> Timestamp {
        let mut course = self.course();
        course.last = course.last.max(course.anchor.at(self.clock.read().boot_ms));
        course.last
    }

    /// The anchor that has to be written with what is about to be committed, if one has. So every time in the
    /// store lies on the course of the anchor beside it, and a process that dies takes nothing along that the
    /// next one would need.
    pub(crate) fn due(&self) -> Option<Anchor> {
        let mut course = self.course();
        let reading = self.clock.read();
        if course.anchor.is_old(reading.boot_ms) {
            course.anchor = course.anchor.renewed(reading);
            course.is_kept = false;
        }
        (!course.is_kept).then(|| course.anchor.clone())
    }

    /// The anchor that was due is committed.
    pub(crate) fn is_kept(&self) {
        self.course().is_kept = true;
    }

    /// A reading moves it on as a whole.
    fn course(&self) -> MutexGuard<'_, Course> {
        self.course.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The clocks of one boot, in a test's hands.
    struct Hand(Mutex<Reading>);

    impl Hand {
        fn at(boot_ms: u64, wall_ms: i64) -> Arc<Self> {
            Arc::new(Self(Mutex::new(Reading { boot_ms, wall: Timestamp::from_unix_ms(wall_ms) })))
        }

        fn pass(&self, ms: u64) {
            let mut shown = self.0.lock().expect("no test panics while it holds it");
            shown.boot_ms += ms;
            shown.wall = shown.wall.plus_ms(ms);
        }

        fn step(&self, ms: i64) {
            let mut shown = self.0.lock().expect("no test panics while it holds it");
            shown.wall = Timestamp::from_unix_ms(shown.wall.unix_ms() + ms);
        }
    }

    impl StoreClock for Hand {
        fn boot_id(&self) -> &'static str {
            "a boot"
        }

        fn read(&self) -> Reading {
            *self.0.lock().expect("no test panics while it holds it")
        }
    }

    /// What outlives a process.
    #[derive(Default)]
    struct File {
        anchor: Option<Anchor>,
        newest: Option<Timestamp>,
    }

    impl File {
        fn open(&self, hand: &Arc<Hand>) -> StoreTime {
            StoreTime::new(Arc::<Hand>::clone(hand), self.anchor.clone(), self.newest)
        }

        fn commit(&mut self, time: &StoreTime) {
            self.newest = self.newest.max(Some(time.now()));
            if let Some(anchor) = time.due() {
                self.anchor = Some(anchor);
                time.is_kept();
            }
        }
    }

    #[test]
    fn the_hosts_clocks_are_read() {
        let clock = SystemClock::default();
        let (first, second) = (clock.read(), clock.read());
        assert_eq!(clock.boot_id().len(), 36);
        assert!(0 < first.boot_ms && first.boot_ms <= second.boot_ms);
        assert!(first.wall.unix_ms() > 1_700_000_000_000, "{}", first.wall);
    }

    #[test]
    fn a_clock_moved_by_hand_is_followed_and_never_back() {
        let hand = Arc::new(Mutex::new(500));
        let of_clock = Arc::clone(&hand);
        let set = |ms: i64| *hand.lock().expect("no test panics while it holds it") = ms;
        let clock = move || Timestamp::from_unix_ms(*of_clock.lock().expect("as above"));
        let time = StoreTime::new(Arc::new(clock), None, None);
        for (shown, expected) in [(500, 500), (510, 510), (100, 510), (70_000, 70_000)] {
            set(shown);
            assert_eq!(time.now(), Timestamp::from_unix_ms(expected));
        }
    }

    #[test]
    fn an_anchor_is_due_with_the_first_commit_and_when_it_is_old() {
        let hand = Hand::at(1_000, 50_000);
        let mut file = File::default();
        let time = file.open(&hand);
        assert!(time.due().is_some() && time.due().is_some(), "until it is kept");
        file.commit(&time);
        hand.pass(59_999);
        assert_eq!(time.due(), None);
        hand.pass(1);
        assert_eq!(time.due().map(|anchor| anchor.boot_ms), Some(61_000));
    }

    #[test]
    fn the_hosts_clock_is_reached_in_the_end() {
        for step in [60_000, -60_000] {
            let hand = Hand::at(1_000, 1_000_000);
            let mut file = File::default();
            let mut time = file.open(&hand);
            file.commit(&time);
            hand.step(step);
            for _ in 0..(20 * 60 + 120) {
                hand.pass(1000);
                file.commit(&time);
                time = file.open(&hand);
            }
            assert_eq!(time.now(), hand.read().wall, "after a step of {step} ms");
        }
    }

    #[derive(Debug, Clone)]
    enum Event {
        Pass(u64),
        Step(i64),
        Commit,
        /// One that finds no room.
        Fail,
        Restart,
    }

    fn event() -> impl Strategy<Value = Event> {
        prop_oneof![
            4 => (0..100u64).prop_map(Event::Pass),
            4 => (0..200_000u64).prop_map(Event::Pass),
            2 => (-10_000_000..10_000_000i64).prop_map(Event::Step),
            4 => Just(Event::Commit),
            1 => Just(Event::Fail),
            2 => Just(Event::Restart),
        ]
    }

    /// Whether the time went on from one moment to another at boot time's rate or 5 % off it. Times are whole
    /// milliseconds, which is what may be missing or too much.
    fn is_on_course((boot_a, a): (u64, Timestamp), (boot_b, b): (u64, Timestamp)) -> bool {
        let passed = boot_b - boot_a;
        b >= a && b.ms_since(a).abs_diff(passed) <= passed / 20 + 1
    }

    proptest! {
        #[test]
        fn time_keeps_within_5_percent_of_boot_time(events in proptest::collection::vec(event(), 1..80)) {
            let hand = Hand::at(1_000, 100_000_000);
            let mut file = File::default();
            let mut time = file.open(&hand);
            file.commit(&time);
            // What this process answered, and what is committed or was answered by a process that had no failed
            // commit: a restart may take back the course that could not be written, and nothing else.
            let (mut answered, mut lasting) = (Vec::new(), Vec::new());
            let mut failed = false;
            for event in events {
                match event {
                    Event::Pass(ms) => hand.pass(ms),
                    Event::Step(ms) => hand.step(ms),
                    Event::Commit => {
                        file.commit(&time);
                        failed = false;
                    }
                    Event::Fail => failed |= time.due().is_some(),
                    Event::Restart => {
                        if !failed {
                            lasting.append(&mut answered);
                        }
                        answered.clear();
                        failed = false;
                        time = file.open(&hand);
                    }
                }
                let now = (hand.read().boot_ms, time.now());
                for before in lasting.iter().chain(&answered) {
                    prop_assert!(is_on_course(*before, now), "{before:?} {now:?}");
                }
                prop_assert!(file.newest <= Some(now.1));
                answered.push(now);
                if matches!(event, Event::Commit) {
                    lasting.append(&mut answered);
                }
            }
        }
    }
}
