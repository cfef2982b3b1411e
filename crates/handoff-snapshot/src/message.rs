//! What a message must be, and where in a turn a conversation stands.
//!
//! Only the outermost shape is asked for: an object with a `role`, and, of a caller, `content` that is a string
//! or blocks and tool calls that can be told apart.
//! Tool calls and results are recognized in the two forms that providers use: `tool_calls` with
//! `tool_call_id` (OpenAI, Chat Completions reference), and content blocks `tool_use` with `tool_result`
//! (Anthropic, Messages reference). Everything else is carried and not looked at.

use handoff_protocol::document::TurnState;

use crate::shallow::{self, Kind};

const ROLE_BYTES: usize = 64;

/// What is known of a message without decoding it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Facts {
    pub(crate) role: String,
    /// The ids of the tool calls that it makes.
    pub(crate) calls: Vec<String>,
    /// The ids of the tool calls that it answers.
    pub(crate) results: Vec<String>,
}

/// What is wrong with a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault {
    /// The path within the message.
    pub(crate) path: String,
    pub(crate) why: &'static str,
}

fn fault<T>(path: impl Into<String>, why: &'static str) -> Result<T, Fault> {
    Err(Fault { path: path.into(), why })
}

/// Reads the role of a message that has passed `json::check`. This much is asked of a message that a loop has
/// lived with already: whatever else is odd about it, the loop mends in what it sends.
pub(crate) fn role(text: &[u8]) -> Result<String, Fault> {
    if shallow::kind(text) != Kind::Object {
        return fault("", "a message is an object");
    }
    match shallow::member(text, "role").map(shallow::string) {
        Some(Some(role)) if !role.is_empty() && role.len() <= ROLE_BYTES => Ok(role),
        Some(_) => fault(".role", "a role is a string of 1 to 64 bytes"),
        None => fault(".role", "a message has a role"),
    }
}

/// Reads a message that has passed `json::check` and comes from a caller, who can still be told.
pub(crate) fn read(text: &[u8]) -> Result<Facts, Fault> {
    let role = role(text)?;
    let mut facts = Facts { role, calls: Vec::new(), results: Vec::new() };
    let calls = shallow::member(text, "tool_calls").filter(|calls| shallow::kind(calls) != Kind::Null);
    if let Some(calls) = calls {
        read_tool_calls(calls, &mut facts)?;
    }
    if let Some(id) = shallow::member(text, "tool_call_id") {
        facts.results.push(read_id(id, ".tool_call_id")?);
    }
    read_content(text, calls.is_some(), &mut facts)?;
    Ok(facts)
}

fn read_tool_calls(calls: &[u8], facts: &mut Facts) -> Result<(), Fault> {
    if shallow::kind(calls) != Kind::Array {
        return fault(".tool_calls", "tool calls are an array");
    }
    for (index, call) in shallow::elements(calls).enumerate() {
        let path = format!(".tool_calls[{index}].id");
        match shallow::member(call, "id") {
            Some(id) => add_call(read_id(id, &path)?, path, facts)?,
            None => return fault(path, "a tool call has an id"),
        }
    }
    Ok(())
}

fn read_content(text: &[u8], has_calls: bool, facts: &mut Facts) -> Result<(), Fault> {
    let Some(content) = shallow::member(text, "content") else {
        return if has_calls { Ok(()) } else { fault(".content", "a message has content") };
    };
    match shallow::kind(content) {
        Kind::String => Ok(()),
        // Providers write null beside tool calls and beside a refusal.
        Kind::Null if has_calls || facts.role == "assistant" => Ok(()),
        Kind::Array => shallow::elements(content)
            .enumerate()
            .try_for_each(|(index, block)| read_block(index, block, facts)),
        Kind::Object | Kind::Null | Kind::Other => {
            fault(".content", "content is a string or an array of blocks")
        }
    }
}

fn read_block(index: usize, block: &[u8], facts: &mut Facts) -> Result<(), Fault> {
    let path = |field: &str| format!(".content[{index}]{field}");
    if shallow::kind(block) != Kind::Object {
        return fault(path(""), "a content block is an object");
    }
    match shallow::member(block, "type").and_then(shallow::string).as_deref() {
        Some("tool_use") => match shallow::member(block, "id") {
            Some(id) => add_call(read_id(id, &path(".id"))?, path(".id"), facts),
            None => fault(path(".id"), "a tool call has an id"),
        },
        Some("tool_result") => match shallow::member(block, "tool_use_id") {
            Some(id) => {
                facts.results.push(read_id(id, &path(".tool_use_id"))?);
                Ok(())
            }
            None => fault(path(".tool_use_id"), "a tool result names its call"),
        },
        Some(_) | None => Ok(()),
    }
}

fn add_call(id: String, path: String, facts: &mut Facts) -> Result<(), Fault> {
    if facts.calls.contains(&id) {
        return fault(path, "two tool calls of one message have the same id");
    }
    facts.calls.push(id);
    Ok(())
}

