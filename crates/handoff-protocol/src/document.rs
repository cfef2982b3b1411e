//! What a snapshot says: the minimal input that anybody can give, and the `session` part that every sealed
//! snapshot carries.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::reference::CredentialRef;
use crate::{Digest, NanoUsd, SessionId};

/// The minimal input. It is always enough: everything else is an addition to it.
///
/// JSON texts are kept as they were received and never printed again, so NUL, lone surrogates, numbers of
/// any size and key order survive.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SnapshotInput {
    /// Where the loop runs now, for people.
    pub source_host: String,
    /// The system prompt: a JSON string, or the provider's blocks.
    #[serde(default)]
    pub system_prompt: Option<Box<RawValue>>,
    /// The conversation: objects with at least `role` and `content`; unknown fields are carried unchanged.
    pub message_history: Vec<Box<RawValue>>,
    /// The tools' state, any JSON.
    #[serde(default)]
    pub tool_state: Option<Box<RawValue>>,
    /// Tool servers, by reference to their credentials.
    #[serde(default)]
    pub mcp_config: Vec<McpServer>,
}

/// A tool server as a session knows it. There is no field for a secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct McpServer {
    /// The session's name for it.
    pub server: String,
    /// Where its credential can be found, if it needs one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cred_ref: Option<CredentialRef>,
    /// The command that starts it, for a server over standard input and output.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// Its address, for a server over HTTP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Whether the session can go on without it.
    #[serde(default)]
    pub optional: bool,
}

/// The `session` part: what a destination must know before it reads anything else.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SessionDocument {
    /// Where it comes from.
    pub lineage: Lineage,
    /// The loop that made it.
    pub agent: AgentInfo,
    /// What it had spent so far, for people; the ledger is the control plane's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spent_usd: Option<NanoUsd>,
    /// The host it was taken on.
    pub environment: Environment,
    /// Where in a turn it was taken.
    pub turn: TurnState,
    /// The model it talks to, if it is the loop's to say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelInfo>,
    /// What was left out, redacted or degraded, and why.
    #[serde(default)]
    pub report: Vec<ReportEntry>,
}

/// Where a snapshot comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Lineage {
    /// The session, where it was known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<SessionId>,
    /// The session's epoch when it was taken, where it was known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u64>,
    /// The snapshot that the loop resumed from, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<Digest>,
    /// The host it was taken on, for people.
    pub source_host: String,
}

/// The loop that made a snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AgentInfo {
    /// `handoff` for the native loop, `caller` for a minimal input.
    pub kind: String,
    /// Its version.
    pub version: String,
}

/// The host that a snapshot was taken on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Environment {
    /// Such as `linux`.
    pub os: String,
    /// Such as `x86_64`.
    pub arch: String,
    /// The workspace's path on the source; at a destination it is metadata only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<String>,
}

/// Where in a turn a snapshot was taken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "at", rename_all = "snake_case", deny_unknown_fields)]
pub enum TurnState {
    /// Nothing to do until somebody says something.
    Idle,
    /// The next step is a model call.
    ModelNext,
    /// Tool calls were asked for and have no result yet. A destination closes them as interrupted.
    ToolsOpen {
        /// The ids of the calls.
        calls: Vec<String>,
    },
}

/// The model that a loop talks to, by name and reference.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ModelInfo {
    /// The provider's name for the model.
    pub name: String,
    /// The wire format, such as `openai-chat`.
    pub wire: String,
    /// The upstream that the destination's operator maps to an address.
    pub upstream: String,
    /// The credential it needs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cred_ref: Option<CredentialRef>,
    /// The most tokens of one answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u64>,
}

/// One thing that does not survive as it was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReportEntry {
    /// What happened to it.
    pub what: ReportKind,
    /// Where: a path in the workspace, or a part and a place in it.
    pub at: String,
    /// Why.
    pub why: String,
}

/// What can happen to something that does not survive as it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReportKind {
    /// It stays behind.
    Excluded,
    /// It travels with something taken out.
    Redacted,
    /// It travels, and will not be quite the same.
    Degraded,
}

/// Free-form facts, for places that only pass them on.
pub type Facts = BTreeMap<String, String>;

#[cfg(test)]
mod tests {
    use super::*;

    /// H-31
    #[test]
    fn the_minimal_input_keeps_every_byte() {
        let text = r#"{"source_host":"laptop","system_prompt":"\ud83d","message_history":[{"role":"user","content":"a\u0000b","x":-0}],"tool_state":{"n":117.63331139400017,"big":18446744073709551616,"e":1e400,"b":1,"a":2},"mcp_config":[{"server":"files","cred_ref":"env://local/FILES_KEY"}]}"#;
        let input: SnapshotInput = serde_json::from_str(text).expect("the minimal input");
        assert_eq!(input.message_history[0].get(), r#"{"role":"user","content":"a\u0000b","x":-0}"#);
        let state = input.tool_state.expect("given");
        assert_eq!(
            state.get(),
            r#"{"n":117.63331139400017,"big":18446744073709551616,"e":1e400,"b":1,"a":2}"#
        );
        assert_eq!(input.system_prompt.expect("given").get(), r#""\ud83d""#);
    }

    /// H-35
    #[test]
    fn there_is_no_field_for_a_secret() {
        for server in [
            r#"{"server":"x","cred_ref":"sk-live-1"}"#,
            r#"{"server":"x","api_key":"1"}"#,
            r#"{"server":"x","env":{}}"#,
        ] {
            assert!(serde_json::from_str::<McpServer>(server).is_err(), "{server}");
        }
    }
}
