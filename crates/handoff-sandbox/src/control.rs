//! What node and init say to each other over `init.sock`: JSON objects, one per line, both ways.
//!
//! The init sends a [`Status`] as soon as a connection is accepted (a restarted node learns at once what it
//! adopts) and answers every command but `kill` with exactly one [`Status`] whose `cause` is
//! [`Cause::Command`], in the order of the commands. `kill` is answered by the end of the connection. Lines
//! of the agent and the word of its exit come in between. A new connection replaces the old one.

use handoff_protocol::IncarnationId;
use serde::{Deserialize, Serialize};

use crate::lease::{Declined, Grant, Reasons};

/// The socket's name in the destination's directory. Only the host sees it; without namespaces the payload does
/// too, and is not listened to.
pub const SOCKET: &str = "init.sock";

/// Bytes of one line, either way, without its line end.
pub const LINE_BYTES: usize = 1 << 20;

/// What the node says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum ToInit {
    /// The right to run, the first one or a longer one.
    Lease(Grant),
    /// Hold everything still, whatever the lease says.
    Freeze,
    /// Take that `freeze` back. The lease's own reason stays.
    Thaw,
    /// End everything inside, and the init with it.
    Kill,
    /// Say how things stand.
    Status,
    /// Pass a line to the agent. A `go` passes under an unexpired lease only.
    Agent {
        /// One JSON object in one line, without its line end.
        line: String,
    },
}

/// What the init says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum FromInit {
    /// How things stand.
    Status(Status),
    /// A line of the agent, which is as hostile as anything else from inside.
    Agent {
        /// The line, without its line end.
        line: String,
    },
    /// The agent ended, and everything it left behind with it. The init stays until `kill`.
    Exited {
        /// Its exit code, or 128 + the signal that ended it.
        code: i32,
    },
}

/// Why a status was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// The connection was accepted.
    Connected,
    /// It answers a command.
    Command,
    /// The lease ran out, and the payload was frozen.
    Lease,
}

/// Where the agent is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum AgentState {
    /// It runs, or stands still.
    Running,
    /// It ended.
    Exited {
        /// Its exit code, or 128 + the signal that ended it.
        code: i32,
    },
}

/// Why a command was not followed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(tag = "reason", rename_all = "snake_case")]
pub enum Refused {
    /// The lease was not taken.
    #[error("{declined}")]
    Lease {
        /// Why not.
        declined: Declined,
    },
    /// `go` without an unexpired lease.
    #[error("go needs a lease that has not run out")]
    NoLease,
    /// The agent has ended.
    #[error("the agent has ended")]
    AgentExited,
    /// The agent does not read what it was sent before.
    #[error("the agent does not read its lines")]
    AgentBusy,
    /// The line is no command, or no single line.
    #[error("not understood: {what}")]
    NotUnderstood {
        /// What is wrong with it.
        what: String,
    },
    /// The kernel did not hold the payload still, or did not let it go on, in time. It is tried again.
    #[error("the payload did not follow: {what}")]
    NotFollowed {
        /// What the kernel said.
        what: String,
    },
}

/// How things stand in the sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// Why this is said.
    pub cause: Cause,
    /// Which start this is.
    pub incarnation: IncarnationId,
    /// The boot that the times count from.
    pub boot_id: String,
    /// CLOCK_BOOTTIME at the time of saying, in milliseconds.
    pub now_ms: u64,
    /// Where the agent is.
    pub agent: AgentState,
    /// The lease that is held, expired or not.
    pub lease: Option<Grant>,
    /// When the lease freezes the payload, on the same clock.
    pub frozen_at_ms: Option<u64>,
    /// Whether the kernel says that everything inside stands still.
    pub frozen: bool,
    /// Why it should.
    pub reasons: Reasons,
    /// Lines of the agent that were thrown away: too long, or not UTF-8 text.
    pub lines_dropped: u64,
    /// Why the command that this answers was not followed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<Refused>,
}

/// Whether a line would make the agent go: an object that has a field `go`, or any field whose value is the
/// word `go`. A line that is no object counts as one: what cannot be read is not let through unleased.
pub(crate) fn is_go(line: &str) -> bool {
    let Ok(object) = serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(line) else {
        return true;
    };
    object.iter().any(|(key, value)| key == "go" || value == "go")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wire(message: &ToInit) -> String {
        serde_json::to_string(message).expect("plain data")
    }

    #[test]
    fn commands_have_this_shape_on_the_wire() {
        let lease = Grant { first_sent_ms: 5, boot_id: "b".into(), lease_ms: 30_000 };
        let text = r#"{"type":"lease","first_sent_ms":5,"boot_id":"b","lease_ms":30000}"#;
        let lease = ToInit::Lease(lease);
        assert_eq!(wire(&lease), text);
        assert_eq!(wire(&ToInit::Freeze), r#"{"type":"freeze"}"#);
        let agent = ToInit::Agent { line: r#"{"type":"go","epoch":3}"#.into() };
        assert_eq!(wire(&agent), r#"{"type":"agent","line":"{\"type\":\"go\",\"epoch\":3}"}"#);
        for command in [lease, ToInit::Thaw, ToInit::Kill, ToInit::Status, agent] {
            assert_eq!(serde_json::from_str::<ToInit>(&wire(&command)).expect("same shape"), command);
        }
        for other in [r#"{"type":"agent","line":"","x":1}"#, r#"{"type":"melt"}"#, "{}"] {
            assert!(serde_json::from_str::<ToInit>(other).is_err(), "{other}");
        }
    }

    #[test]
    fn a_go_is_known_however_it_is_tagged() {
        for go in
            [r#"{"type":"go","epoch":1}"#, r#"{"go":{"epoch":1}}"#, r#"{"do":"go"}"#, r#""go""#, "go", ""]
        {
            assert!(is_go(go), "{go}");
        }
        for other in [r#"{"type":"status"}"#, r#"{"type":"say","text":"let it go"}"#, "{}"] {
            assert!(!is_go(other), "{other}");
        }
    }

    #[test]
    fn statuses_read_back() {
        let status = Status {
            cause: Cause::Command,
            incarnation: IncarnationId::from_u128(7),
            boot_id: "b".into(),
            now_ms: 9,
            agent: AgentState::Exited { code: 137 },
            lease: Some(Grant { first_sent_ms: 5, boot_id: "b".into(), lease_ms: 30_000 }),
            frozen_at_ms: Some(20_005),
            frozen: true,
            reasons: Reasons { lease: false, command: true },
            lines_dropped: 1,
            refused: Some(Refused::Lease { declined: Declined::NotYetSent { first_sent_ms: 10, now_ms: 9 } }),
        };
        for message in [FromInit::Status(status), FromInit::Exited { code: -1 }] {
            let text = serde_json::to_string(&message).expect("plain data");
            assert_eq!(serde_json::from_str::<FromInit>(&text).expect("same shape"), message);
        }
    }
}
