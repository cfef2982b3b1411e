//! What this program refuses by itself: typed like every other refusal, with a code from the closed list, so that
//! the exit and the JSON document follow from it.

use std::fmt::Display;

use anyhow::{Error, Result};
use handoff_agent::AgentError;
use handoff_client::ClientError;
use handoff_protocol::{ErrorCode, Problem};
use handoff_server::{ServeError, SocketError};
use handoff_snapshot::{CaptureError, RestoreError, SealError};
use handoff_store::OpenError;

/// A refusal: its code, what happened to what, and what to do.
pub fn refuse(code: ErrorCode, message: impl Display, hint: impl Display) -> Error {
    Problem::new(code, message.to_string(), hint.to_string()).into()
}

/// Turns a failure or an absence into a refusal.
pub trait OrRefuse<T> {
    /// The value, or a refusal with this code. What failed stands behind the message.
    fn or_refuse(self, code: ErrorCode, message: impl Display, hint: impl Display) -> Result<T>;
}

impl<T, E: Display> OrRefuse<T> for Result<T, E> {
    fn or_refuse(self, code: ErrorCode, message: impl Display, hint: impl Display) -> Result<T> {
        self.map_err(|error| refuse(code, format_args!("{message}: {error}"), hint))
    }
}

impl<T> OrRefuse<T> for Option<T> {
    fn or_refuse(self, code: ErrorCode, message: impl Display, hint: impl Display) -> Result<T> {
        self.ok_or_else(|| refuse(code, message, hint))
    }
}

/// The problem behind an error: the first in its chain whose type knows its code, with what was said around it in
/// front of its message. What has no type of its own is `internal`.
pub fn problem(error: &Error) -> Problem {
    let mut around = String::new();
    for cause in error.chain() {
        if let Some(mut problem) = known(cause) {
            problem.message = around + &problem.message;
            return problem;
        }
        around = format!("{around}{cause}: ");
    }
    let hint = "repeat it with HANDOFF_LOG=debug to see more";
    Problem::new(ErrorCode::Internal, format!("{error:#}"), hint)
}

fn known(cause: &(dyn std::error::Error + 'static)) -> Option<Problem> {
    if let Some(problem) = cause.downcast_ref::<Problem>() {
        return Some(problem.clone());
    }
    if let Some(error) = cause.downcast_ref::<ClientError>() {
        return Some(in_verbs(error.problem()));
    }
    if let Some(ServeError::Service(error)) = cause.downcast_ref::<ServeError>() {
        return Some(in_verbs(error.problem()));
    }
    let (code, hint) = if let Some(ServeError::Socket(error)) = cause.downcast_ref::<ServeError>() {
        of_socket(error)
    } else if let Some(error) = cause.downcast_ref::<AgentError>() {
        of_agent(error)
    } else if let Some(error) = cause.downcast_ref::<SealError>() {
        (error.code(), "correct the input at the place that is named".to_owned())
    } else if let Some(error) = cause.downcast_ref::<CaptureError>() {
        (error.code(), "correct what is named, then repeat".to_owned())
    } else if let Some(error) = cause.downcast_ref::<RestoreError>() {
        (error.code(), "check the digest: `handoff status XFR` shows what a transfer carries".to_owned())
    } else if let Some(error) = cause.downcast_ref::<OpenError>() {
        (error.code(), of_store(error).to_owned())
    } else {
        return None;
    };
    Some(Problem::new(code, chained(cause), hint))
}

/// The control plane speaks of its tools. Here they have other words.
const WORDS: [(&str, &str); 8] = [
    ("ask get_status what comes next", "see what comes next with `handoff status XFR`"),
    ("ask get_status what it is doing", "see what it is doing with `handoff status XFR`"),
    ("finish or terminate it", "finish it, or end it with `handoff transfer terminate XFR --reason WHY`"),
    ("read the session:", "see `handoff session list`:"),
    ("or get_status", "or look with `handoff status XFR`"),
    ("get_status", "`handoff status XFR`"),
    (
        "quiesce the source and call snapshot_state with final: true",
        "have its holder stop, then: `handoff transfer snapshot --transfer XFR --expected-epoch N --final`",
    ),
    ("read the session and repeat with its present epoch", "repeat with the present one as --expected-epoch"),
];

/// The same problem with its hint in the verbs of the command line.
fn in_verbs(mut problem: Problem) -> Problem {
    for (tools, verbs) in WORDS {
        problem.hint = problem.hint.replace(tools, verbs);
    }
    if let Some(transfer) = problem.transfer_id {
        problem.hint = problem.hint.replace("XFR", &transfer.to_string());
    }
    problem
}

/// An error with its sources behind it.
fn chained(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text
}

fn of_agent(error: &AgentError) -> (ErrorCode, String) {
    match error {
        AgentError::Frozen { .. } => {
            (ErrorCode::SessionBusy, "finish that move with `handoff move --resume`".to_owned())
        }
        AgentError::Retired { transfer_id, .. } => {
            (ErrorCode::SessionBusy, format!("see where it went with `handoff status {transfer_id}`"))
        }
        AgentError::InUse(_) => {
            (ErrorCode::SessionBusy, "end that agent first, or name another --state".to_owned())
        }
        AgentError::NameTaken(_) => (ErrorCode::SessionBusy, "choose another --name".to_owned()),
        AgentError::Corrupt { .. } => {
            (ErrorCode::SnapshotInvalid, "restore the file, or start a new session".to_owned())
        }
        AgentError::NotEmpty(_) => (ErrorCode::InvalidArgument, "name an empty --state".to_owned()),
        AgentError::Options(_) => (ErrorCode::InvalidArgument, "see `handoff agent --help`".to_owned()),
        AgentError::File { .. } | AgentError::Control(_) => {
            (ErrorCode::Internal, "check the file's permissions and the disk's room".to_owned())
        }
    }
}

fn of_socket(error: &SocketError) -> (ErrorCode, String) {
    let (code, hint) = match error {
        SocketError::InUse { .. } => {
            (ErrorCode::StoreLocked, "end that process first: `handoff serve --stop`")
        }
        SocketError::PathTooLong { .. } => (ErrorCode::Misconfigured, "choose a shorter HANDOFF_HOME"),
        SocketError::NotAPlace { .. } => {
            (ErrorCode::Misconfigured, "move what is there away, or choose another HANDOFF_HOME")
        }
        SocketError::Io { .. } => (ErrorCode::Internal, "check the directory's permissions and its disk"),
    };
    (code, hint.to_owned())
}

const fn of_store(error: &OpenError) -> &'static str {
    match error {
        OpenError::StoreLocked { .. } => "end that process first: `handoff serve --stop`",
        OpenError::VersionUnsupported { .. } => "use the version of handoff that wrote it, or a newer one",
        OpenError::NotAStore { .. } => "move that file away, or choose another HANDOFF_HOME",
        OpenError::Policy(_) => "correct config.toml, as docs/configuration.md says",
        OpenError::Full { .. } => "make room on its disk",
        OpenError::Unavailable { .. } => "check the file, its permissions and its disk",
    }
}

