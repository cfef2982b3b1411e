//! The control channel between a runtime and an agent: one JSON object per line and direction.
//!
//! The runtime of a source is whoever connects to its socket; the runtime of a destination is its node, whose
//! lines the sandbox's init passes on. Every question may be asked again: the answer says what is true then.

use handoff_protocol::session_dir::Boundary;
use handoff_protocol::{SessionId, TransferId};
use serde::{Deserialize, Serialize};

pub(crate) mod channel;

pub use channel::Control;

/// The most bytes of one line, in either direction.
pub const LINE_BYTES: usize = 1 << 20;

/// What a runtime tells an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum ToAgent {
    /// The session is claimed in this epoch: models and tools may be called. Said again, only the epoch counts.
    Go {
        /// The session's epoch.
        epoch: u64,
    },
    /// Stop at the next step boundary and answer `quiesced`.
    Quiesce {
        /// Milliseconds after which a running model call or tool is interrupted.
        within_ms: u64,
        /// Makes the stop a final one: the agent writes that it is frozen before it answers, and goes on only
        /// with a `resume` that names the holder.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        freeze: Option<Freeze>,
    },
    /// Go on after a quiesce.
    Resume {
        /// Who holds the session now, after a confirmed draft refresh or a return. A frozen agent needs it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        holder: Option<Holder>,
    },
    /// The session runs elsewhere: write that down and end.
    Retire {
        /// The session.
        session_id: SessionId,
        /// The transfer that took it.
        transfer_id: TransferId,
    },
    /// Say how it is.
    Status,
    /// A user's message for the conversation.
    Say {
        /// Its text.
        text: String,
    },
    /// What became of a snapshot that the agent asked for with `final: true`.
    SnapshotDone {
        /// The tool call that asked.
        call_id: String,
        /// The reply that the model gets.
        outcome: String,
    },
}

/// The transfer that a source freezes for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Freeze {
    /// The session.
    pub session_id: SessionId,
    /// The transfer.
    pub transfer_id: TransferId,
    /// The session's present epoch.
    pub epoch: u64,
}

/// The agent's session, as its holder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Holder {
    /// The session.
    pub session_id: SessionId,
    /// Its epoch.
    pub epoch: u64,
}

/// What an agent tells its runtime.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum FromAgent {
    /// The session is loaded, and nothing is done before `go`.
    Ready {
        /// Where the session stands.
        boundary: Boundary,
    },
    /// It stands at a step boundary and does nothing until `resume`.
    Quiesced {
        /// Where the session stands.
        boundary: Boundary,
        /// Whether it is frozen: written down, and only a holder's `resume` undoes it.
        frozen: bool,
    },
    /// A step is done and durable.
    Step {
        /// Steps since the session began.
        step: u64,
    },
    /// Nothing to do until somebody says something.
    Idle {
        /// Steps since the session began.
        step: u64,
    },
    /// The agent asks for a snapshot of itself.
    SnapshotRequested {
        /// The tool call that asks.
        call_id: String,
        /// Whether it wants to be moved: the call's reply waits for `snapshot_done`.
        #[serde(rename = "final")]
        is_final: bool,
    },
    /// How it is.
    Status(Status),
    /// A user's message is in the conversation.
    Heard {
        /// Messages in the conversation now.
        messages: u64,
    },
    /// What was sent to the model differs from what is stored.
    Note {
        /// Index of the message.
        message: u64,
        /// What was done in the copy.
        what: String,
    },
    /// The loop cannot go on by itself. It lives, can be quiesced, and tries again when somebody says
    /// something.
    Failed {
        /// Why.
        reason: String,
    },
    /// A line was not obeyed.
    Refused {
        /// The line's type, or `?`.
        request: String,
        /// Why.
        reason: String,
    },
    /// It ends, and never starts again with this session.
    Retired,
}

/// How an agent is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// What it does.
    pub activity: Activity,
    /// Steps since the session began.
    pub step: u64,
    /// The epoch it was told or started in.
    pub epoch: Option<u64>,
    /// The last durable boundary.
    pub boundary: Boundary,
    /// Why, where the activity has a reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// What an agent does at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Activity {
    /// Loaded, waiting for `go`.
    WaitingForGo,
    /// A model call is running.
    CallingModel,
    /// A tool is running.
    RunningTool,
    /// A model call failed and is tried again soon.
    Retrying,
    /// The budget does not buy the next call; it is tried again, ever more rarely.
    OutOfBudget,
    /// A final snapshot was asked for, and the answer is awaited.
    AwaitingSnapshot,
    /// Nothing to do.
    Idle,
    /// It cannot go on by itself.
    Stuck,
    /// Stopped at a boundary.
    Quiesced,
    /// Stopped at a boundary, and written down as frozen.
    Frozen,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_read_as_documented() {
        let session = SessionId::from_u128(1);
        let transfer = TransferId::from_u128(2);
        for (line, expected) in [
            (r#"{"type":"go","epoch":3}"#.to_owned(), ToAgent::Go { epoch: 3 }),
            (
                r#"{"type":"quiesce","within_ms":5}"#.to_owned(),
                ToAgent::Quiesce { within_ms: 5, freeze: None },
            ),
            (
                format!(
                    r#"{{"type":"quiesce","within_ms":5,"freeze":{{"session_id":"{session}","transfer_id":"{transfer}","epoch":1}}}}"#
                ),
                ToAgent::Quiesce {
                    within_ms: 5,
                    freeze: Some(Freeze { session_id: session, transfer_id: transfer, epoch: 1 }),
                },
            ),
            (r#"{"type":"resume"}"#.to_owned(), ToAgent::Resume { holder: None }),
            (r#"{"type":"status"}"#.to_owned(), ToAgent::Status),
            (r#"{"type":"say","text":"x"}"#.to_owned(), ToAgent::Say { text: "x".to_owned() }),
        ] {
            assert_eq!(serde_json::from_str::<ToAgent>(&line).expect("a line"), expected);
        }
        assert!(serde_json::from_str::<ToAgent>(r#"{"type":"go"}"#).is_err());
        assert!(serde_json::from_str::<ToAgent>(r#"{"type":"go","epoch":1,"force":true}"#).is_err());
    }

    #[test]
    fn answers_read_back() {
        let boundary = Boundary {
            step: 1,
            messages_bytes: 2,
            messages: 3,
            turn: handoff_protocol::document::TurnState::ModelNext,
        };
        let status = Status {
            activity: Activity::OutOfBudget,
            step: 1,
            epoch: Some(2),
            boundary: boundary.clone(),
            reason: None,
        };
        for told in [
            FromAgent::Quiesced { boundary, frozen: true },
            FromAgent::SnapshotRequested { call_id: "a".into(), is_final: true },
            FromAgent::Status(status),
            FromAgent::Retired,
        ] {
            let line = serde_json::to_string(&told).expect("plain data");
            assert_eq!(serde_json::from_str::<FromAgent>(&line).expect("the same shape"), told, "{line}");
        }
    }
}
