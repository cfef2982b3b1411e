//! The ways in which a script can make a request fail.

use serde::{Deserialize, Serialize};

/// One failure of a step. A step's failures are used up in order, one request each (or `times` requests);
/// after them the step answers as written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Failure {
    /// Answers with this HTTP status and an error body, before the first byte of a reply.
    Refuse {
        /// Such as 429 or 503.
        status: u16,
        /// The `retry-after` header, in seconds.
        #[serde(default)]
        retry_after_s: Option<u64>,
        /// How many requests fail so.
        #[serde(default = "once")]
        times: u32,
    },
    /// Closes the connection after so many chunks of the reply (0: after the headers).
    Cut {
        /// Chunks that still arrive.
        after_chunks: usize,
        /// How many requests fail so.
        #[serde(default = "once")]
        times: u32,
    },
    /// Says nothing more after so many chunks, until somebody hangs up.
    Hang {
        /// Chunks that still arrive.
        after_chunks: usize,
        /// How many requests fail so.
        #[serde(default = "once")]
        times: u32,
    },
}

const fn once() -> u32 {
    1
}

impl Failure {
    const fn times(&self) -> u32 {
        match self {
            Self::Refuse { times, .. } | Self::Cut { times, .. } | Self::Hang { times, .. } => *times,
        }
    }

    /// The same failure after another number of chunks.
    pub(crate) fn after(self, chunks: usize) -> Self {
        match self {
            Self::Refuse { .. } => self,
            Self::Cut { times, .. } => Self::Cut { after_chunks: chunks, times },
            Self::Hang { times, .. } => Self::Hang { after_chunks: chunks, times },
        }
    }

    /// The failure for the request that comes after `earlier` others at the same step.
    pub(crate) fn due(failures: &[Self], earlier: u32) -> Option<&Self> {
        let mut used = 0u32;
        failures.iter().find(|failure| {
            used = used.saturating_add(failure.times());
            earlier < used
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_used_up_in_order() {
        let failures = [
            Failure::Refuse { status: 429, retry_after_s: None, times: 2 },
            Failure::Cut { after_chunks: 1, times: 1 },
        ];
        let due = |earlier| Failure::due(&failures, earlier);
        assert_eq!((due(0), due(1)), (Some(&failures[0]), Some(&failures[0])));
        assert_eq!((due(2), due(3)), (Some(&failures[1]), None));
    }
}
