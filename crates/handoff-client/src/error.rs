//! Why a call did not give an answer.

use std::time::Duration;

use handoff_protocol::error::Exit;
use handoff_protocol::{ErrorCode, Problem};

/// A call that failed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The control plane refused it, or failed inside.
    #[error(transparent)]
    Problem(Box<Problem>),
    /// The control plane could not be reached, or the connection broke. Where `sent` is true the call may have
    /// been done: ask again with the same request id.
    #[error("the control plane at {at} does not answer: {source}")]
    Unreachable {
        /// The address.
        at: String,
        /// Whether the request had left.
        sent: bool,
        /// What the connection says.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// No answer within the deadline. The call may have been done: ask again with the same request id.
    #[error("the control plane at {at} did not answer within {} ms", after.as_millis())]
    TimedOut {
        /// The address.
        at: String,
        /// The deadline of the call.
        after: Duration,
    },
    /// An answer that does not follow the protocol: another program listens there, or another version.
    #[error("the answer of {at} (status {status}) cannot be read: {why}")]
    Unreadable {
        /// The address.
        at: String,
        /// The HTTP status.
        status: u16,
        /// What is wrong with it.
        why: String,
    },
    /// The call's own words cannot be sent.
    #[error("the request cannot be made: {0}")]
    Unsendable(String),
}

impl ClientError {
    /// The stable code, where the control plane gave one.
    pub fn code(&self) -> Option<ErrorCode> {
        match self {
            Self::Problem(problem) => Some(problem.code),
            Self::Unreachable { .. }
            | Self::TimedOut { .. }
            | Self::Unreadable { .. }
            | Self::Unsendable(_) => None,
        }
    }

    /// Whether it is open if the call was done: ask again with the same request id to learn it.
    pub fn outcome_unknown(&self) -> bool {
        match self {
            Self::Unreachable { sent, .. } => *sent,
            Self::TimedOut { .. } | Self::Unreadable { .. } => true,
            Self::Problem(problem) => {
                matches!(problem.code, ErrorCode::StoreUnavailable | ErrorCode::Internal)
            }
            Self::Unsendable(_) => false,
        }
    }

    /// Whether nobody answered: a later call may reach the control plane again.
    pub fn is_unreachable(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::TimedOut { .. } => true,
            Self::Problem(_) | Self::Unreadable { .. } | Self::Unsendable(_) => false,
        }
    }

    /// Whether the same call, unchanged, may succeed in a moment: the control plane is away or busy. A refusal
    /// that something else must change first is none of these.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Problem(problem) => matches!(
                problem.code,
                ErrorCode::StoreUnavailable | ErrorCode::RateLimited | ErrorCode::ReadOnly
            ),
            Self::Unreachable { .. } | Self::TimedOut { .. } => true,
            Self::Unreadable { .. } | Self::Unsendable(_) => false,
        }
    }

    /// The body that a surface shows for it.
    pub fn problem(&self) -> Problem {
        match self {
            Self::Problem(problem) => (**problem).clone(),
            Self::Unreachable { .. } | Self::TimedOut { .. } => Problem::new(
                ErrorCode::StoreUnavailable,
                self.to_string(),
                "see whether `handoff serve` runs, then repeat the call with the same request id",
            ),
            Self::Unreadable { .. } => Problem::new(
                ErrorCode::Internal,
                self.to_string(),
                "see which program listens there, and whether its version is this one's",
            ),
            Self::Unsendable(_) => {
                Problem::new(ErrorCode::InvalidArgument, self.to_string(), "correct the request")
            }
        }
    }

    /// How the command line ends on it.
    pub fn exit(&self) -> Exit {
        self.problem().code.exit()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_answer_is_open_and_a_lost_connection_is_not() {
        let lost = |sent| ClientError::Unreachable { at: "here".to_owned(), sent, source: "gone".into() };
        assert!(lost(true).outcome_unknown() && !lost(false).outcome_unknown());
        assert!(lost(false).is_unreachable() && lost(false).is_transient());
        assert_eq!(lost(true).exit(), Exit::Retryable);
        let refused = ClientError::Problem(Box::new(Problem::new(ErrorCode::NoNode, "no room", "wait")));
        assert!(!refused.is_transient(), "only somebody else can make room");
        assert_eq!(refused.code(), Some(ErrorCode::NoNode));
    }
}