#[cfg(test)]
mod tests {
    use anyhow::Context as _;

    use super::*;

    #[test]
    fn a_code_is_found_wherever_it_stands_and_the_rest_is_internal() {
        let typed = refuse(ErrorCode::NotFound, "there is no agent 'a'", "start one");
        let found = problem(&typed.context("the plan failed"));
        assert_eq!((found.code, found.retryable), (ErrorCode::NotFound, false));
        assert_eq!(found.message, "the plan failed: there is no agent 'a'");
        let locked = OpenError::StoreLocked { path: "/s/handoff.db".to_owned() };
        let found = problem(&Error::from(locked));
        assert_eq!(found.code, ErrorCode::StoreLocked);
        assert!(found.hint.contains("serve --stop"), "{found:?}");
        let untyped = std::io::Error::other("odd");
        let found = problem(&Err::<(), _>(untyped).context("a thread").expect_err("it failed"));
        assert_eq!((found.code, found.message.as_str()), (ErrorCode::Internal, "a thread: odd"));
    }

    #[test]
    fn a_socket_that_can_never_be_made_is_misconfigured() {
        let path = std::path::PathBuf::from("/s/handoff.sock");
        let of = |error: SocketError| problem(&Error::from(ServeError::from(error)));
        let long = of(SocketError::PathTooLong { path: path.clone() });
        assert_eq!((long.code, long.retryable), (ErrorCode::Misconfigured, false));
        assert!(long.message.contains("too long for a socket") && long.hint.contains("shorter"), "{long:?}");
        assert_eq!(of(SocketError::NotAPlace { path: path.clone() }).code, ErrorCode::Misconfigured);
        assert_eq!(of(SocketError::InUse { path }).code, ErrorCode::StoreLocked);
    }

    /// Every hint of the machine's and of the service's that names a tool is said in verbs.
    #[test]
    fn no_hint_names_a_tool() {
        let sources = [
            include_str!("../../handoff-core/tests/golden/refusals.txt"),
            include_str!("../../handoff-service/src/error.rs"),
        ];
        for line in sources.into_iter().flat_map(str::lines) {
            let transfer = handoff_protocol::TransferId::from_u128(1);
            let problem = Problem::new(ErrorCode::WrongStatus, "", line).of_transfer(transfer);
            let hint = in_verbs(problem).hint;
            for tool in ["get_status", "snapshot_state", "push_state", "provision_runtime:", "XFR"] {
                assert!(!hint.contains(tool), "{hint}");
            }
        }
    }

    #[test]
    fn every_agent_error_says_what_to_do() {
        let transfer_id = handoff_protocol::TransferId::from_u128(1);
        let session_id = handoff_protocol::SessionId::from_u128(1);
        for error in [
            AgentError::Frozen { session_id, transfer_id, epoch: 1 },
            AgentError::Retired { session_id, transfer_id },
            AgentError::InUse("/s".into()),
            AgentError::NameTaken("a".to_owned()),
            AgentError::Options("no model is named".to_owned()),
        ] {
            let found = problem(&Error::from(error));
            assert!(!found.retryable && !found.hint.is_empty(), "{found:?}");
        }
    }
}
