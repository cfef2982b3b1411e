//! When a failed model call is tried again. Pure: the waiting is the driver's.

use crate::control::Activity;

/// How a model call failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// Nothing arrived, or not everything: another try may succeed.
    Transient {
        /// What happened.
        why: String,
        /// How long the provider asks to wait, in milliseconds.
        retry_after_ms: Option<u64>,
    },
    /// The budget does not buy the call.
    OutOfBudget {
        /// What the gateway said.
        why: String,
    },
    /// The same request will fail again.
    Permanent {
        /// What the provider said.
        why: String,
    },
}

/// Characters of a failure that are said.
const SAID: usize = 300;

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (Self::Transient { why, .. } | Self::OutOfBudget { why } | Self::Permanent { why }) = self;
        why.chars().take(SAID).try_for_each(|part| write!(f, "{part}"))
    }
}

/// The first wait after a transient failure, in milliseconds; it doubles.
const FIRST_MS: u64 = 250;
/// The longest wait after a transient failure.
const LONGEST_MS: u64 = 30_000;
/// The first wait after a call that the budget did not buy; it doubles.
const FIRST_BUDGET_MS: u64 = 1_000;
/// The longest of these: a raised budget is noticed within it.
const LONGEST_BUDGET_MS: u64 = 60_000;
/// The longest wait that a provider may ask for.
const LONGEST_ASKED_MS: u64 = 300_000;

/// The failures in a row so far.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Retry {
    transient: u32,
    out_of_budget: u32,
    last: Option<Failure>,
}

impl Retry {
    /// The count with this failure, and how long to wait; or why waiting is no use.
    pub(crate) fn after(&self, failure: Failure) -> Result<(Self, u64), String> {
        let mut next = self.clone();
        let wait_ms = match &failure {
            Failure::Transient { retry_after_ms, .. } => {
                next.transient = next.transient.saturating_add(1);
                let own = doubled(FIRST_MS, next.transient, LONGEST_MS);
                own.max(retry_after_ms.unwrap_or(0).min(LONGEST_ASKED_MS))
            }
            Failure::OutOfBudget { .. } => {
                next.out_of_budget = next.out_of_budget.saturating_add(1);
                doubled(FIRST_BUDGET_MS, next.out_of_budget, LONGEST_BUDGET_MS)
            }
            Failure::Permanent { why } => return Err(why.clone()),
        };
        next.last = Some(failure);
        Ok((next, wait_ms))
    }

    /// What the loop does while it waits, and why.
    pub(crate) fn activity(&self) -> (Activity, Option<String>) {
        match &self.last {
            Some(Failure::OutOfBudget { why }) => (Activity::OutOfBudget, Some(why.clone())),
            Some(Failure::Transient { why, .. } | Failure::Permanent { why }) => {
                (Activity::Retrying, Some(why.clone()))
            }
            None => (Activity::Retrying, None),
        }
    }
}

fn doubled(first_ms: u64, times: u32, longest_ms: u64) -> u64 {
    first_ms.saturating_mul(1 << times.saturating_sub(1).min(20)).min(longest_ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waits(failure: &Failure, times: usize) -> Vec<u64> {
        let mut retry = Retry::default();
        let wait = |_| {
            let (next, wait_ms) = retry.after(failure.clone()).expect("another try");
            retry = next;
            wait_ms
        };
        (0..times).map(wait).collect()
    }

    #[test]
    fn waits_double_up_to_a_limit() {
        let transient = Failure::Transient { why: "x".into(), retry_after_ms: None };
        let waits_ms = waits(&transient, 40);
        assert_eq!((waits_ms[0], waits_ms[1], waits_ms[7], waits_ms[39]), (250, 500, 30_000, 30_000));
        let budget = Failure::OutOfBudget { why: "x".into() };
        let waits_ms = waits(&budget, 8);
        assert_eq!((waits_ms[0], waits_ms[5], waits_ms[7]), (1_000, 32_000, 60_000));
    }

    #[test]
    fn a_provider_may_ask_for_more_within_reason() {
        let asked = |ms| waits(&Failure::Transient { why: String::new(), retry_after_ms: Some(ms) }, 1)[0];
        assert_eq!((asked(1), asked(5_000), asked(u64::MAX)), (250, 5_000, 300_000));
    }

    #[test]
    fn what_will_fail_again_is_not_tried_again() {
        let refused = Retry::default().after(Failure::Permanent { why: "no such model".into() });
        assert_eq!(refused, Err("no such model".to_owned()));
    }
}
