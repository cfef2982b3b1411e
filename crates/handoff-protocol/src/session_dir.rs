//! The files of the native loop's session directory: written by the agent, read by whoever captures it.
//!
//! Everything is append-only or replaced by rename, so a reader sees a whole file or the one before it. A
//! reader outside the sandbox treats the directory as hostile: it opens beneath it and follows no link.

use serde::{Deserialize, Serialize};

use crate::{SessionId, TransferId};

/// The system prompt: one JSON text.
pub const SYSTEM_PROMPT: &str = "system_prompt.json";
/// The conversation: one JSON object per line, appended and synced after every step.
pub const MESSAGES: &str = "messages.jsonl";
/// The tools' state: one JSON text.
pub const TOOL_STATE: &str = "tool_state.json";
/// Tool servers and references: a JSON array of [`crate::document::McpServer`].
pub const MCP_CONFIG: &str = "mcp_config.json";
/// A [`crate::document::SessionDocument`] as it was at the last restore, or at the start.
pub const SESSION: &str = "session.json";
/// The last [`Boundary`].
pub const BOUNDARY: &str = "boundary.json";
/// The source's [`Standing`].
pub const STANDING: &str = "standing.json";

/// A step boundary: everything up to here is consistent, and the next model call has not been sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Boundary {
    /// Steps done since the session began.
    pub step: u64,
    /// Bytes of [`MESSAGES`] that belong to it.
    pub messages_bytes: u64,
    /// Lines of [`MESSAGES`] that belong to it.
    pub messages: u64,
    /// Where in a turn it is.
    pub turn: crate::document::TurnState,
}

/// Whether a source may run. Durable before anything relies on it; a source that starts reads it first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "standing", rename_all = "snake_case")]
pub enum Standing {
    /// It holds the session in this epoch, as far as it knows.
    Holder {
        /// The session. It is named when it begins, not when it is staged: whoever moves it, and however many at
        /// once, names the same one, and the control plane lets one of them.
        session_id: SessionId,
        /// The epoch, 1 before staging.
        epoch: u64,
    },
    /// It stopped at a boundary for this transfer and may not go on, except by a confirmed draft refresh or a
    /// return.
    Frozen {
        /// The session.
        session_id: SessionId,
        /// The transfer that it was quiesced for.
        transfer_id: TransferId,
        /// The epoch it was frozen in.
        epoch: u64,
    },
    /// The session runs elsewhere. Files stay; the loop never starts here again.
    Retired {
        /// The session.
        session_id: SessionId,
        /// The transfer that took it.
        transfer_id: TransferId,
    },
}
