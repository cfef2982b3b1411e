//! Judges a request as strictly as the strictest compatible provider: what passes here passes elsewhere.

use std::collections::BTreeSet;

use handoff_protocol::scan;

use crate::request::ChatRequest;

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

/// Judges a request that was read.
pub(crate) fn judge(request: &ChatRequest<'_>) -> Result<Conversation, Invalid> {
    if request.stream_options && !request.stream {
        return Err(invalid("stream_options", "stream_options is allowed only with stream: true"));
    }
    let mut calls = Calls::default();
    let mut answered = 0;
    for (index, text) in request.messages.iter().enumerate() {
        let at = format!("messages.[{index}]");
        let message = Message::read(text).ok_or_else(|| invalid(&at, "not a message with a role"))?;
        check_content(&message, &at)?;
        calls.follow(&message, &at)?;
        answered += u64::from(message.role == "assistant");
    }
    calls.all_answered("messages")?;
    let tools = offered(request)?;
    let input = request.messages.iter().chain(&request.tools);
    let input_bytes = input.map(|text| text.len() as u64).sum();
    Ok(Conversation { answered, tools, input_bytes })
}

/// A message, as far as it is judged. Fields beyond these are carried by some providers and pass.
struct Message<'b> {
    role: String,
    content: Option<&'b str>,
    tool_calls: Option<&'b str>,
    tool_call_id: Option<&'b str>,
    refusal: Option<&'b str>,
}

impl<'b> Message<'b> {
    fn read(text: &'b str) -> Option<Self> {
        let members = scan::members(text)?;
        let member = |key: &str| {
            let found = members.iter().find(|member| scan::string(member.key).as_deref() == Some(key));
            found.map(|member| member.value).filter(|value| *value != "null")
        };
        Some(Self {
            role: scan::string(member("role")?)?,
            content: member("content"),
            tool_calls: member("tool_calls"),
            tool_call_id: member("tool_call_id"),
            refusal: member("refusal"),
        })
    }
}

fn text_of(object: &str, key: &str) -> Option<String> {
    scan::string(scan::member(object, key)?)
}

fn offered(request: &ChatRequest<'_>) -> Result<BTreeSet<String>, Invalid> {
    let mut names = BTreeSet::new();
    for (index, tool) in request.tools.iter().enumerate() {
        let at = format!("tools.[{index}]");
        if text_of(tool, "type").as_deref() != Some("function") {
            return Err(invalid(at, "a tool's type must be 'function'"));
        }
        let function = scan::member(tool, "function").unwrap_or_default();
        let name = text_of(function, "name").filter(|name| is_name(name));
        let name =
            name.ok_or_else(|| invalid(&at, "a function's name has 1 to 64 characters of a-z A-Z 0-9 _ -"))?;
        if scan::member(function, "parameters").is_some_and(|schema| !schema.starts_with('{')) {
            return Err(invalid(at, "a function's parameters must be a JSON Schema object"));
        }
        if !names.insert(name) {
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
    let parts: &[&str] = match message.role.as_str() {
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

fn check_given(content: &str, allowed: &[&str], at: &str) -> Result<(), Invalid> {
    if content.starts_with('"') {
        return Ok(());
    }
    let parts = scan::elements(content);
    let parts = parts.ok_or_else(|| invalid(at, "content must be a string or an array of parts"))?;
    if parts.is_empty() {
        return Err(invalid(at, "an array of content parts must not be empty"));
    }
    for part in parts {
        let kind = text_of(part, "type").unwrap_or_default();
        if !allowed.contains(&kind.as_str()) {
            return Err(invalid(at, format!("a part of type '{kind}' does not belong here")));
        }
        if kind == "text" && text_of(part, "text").unwrap_or_default().is_empty() {
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
        match (message.role.as_str(), message.tool_calls) {
            ("assistant", Some(calls)) => self.opened(calls, &format!("{at}.tool_calls")),
            (_, None) => Ok(()),
            (_, Some(_)) => {
                Err(invalid(format!("{at}.tool_calls"), "only an assistant message has tool_calls"))
            }
        }
    }

    fn opened(&mut self, calls: &str, at: &str) -> Result<(), Invalid> {
        let calls = scan::elements(calls).unwrap_or_default();
        if calls.is_empty() {
            return Err(invalid(at, "tool_calls must be an array of at least one call"));
        }
        for call in calls {
            let function = scan::member(call, "function").unwrap_or_default();
            let named = text_of(function, "name").is_some_and(|name| is_name(&name));
            let argued = scan::member(function, "arguments").is_some_and(|text| text.starts_with('"'));
            if text_of(call, "type").as_deref() != Some("function") || !named || !argued {
                return Err(invalid(at, "a tool call names a function and gives its arguments as a string"));
            }
            let id = text_of(call, "id").unwrap_or_default();
            if id.is_empty() || !self.seen.insert(id.clone()) {
                return Err(invalid(at, format!("the tool call id '{id}' is empty or stands twice")));
            }
            self.open.insert(id);
        }
        Ok(())
    }

    fn result(&mut self, message: &Message<'_>, at: &str) -> Result<(), Invalid> {
        let id = message.tool_call_id.and_then(scan::string).unwrap_or_default();
        if self.open.remove(&id) {
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
        let seen = ChatRequest::read(body.as_bytes()).and_then(|request| judge(&request));
        seen.map(|seen| seen.answered).map_err(|invalid| invalid.param.unwrap_or_default())
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
            (r#"[{"role":"user","content":"\ud83d"}]"#, ""),
            (r#"[{"role":"user","content":"x","content":"y"}]"#, ""),
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
