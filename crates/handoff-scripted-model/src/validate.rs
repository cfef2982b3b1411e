//! Judges a request as strictly as the strictest compatible provider: what passes here passes elsewhere.

use std::collections::BTreeSet;

use serde_json::value::RawValue;

use crate::request::{ChatRequest, Message, OfferedTool, Part};

/// Why a request is refused: a sentence and the parameter it is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Invalid {
    pub(crate) message: String,
    pub(crate) param: Option<String>,
}

/// What the script needs to know about a valid request.
#[derive(Debug)]
pub(crate) struct Conversation {
    /// Assistant messages: the number of the step that answers.
    pub(crate) answered: u64,
    /// Names of the tools that are offered.
    pub(crate) tools: BTreeSet<String>,
    /// Bytes that count as input.
    pub(crate) input_bytes: u64,
}

fn invalid(param: impl Into<String>, message: impl Into<String>) -> Invalid {
    Invalid { message: message.into(), param: Some(param.into()) }
}

/// Judges a parsed request.
pub(crate) fn judge(request: &ChatRequest<'_>) -> Result<Conversation, Invalid> {
    if request.messages.is_empty() {
        return Err(invalid("messages", "there must be at least one message"));
    }
    if request.stream_options.is_some() && request.stream != Some(true) {
        return Err(invalid("stream_options", "stream_options is allowed only with stream: true"));
    }
    if request.max_tokens.or(request.max_completion_tokens) == Some(0) {
        return Err(invalid("max_tokens", "the limit of output tokens must be at least 1"));
    }
    let mut calls = Calls::default();
    let mut answered = 0;
    for (index, raw) in request.messages.iter().enumerate() {
        let at = format!("messages.[{index}]");
        let message: Message<'_> = serde_json::from_str(raw.get())
            .map_err(|error| invalid(&at, format!("not a message: {error}")))?;
        check_content(&message, &at)?;
        calls.follow(&message, &at)?;
        answered += u64::from(message.role == "assistant");
    }
    calls.all_answered("messages")?;
    let tools = offered(request)?;
    let raws = request.messages.iter().chain(request.tools.iter().flatten());
    let input_bytes = raws.map(|raw| raw.get().len() as u64).sum();
    Ok(Conversation { answered, tools, input_bytes })
}

fn offered(request: &ChatRequest<'_>) -> Result<BTreeSet<String>, Invalid> {
    let mut names = BTreeSet::new();
    for (index, raw) in request.tools.iter().flatten().enumerate() {
        let at = format!("tools.[{index}]");
        let tool: OfferedTool<'_> =
            serde_json::from_str(raw.get()).map_err(|error| invalid(&at, format!("not a tool: {error}")))?;
        if tool.kind != "function" {
            return Err(invalid(at, "a tool's type must be 'function'"));
        }
        if !is_name(&tool.function.name) {
            return Err(invalid(at, "a function's name has 1 to 64 characters of a-z A-Z 0-9 _ -"));
        }
        if tool.function.parameters.is_some_and(|schema| !schema.get().starts_with('{')) {
            return Err(invalid(at, "a function's parameters must be a JSON Schema object"));
        }
        if !names.insert(tool.function.name.into_owned()) {
            return Err(invalid(at, "two tools have the same name"));
        }
    }
    Ok(names)
}

fn is_name(name: &str) -> bool {
    (1..=64).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-')
}

fn check_content(message: &Message<'_>, at: &str) -> Result<(), Invalid> {
    let parts: &[&str] = match &*message.role {
        "system" | "developer" | "tool" => &["text"],
        "user" => &["text", "image_url", "input_audio", "file"],
        "assistant" => &["text", "refusal"],
        other => return Err(invalid(format!("{at}.role"), format!("'{other}' is not a role"))),
    };
    let at = format!("{at}.content");
    match message.content {
        Some(content) => check_given(content, parts, &at),
        None if message.role == "assistant"
            && (message.tool_calls.is_some() || message.refusal.is_some()) =>
        {
            Ok(())
        }
        None => Err(invalid(at, format!("a message of role '{}' needs content", message.role))),
    }
}

fn check_given(content: &RawValue, allowed: &[&str], at: &str) -> Result<(), Invalid> {
    let text = content.get();
    if text.starts_with('"') {
        return serde_json::from_str::<String>(text)
            .map(drop)
            .map_err(|error| invalid(at, error.to_string()));
    }
    if !text.starts_with('[') {
        return Err(invalid(at, "content must be a string or an array of parts"));
    }
    let parts: Vec<Part<'_>> =
        serde_json::from_str(text).map_err(|error| invalid(at, format!("not content parts: {error}")))?;
    if parts.is_empty() {
        return Err(invalid(at, "an array of content parts must not be empty"));
    }
    for part in parts {
        if !allowed.contains(&&*part.kind) {
            return Err(invalid(at, format!("a part of type '{}' does not belong here", part.kind)));
        }
        if part.kind == "text" && part.text.as_deref().unwrap_or_default().is_empty() {
            return Err(invalid(at, "a text part must not be empty"));
        }
    }
    Ok(())
}

/// The calls that wait for their results, and every id seen so far.
#[derive(Default)]
struct Calls {
    open: BTreeSet<String>,
    seen: BTreeSet<String>,
}

