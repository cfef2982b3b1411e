//! Asking again: how long, and after which pauses.

use std::time::Duration;

const FIRST: Duration = Duration::from_millis(25);
/// The longest pause, as a rule.
pub(crate) const LONGEST: Duration = Duration::from_secs(2);
/// While nobody listens on a socket of this machine. Looking costs nothing, and whoever comes may soon be gone: a
/// control plane that nobody asks ends.
pub(crate) const LONGEST_NEARBY: Duration = Duration::from_millis(200);

/// Pauses that double from 25 ms to 2 s, each cut at random to between half and all of it, so that many
/// clients of a control plane that comes back do not all come at once. They end when the time is used up.
pub(crate) struct Pauses {
    left: Duration,
    next: Duration,
}

impl Pauses {
    pub(crate) fn within(whole: Duration) -> Self {
        Self { left: whole, next: FIRST }
    }

    /// The next pause, no longer than `longest`, if the time still covers it; `chance` is any number.
    pub(crate) fn next(&mut self, longest: Duration, chance: u64) -> Option<Duration> {
        let half = self.next.min(longest) / 2;
        let share = u32::try_from(chance % 1000).unwrap_or(0);
        let pause = half + half * share / 1000;
        self.left = self.left.checked_sub(pause)?;
        self.next = (self.next * 2).min(LONGEST);
        Some(pause)
    }

    /// Time that a call took counts as well.
    pub(crate) fn spend(&mut self, time: Duration) {
        self.left = self.left.saturating_sub(time);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_limit_and_end() {
        let mut pauses = Pauses::within(Duration::from_secs(30));
        let all: Vec<Duration> = std::iter::from_fn(|| pauses.next(LONGEST, 999)).collect();
        assert!(all.windows(2).all(|pair| pair[0] <= pair[1]));
        assert!(
            all.iter().all(|pause| *pause <= LONGEST)
                && all.iter().sum::<Duration>() <= Duration::from_secs(30)
        );
        assert!(all.len() > 15);
        let mut pauses = Pauses::within(Duration::from_secs(1));
        pauses.spend(Duration::from_secs(2));
        assert_eq!(pauses.next(LONGEST, 0), None);
    }

    #[test]
    fn on_this_machine_it_is_looked_often() {
        let mut pauses = Pauses::within(Duration::from_secs(15));
        let all: Vec<Duration> = std::iter::from_fn(|| pauses.next(LONGEST_NEARBY, 999)).collect();
        assert!(all.iter().all(|pause| *pause <= LONGEST_NEARBY));
        assert!(all.iter().sum::<Duration>() > Duration::from_secs(14));
    }
}
