//! The store's time as a function of boot time: a line through an anchor that bends towards the host's clock.

use handoff_protocol::Timestamp;

/// Store time runs at most one part in so many faster or slower than boot time: 5 %. Leases leave a third: their
/// holders stop after two thirds of them (H-64).
const BEND: u64 = 20;
/// An anchor that is older than this is renewed with the next commit.
const RENEW_MS: u64 = 60_000;

/// What a clock shows at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reading {
    /// Milliseconds since the machine was started, sleep included.
    pub boot_ms: u64,
    /// The host's clock, which anybody may set.
    pub wall: Timestamp,
}

/// A moment of one boot, the store's time at it, and how far that was off the host's clock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Anchor {
    /// Empty where nobody knows it.
    pub(crate) boot_id: String,
    pub(crate) boot_ms: u64,
    pub(crate) store: Timestamp,
    /// What has to be added until the store's time is the host's.
    pub(crate) off_ms: i64,
}

impl Anchor {
    /// The time of a store that is opened now: whether the anchor is the stored one, and the anchor.
    ///
    /// In the boot of the stored anchor it is that one: the time goes on as if the store had never been closed,
    /// whatever the host's clock did. In another boot it is the host's clock. It is never behind `newest`, the
    /// newest time in the store.
    pub(crate) fn resume(
        stored: Option<Self>,
        boot_id: &str,
        reading: Reading,
        newest: Option<Timestamp>,
    ) -> (bool, Self) {
        let is_known = |stored: &Self| {
            !boot_id.is_empty() && stored.boot_id == boot_id && stored.boot_ms <= reading.boot_ms
        };
        let reached = stored.as_ref().map(|stored| stored.store).max(newest);
        let time = match stored {
            Some(stored) if is_known(&stored) => {
                let time = stored.at(reading.boot_ms);
                if reached <= Some(time) {
                    return (true, stored);
                }
                time
            }
            Some(_) | None => reading.wall,
        };
        let store = reached.map_or(time, |reached| reached.max(time));
        (false, Self::through(boot_id.to_owned(), reading, store))
    }

    fn through(boot_id: String, reading: Reading, store: Timestamp) -> Self {
        let off_ms = reading.wall.unix_ms().saturating_sub(store.unix_ms());
        Self { boot_id, boot_ms: reading.boot_ms, store, off_ms }
    }

    /// The store's time at a moment of the boot. It never falls.
    pub(crate) fn at(&self, boot_ms: u64) -> Timestamp {
        let since = boot_ms.saturating_sub(self.boot_ms);
        let bend = (since / BEND).min(self.off_ms.unsigned_abs());
        let passed = if self.off_ms < 0 { since - bend } else { since.saturating_add(bend) };
        self.store.plus_ms(passed)
    }

    pub(crate) const fn is_old(&self, boot_ms: u64) -> bool {
        boot_ms.saturating_sub(self.boot_ms) >= RENEW_MS
    }

    /// The anchor of this moment, on the same line: the time does not step, only its course is set anew.
    pub(crate) fn renewed(&self, reading: Reading) -> Self {
        Self::through(self.boot_id.clone(), reading, self.at(reading.boot_ms))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOOT: &str = "a boot";

    const fn time(ms: i64) -> Timestamp {
        Timestamp::from_unix_ms(ms)
    }

    const fn reading(boot_ms: u64, wall_ms: i64) -> Reading {
        Reading { boot_ms, wall: time(wall_ms) }
    }

    fn anchor(off_ms: i64) -> Anchor {
        Anchor { boot_id: BOOT.to_owned(), boot_ms: 70, store: time(1_000), off_ms }
    }

    #[test]
    fn it_bends_by_a_twentieth_until_it_is_the_hosts() {
        for (off_ms, expected) in [
            (0, [1_000, 1_001, 1_020, 2_000, 61_000]),
            (60, [1_000, 1_001, 1_021, 2_050, 61_060]),
            (-60, [1_000, 1_001, 1_019, 1_950, 60_940]),
            (i64::MAX, [1_000, 1_001, 1_021, 2_050, 64_000]),
            (i64::MIN, [1_000, 1_001, 1_019, 1_950, 58_000]),
        ] {
            let read = [70, 71, 90, 1_070, 60_070].map(|boot_ms| anchor(off_ms).at(boot_ms));
            assert_eq!(read, expected.map(time), "{off_ms}");
        }
    }

    #[test]
    fn before_its_anchor_it_stands_still() {
        assert_eq!(anchor(-60).at(3), time(1_000));
    }

    #[test]
    fn within_the_boot_the_stored_anchor_holds_whatever_the_hosts_clock_says() {
        for wall_ms in [0, 2_000, 62_000] {
            let resumed = Anchor::resume(Some(anchor(0)), BOOT, reading(570, wall_ms), Some(time(1_400)));
            assert_eq!(resumed, (true, anchor(0)));
        }
    }

    #[test]
    fn in_another_boot_the_hosts_clock_holds() {
        for (stored, boot_id) in [(Some(anchor(0)), "another"), (Some(anchor(0)), ""), (None, BOOT)] {
            let (is_kept, resumed) = Anchor::resume(stored, boot_id, reading(570, 5_000), Some(time(1_400)));
            assert_eq!((is_kept, resumed.at(570), resumed.off_ms), (false, time(5_000), 0));
        }
        let unknown = Anchor { boot_id: String::new(), ..anchor(0) };
        let (is_kept, resumed) = Anchor::resume(Some(unknown), "", reading(570, 5_000), None);
        assert_eq!(
            (is_kept, resumed.at(570)),
            (false, time(5_000)),
            "two unknown boots are not the same one"
        );
    }

    #[test]
    fn boot_time_before_the_anchor_is_another_boot() {
        let (is_kept, resumed) = Anchor::resume(Some(anchor(0)), BOOT, reading(69, 5_000), None);
        assert_eq!((is_kept, resumed.at(69)), (false, time(5_000)));
    }

    #[test]
    fn it_is_never_behind_the_newest_time() {
        for (stored, boot_id, wall_ms, newest, expected) in [
            (None, BOOT, 900, Some(1_400), 1_400),
            (Some(anchor(0)), "another", 900, Some(1_400), 1_400),
            (Some(anchor(0)), "another", 900, Some(950), 1_000),
            (Some(anchor(0)), BOOT, 900, Some(9_000), 9_000),
        ] {
            let newest = newest.map(time);
            let (is_kept, resumed) = Anchor::resume(stored, boot_id, reading(170, wall_ms), newest);
            assert_eq!((is_kept, resumed.at(170)), (false, time(expected)));
            assert_eq!(resumed.off_ms, wall_ms - expected);
        }
    }

    #[test]
    fn a_renewal_sets_the_course_and_nothing_else() {
        assert!(!anchor(0).is_old(60_069) && anchor(0).is_old(60_070));
        let renewed = anchor(-40).renewed(reading(60_070, 121_000));
        let expected =
            Anchor { boot_id: BOOT.to_owned(), boot_ms: 60_070, store: time(60_960), off_ms: 60_040 };
        assert_eq!(renewed, expected);
    }
}