fn read_id(id: &[u8], path: &str) -> Result<String, Fault> {
    match shallow::string(id) {
        Some(id) if !id.is_empty() => Ok(id),
        Some(_) => fault(path, "the id of a tool call is empty"),
        None => fault(path, "the id of a tool call is not a string"),
    }
}

/// Follows a conversation and knows whose turn it is.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    open: Vec<String>,
    model_next: bool,
}

impl Turn {
    pub(crate) fn see(&mut self, facts: &Facts) {
        match facts.role.as_str() {
            "assistant" | "model" => {
                self.open.clone_from(&facts.calls);
                self.model_next = false;
            }
            // Instructions ask for nothing by themselves.
            "system" | "developer" => {}
            _ => {
                self.open.retain(|call| !facts.results.contains(call));
                self.model_next = true;
            }
        }
    }

    pub(crate) fn state(self) -> TurnState {
        match (self.open.is_empty(), self.model_next) {
            (false, _) => TurnState::ToolsOpen { calls: self.open },
            (true, true) => TurnState::ModelNext,
            (true, false) => TurnState::Idle,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(messages: &[&str]) -> TurnState {
        let mut turn = Turn::default();
        for message in messages {
            turn.see(&read(message.as_bytes()).expect("a message"));
        }
        turn.state()
    }

    #[test]
    fn the_shapes_of_providers_are_taken() {
        for text in [
            r#"{"role":"user","content":""}"#,
            r#"{"role":"user","content":[]}"#,
            r#"{"content":[{"type":"text","text":"\ud83d"}],"role":"user","\ud83d":1}"#,
            r#"{"role":"assistant","content":null,"refusal":"no"}"#,
            r#"{"role":"assistant","tool_calls":[{"id":"a","type":"function"}]}"#,
            r#"{"role":"assistant","content":"x","tool_calls":null}"#,
            r#"{"role":"assistant","content":[{"type":"thinking","thinking":"abc","signature":"s","z":{}}]}"#,
            r#"{"role":"tool","tool_call_id":"a","content":"{}"}"#,
        ] {
            assert!(read(text.as_bytes()).is_ok(), "{text}");
        }
    }

    #[test]
    fn what_is_no_message_is_refused_with_its_path() {
        for (text, path) in [
            ("[]", ""),
            (r#"{"content":"x"}"#, ".role"),
            (r#"{"role":7,"content":"x"}"#, ".role"),
            (r#"{"role":"\ud83d","content":"x"}"#, ".role"),
            (r#"{"role":"user"}"#, ".content"),
            (r#"{"role":"user","content":null}"#, ".content"),
            (r#"{"role":"user","content":7}"#, ".content"),
            (r#"{"role":"user","content":["x"]}"#, ".content[0]"),
            (r#"{"role":"user","content":[{"type":"tool_result"}]}"#, ".content[0].tool_use_id"),
            (r#"{"role":"assistant","tool_calls":{}}"#, ".tool_calls"),
            (r#"{"role":"assistant","tool_calls":[{"id":"a"},{}]}"#, ".tool_calls[1].id"),
        ] {
            assert_eq!(read(text.as_bytes()).expect_err(text).path, path, "{text}");
        }
    }

    #[test]
    fn case_s04_empty_and_repeated_call_ids_are_named() {
        for (text, path) in [
            (r#"{"role":"assistant","tool_calls":[{"id":""},{"id":""}]}"#, ".tool_calls[0].id"),
            (r#"{"role":"assistant","tool_calls":[{"id":"a"},{"id":"a"}]}"#, ".tool_calls[1].id"),
            (r#"{"role":"assistant","content":[{"type":"tool_use","id":""}]}"#, ".content[0].id"),
            (r#"{"role":"tool","tool_call_id":"","content":"x"}"#, ".tool_call_id"),
        ] {
            assert_eq!(read(text.as_bytes()).expect_err(text).path, path, "{text}");
        }
    }

    #[test]
    fn case_s03_open_calls_are_known_in_both_forms() {
        let ask = r#"{"role":"assistant","content":null,"tool_calls":[{"id":"a"},{"id":"b"}]}"#;
        let answer = r#"{"role":"tool","tool_call_id":"a","content":"1"}"#;
        assert_eq!(turn(&[ask, answer]), TurnState::ToolsOpen { calls: vec!["b".to_owned()] });
        let ask = r#"{"role":"assistant","content":[{"type":"tool_use","id":"a"}]}"#;
        let answer = r#"{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":""}]}"#;
        assert_eq!(turn(&[ask]), TurnState::ToolsOpen { calls: vec!["a".to_owned()] });
        assert_eq!(turn(&[ask, answer]), TurnState::ModelNext);
    }

    #[test]
    fn whose_turn_it_is() {
        let (user, model) = (r#"{"role":"user","content":"x"}"#, r#"{"role":"assistant","content":"y"}"#);
        let system = r#"{"role":"system","content":"z"}"#;
        assert_eq!(turn(&[]), TurnState::Idle);
        assert_eq!(turn(&[system]), TurnState::Idle);
        assert_eq!(turn(&[system, user]), TurnState::ModelNext);
        assert_eq!(turn(&[user, model]), TurnState::Idle, "case S-10: the agent waits for input");
    }
}