impl Calls {
    fn follow(&mut self, message: &Message<'_>, at: &str) -> Result<(), Invalid> {
        if message.role == "tool" {
            return self.result(message, at);
        }
        self.all_answered(at)?;
        if message.tool_call_id.is_some() {
            return Err(invalid(format!("{at}.tool_call_id"), "only a tool message has a tool_call_id"));
        }
        match (&*message.role, &message.tool_calls) {
            ("assistant", Some(_)) => self.opened(message, at),
            (_, None) => Ok(()),
            (_, Some(_)) => {
                Err(invalid(format!("{at}.tool_calls"), "only an assistant message has tool_calls"))
            }
        }
    }

    fn opened(&mut self, message: &Message<'_>, at: &str) -> Result<(), Invalid> {
        let at = format!("{at}.tool_calls");
        let calls = message.tool_calls.iter().flatten();
        if calls.clone().next().is_none() {
            return Err(invalid(at, "an empty array of tool_calls is too short"));
        }
        for call in calls {
            if call.kind != "function" || !is_name(&call.function.name) {
                return Err(invalid(at, "a tool call names a function"));
            }
            if call.id.is_empty() || !self.seen.insert(call.id.to_string()) {
                return Err(invalid(at, format!("the tool call id '{}' is empty or stands twice", call.id)));
            }
            self.open.insert(call.id.to_string());
        }
        Ok(())
    }

    fn result(&mut self, message: &Message<'_>, at: &str) -> Result<(), Invalid> {
        let id = message.tool_call_id.as_deref().unwrap_or_default();
        if self.open.remove(id) {
            return Ok(());
        }
        let why = format!("a tool message must answer an open tool call exactly once; '{id}' is not open");
        Err(invalid(format!("{at}.tool_call_id"), why))
    }

    fn all_answered(&self, at: &str) -> Result<(), Invalid> {
        if self.open.is_empty() {
            return Ok(());
        }
        let open = self.open.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
        Err(invalid(at, format!("every tool call must be answered by a tool message before this: {open}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(messages: &str) -> Result<u64, String> {
        let body = format!(r#"{{"model":"scripted","messages":{messages}}}"#);
        let request: ChatRequest<'_> = serde_json::from_str(&body).expect("a body");
        judge(&request).map(|seen| seen.answered).map_err(|invalid| invalid.param.unwrap_or_default())
    }

    fn call(id: &str) -> String {
        format!(r#"{{"id":"{id}","type":"function","function":{{"name":"t","arguments":"{{}}"}}}}"#)
    }

    fn asked(ids: &[&str]) -> String {
        let calls: Vec<_> = ids.iter().map(|id| call(id)).collect();
        format!(r#"{{"role":"assistant","content":null,"tool_calls":[{}]}}"#, calls.join(","))
    }

    fn result(id: &str) -> String {
        format!(r#"{{"role":"tool","tool_call_id":"{id}","content":""}}"#)
    }

    const USER: &str = r#"{"role":"user","content":"hi"}"#;

    #[test]
    fn a_conversation_with_answered_calls_is_valid() {
        let text = format!("[{USER},{},{},{},{USER}]", asked(&["a", "b"]), result("b"), result("a"));
        assert_eq!(judged(&text), Ok(1));
    }

    #[test]
    fn every_call_is_answered_exactly_once_before_anything_else() {
        for (text, at) in [
            (format!("[{USER},{}]", asked(&["a"])), "messages"),
            (format!("[{},{USER},{}]", asked(&["a"]), result("a")), "messages.[1]"),
            (format!("[{},{},{}]", asked(&["a", "b"]), result("a"), asked(&["c"])), "messages.[2]"),
            (format!("[{},{},{}]", asked(&["a"]), result("a"), result("a")), "messages.[2].tool_call_id"),
            (format!("[{USER},{}]", result("a")), "messages.[1].tool_call_id"),
            (format!("[{}]", asked(&["a", "a"])), "messages.[0].tool_calls"),
            (format!("[{}]", asked(&[""])), "messages.[0].tool_calls"),
            (format!("[{},{},{}]", asked(&["a"]), result("a"), asked(&["a"])), "messages.[2].tool_calls"),
            (format!("[{}]", asked(&[])), "messages.[0].tool_calls"),
        ] {
            assert_eq!(judged(&text), Err(at.to_owned()), "{text}");
        }
    }

    #[test]
    fn roles_and_content_are_judged() {
        for (text, at) in [
            ("[]", "messages"),
            (r#"[{"role":"robot","content":"x"}]"#, "messages.[0].role"),
            (r#"[{"role":"user"}]"#, "messages.[0].content"),
            (r#"[{"role":"assistant","content":null}]"#, "messages.[0].content"),
            (r#"[{"role":"user","content":[]}]"#, "messages.[0].content"),
            (r#"[{"role":"user","content":[{"type":"text","text":""}]}]"#, "messages.[0].content"),
            (
                r#"[{"role":"tool","tool_call_id":"a","content":[{"type":"image_url"}]}]"#,
                "messages.[0].content",
            ),
            (r#"[{"role":"user","content":"\ud83d"}]"#, "messages.[0].content"),
            (r#"[{"role":"user","content":7}]"#, "messages.[0].content"),
            (r#"[7]"#, "messages.[0]"),
        ] {
            assert_eq!(judged(text), Err(at.to_owned()), "{text}");
        }
        assert_eq!(
            judged(r#"[{"role":"user","content":[{"type":"text","text":"x"}],"name":"n","x":1}]"#),
            Ok(0)
        );
    }
}
