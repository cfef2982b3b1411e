//! Messages as they are written: raw JSON on one line. What the loop itself says is built here; what a model
//! or a snapshot said is never parsed and printed again.

use serde::{Deserialize, Serialize};

use handoff_protocol::scan;

/// The result of a call that was broken off: by a crash, by a bounded wait, or by a move.
pub const INTERRUPTED: &str = "interrupted, outcome unknown";

/// A call that an assistant message asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolCall {
    /// The id as the message writes it: a JSON string with its quotes, possibly empty.
    pub id: String,
    /// The tool.
    pub name: String,
    /// The arguments' text. A model may write anything.
    pub arguments: String,
}

impl ToolCall {
    /// The id as text.
    pub fn id_text(&self) -> String {
        scan::string(&self.id).unwrap_or_default()
    }
}

/// Who says a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Role {
    Assistant,
    Tool,
    User,
    /// `system`, `developer`, and whatever a provider has beyond.
    Other,
}

/// Who says this message. `None` if the text is no object with a role.
pub(crate) fn role(message: &str) -> Option<Role> {
    Some(match scan::string(scan::member(message, "role")?)?.as_str() {
        "assistant" => Role::Assistant,
        "tool" => Role::Tool,
        "user" => Role::User,
        _ => Role::Other,
    })
}

/// The calls that an assistant message asks for.
pub(crate) fn calls(message: &str) -> Vec<ToolCall> {
    let calls = scan::member(message, "tool_calls").and_then(scan::elements).unwrap_or_default();
    calls.into_iter().map(call).collect()
}

fn call(text: &str) -> ToolCall {
    let function = scan::member(text, "function").unwrap_or("{}");
    let field = |name| scan::member(function, name).and_then(scan::string).unwrap_or_default();
    let id = scan::member(text, "id").filter(|id| id.starts_with('"')).unwrap_or("\"\"");
    ToolCall { id: id.to_owned(), name: field("name"), arguments: field("arguments") }
}

/// The id that a tool message answers, as it is written.
pub(crate) fn answered_id(message: &str) -> &str {
    scan::member(message, "tool_call_id").unwrap_or("\"\"")
}

/// A tool message that answers a call.
pub(crate) fn tool_result(call: &ToolCall, text: &str) -> String {
    format!(r#"{{"role":"tool","tool_call_id":{},"content":{}}}"#, call.id, quoted(text))
}

/// A user message.
pub(crate) fn user(text: &str) -> String {
    format!(r#"{{"role":"user","content":{}}}"#, quoted(text))
}

/// The text as a JSON string.
pub(crate) fn quoted(text: &str) -> String {
    serde_json::to_string(text).expect("a string is JSON")
}

/// Which calls wait for an answer, followed message by message.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct OpenCalls {
    pub(crate) open: Vec<ToolCall>,
    /// The role of the last message.
    pub(crate) last: Option<Role>,
    /// Assistant messages so far.
    pub(crate) answers: u64,
}

impl OpenCalls {
    /// Takes in the next message. False if it is no message.
    pub(crate) fn follow(&mut self, message: &str) -> bool {
        let Some(role) = role(message) else { return false };
        match role {
            Role::Assistant => {
                self.open = calls(message);
                self.answers += 1;
            }
            Role::Tool => {
                let id = scan::string(answered_id(message)).unwrap_or_default();
                if let Some(at) = self.open.iter().position(|call| call.id_text() == id) {
                    self.open.remove(at);
                }
            }
            // Somebody went on without the results; they will not come any more.
            Role::User | Role::Other => self.open.clear(),
        }
        self.last = Some(role);
        true
    }

    /// Whether the next thing to do is a model call, once no call is open.
    pub(crate) fn model_next(&self) -> bool {
        matches!(self.last, Some(Role::User | Role::Tool))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ASKED: &str = r#"{"role":"assistant","content":null,"tool_calls":[
        {"id":"a","type":"function","function":{"name":"t","arguments":"{\"x\":\"\\ud83d\"}"}},
        {"id":"\u0061b","function":{"name":"u","arguments":"{"}}]}"#;

    #[test]
    fn calls_are_read_and_answered_by_their_own_bytes() {
        let calls = calls(ASKED);
        assert_eq!((calls[0].name.as_str(), calls[0].arguments.as_str()), ("t", r#"{"x":"\ud83d"}"#));
        assert_eq!(calls[1].id, r#""\u0061b""#);
        let answer = tool_result(&calls[1], "a\0\"");
        assert_eq!(answer, r#"{"role":"tool","tool_call_id":"\u0061b","content":"a\u0000\""}"#);
    }

    #[test]
    fn open_calls_close_one_by_one() {
        let mut open = OpenCalls::default();
        assert!(open.follow(&user("hi")) && open.model_next());
        assert!(open.follow(ASKED));
        assert_eq!((open.open.len(), open.answers, open.model_next()), (2, 1, false));
        assert!(open.follow(r#"{"role":"tool","tool_call_id":"ab","content":""}"#));
        assert_eq!(open.open[0].name, "t");
        assert!(open.follow(r#"{"role":"tool","tool_call_id":"a","content":""}"#));
        assert!(open.open.is_empty() && open.model_next());
        assert!(!open.follow("[]") && !open.follow("{}"));
    }
}
