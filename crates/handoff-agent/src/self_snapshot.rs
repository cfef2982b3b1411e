//! The tool `snapshot_self`: an agent asks its runtime for a snapshot of itself. It asks for nothing more;
//! whether the session moves is decided by whoever drives the transfer.

use serde::Deserialize;

use crate::message::ToolCall;

/// The tool's name.
pub(crate) const NAME: &str = "snapshot_self";
/// The reply to a draft.
pub(crate) const DRAFT: &str = r#"{"snapshot":"draft","requested":true}"#;
/// The reply to a final one, in the session that was resumed from it.
pub(crate) const IN_THE_COPY: &str = r#"{"snapshot":"final","resumed":true}"#;
/// The reply to a final one that no runtime heard.
pub(crate) const NOBODY: &str = r#"{"snapshot":"final","requested":false,"reason":"no runtime is attached"}"#;

/// What a call asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Request {
    Draft,
    Final,
    /// The arguments are not the tool's.
    Malformed(String),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    #[serde(default, rename = "final")]
    is_final: bool,
}

/// What the call asks for; `None` if it is a call of another tool.
pub(crate) fn request(call: &ToolCall) -> Option<Request> {
    if call.name != NAME {
        return None;
    }
    let text = if call.arguments.trim().is_empty() { "{}" } else { &call.arguments };
    Some(match serde_json::from_str(text) {
        Ok(Arguments { is_final: true }) => Request::Final,
        Ok(Arguments { is_final: false }) => Request::Draft,
        Err(error) => Request::Malformed(format!("error: the arguments are not valid: {error}")),
    })
}

/// Whether the call asks for a final snapshot.
pub(crate) fn is_final(call: &ToolCall) -> bool {
    request(call) == Some(Request::Final)
}
