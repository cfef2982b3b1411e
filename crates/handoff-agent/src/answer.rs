//! Puts a model's answer together from the chunks of a stream, as raw JSON: strings are joined as they are
//! written, so that a character whose halves come in two chunks is whole again, and fields that this loop does
//! not know stay in the message.

use crate::message::quoted;
use handoff_protocol::scan;

/// Token counts that a provider stated, for people; the gateway's meter is the one that counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Tokens {
    pub(crate) prompt: u64,
    pub(crate) completion: u64,
}

/// Why a chunk is not one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum BadChunk {
    /// Not JSON, or not of this wire format.
    Malformed,
    /// The provider says within the stream that it failed.
    Failed(String),
}

/// A field of the message that arrives in pieces.
#[derive(Debug, Clone)]
enum Field {
    /// The inside of a JSON string.
    Text(String),
    /// Elements of an array.
    Items(Vec<String>),
    /// Anything else: the last one counts.
    Whole(String),
}

#[derive(Debug, Clone, Default)]
struct PartialCall {
    index: Option<String>,
    id: String,
    name: String,
    arguments: String,
    /// Members beside the known ones, as written.
    rest: Vec<(String, String)>,
}

/// An answer that is still arriving.
#[derive(Debug, Clone, Default)]
pub(crate) struct Answer {
    /// Keys as written, in order of arrival. `role` and `tool_calls` are not among them.
    fields: Vec<(String, Field)>,
    calls: Vec<PartialCall>,
    finished: bool,
    tokens: Option<Tokens>,
}

impl Answer {
    /// Takes in the data of one event.
    pub(crate) fn push(&mut self, chunk: &[u8]) -> Result<(), BadChunk> {
        let text = std::str::from_utf8(chunk).map_err(|_| BadChunk::Malformed)?;
        let text = text.trim_ascii();
        if text == "[DONE]" {
            self.finished = true;
            return Ok(());
        }
        handoff_protocol::json::check(text.as_bytes()).map_err(|_| BadChunk::Malformed)?;
        if let Some(error) = scan::member(text, "error").filter(|error| *error != "null") {
            return Err(BadChunk::Failed(error_text(error)));
        }
        self.count(text);
        // Some providers send events of their own in between; without choices they say nothing here.
        let choices = scan::member(text, "choices").and_then(scan::elements).unwrap_or_default();
        choices.into_iter().filter(|choice| is_first(choice)).for_each(|choice| self.choice(choice));
        Ok(())
    }

    /// Whether the model said that it has finished.
    pub(crate) fn finished(&self) -> bool {
        self.finished
    }

    /// The token counts, if they were stated.
    pub(crate) fn tokens(&self) -> Option<Tokens> {
        self.tokens
    }

    /// The assistant message, on one line.
    pub(crate) fn message(&self) -> String {
        let mut members = vec![r#""role":"assistant""#.to_owned()];
        if !self.fields.iter().any(|(key, _)| is_content(key)) {
            members.push(format!("\"content\":{}", self.no_content()));
        }
        for (key, field) in &self.fields {
            let empty = matches!(field, Field::Text(text) if text.is_empty());
            match field {
                _ if empty && is_content(key) => members.push(format!("{key}:{}", self.no_content())),
                Field::Text(text) => members.push(format!("{key}:\"{text}\"")),
                Field::Items(items) => members.push(format!("{key}:[{}]", items.join(","))),
                Field::Whole(value) => members.push(format!("{key}:{value}")),
            }
        }
        if !self.calls.is_empty() {
            let calls: Vec<_> = self.calls.iter().map(PartialCall::written).collect();
            members.push(format!("\"tool_calls\":[{}]", calls.join(",")));
        }
        on_one_line(&format!("{{{}}}", members.join(",")))
    }

    const fn no_content(&self) -> &'static str {
        if self.calls.is_empty() { "\"\"" } else { "null" }
    }

    fn count(&mut self, chunk: &str) {
        let Some(usage) = scan::member(chunk, "usage") else { return };
        let number = |key| scan::member(usage, key).and_then(|text| text.parse().ok());
        if let (Some(prompt), Some(completion)) = (number("prompt_tokens"), number("completion_tokens")) {
            self.tokens = Some(Tokens { prompt, completion });
        }
    }

    fn choice(&mut self, choice: &str) {
        if scan::member(choice, "finish_reason").is_some_and(|reason| reason != "null") {
            self.finished = true;
        }
        let delta = scan::member(choice, "delta").and_then(scan::members).unwrap_or_default();
        for member in delta {
            match scan::string(member.key).as_deref() {
                Some("role") => {}
                Some("tool_calls") => {
                    scan::elements(member.value).into_iter().flatten().for_each(|call| self.call(call));
                }
                _ if member.value == "null" => {}
                _ => self.field(member.key, member.value),
            }
        }
    }

    fn field(&mut self, key: &str, value: &str) {
        let piece = || match (inside(value), scan::elements(value)) {
            (Some(text), _) => Field::Text(text.to_owned()),
            (None, Some(items)) => Field::Items(items.into_iter().map(str::to_owned).collect()),
            (None, None) => Field::Whole(value.to_owned()),
        };
        let Some((_, known)) = self.fields.iter_mut().find(|(known, _)| known == key) else {
            self.fields.push((key.to_owned(), piece()));
            return;
        };
        match (known, piece()) {
            (Field::Text(known), Field::Text(more)) => known.push_str(&more),
            (Field::Items(known), Field::Items(more)) => known.extend(more),
            (known, other) => *known = other,
        }
    }

    fn call(&mut self, delta: &str) {
        let id = scan::member(delta, "id").and_then(inside).unwrap_or_default();
        let at = self.call_place(scan::member(delta, "index"), id);
        let call = &mut self.calls[at];
        if call.id.is_empty() {
            call.id.push_str(id);
        }
        for member in scan::members(delta).unwrap_or_default() {
            let known = ["index", "id", "type", "function"];
            if !scan::string(member.key).is_some_and(|key| known.contains(&key.as_str())) {
                call.rest.retain(|(key, _)| key != member.key);
                call.rest.push((member.key.to_owned(), member.value.to_owned()));
            }
        }
        let function = scan::member(delta, "function").unwrap_or("{}");
        if call.name.is_empty() {
            call.name.push_str(scan::member(function, "name").and_then(inside).unwrap_or_default());
        }
        if let Some(arguments) = scan::member(function, "arguments") {
            match inside(arguments) {
                Some(piece) => call.arguments.push_str(piece),
                // Some providers give an object where the format has a string.
                None if arguments != "null" => {
                    let quoted = quoted(arguments);
                    call.arguments.push_str(&quoted[1..quoted.len() - 1]);
                }
                None => {}
            }
        }
    }

    /// The call that a delta belongs to. Some providers give no index, others the same one to every call, so
    /// another id begins another call.
    fn call_place(&mut self, index: Option<&str>, id: &str) -> usize {
        let same = |call: &PartialCall| match index {
            Some(index) => call.index.as_deref() == Some(index),
            None => true,
        };
        let found = self.calls.iter().rposition(same);
        match found.filter(|at| id.is_empty() || self.calls[*at].id.is_empty() || self.calls[*at].id == id) {
            Some(at) => at,
            None => {
                self.calls.push(PartialCall { index: index.map(str::to_owned), ..PartialCall::default() });
                self.calls.len() - 1
            }
        }
    }
}

impl PartialCall {
    fn written(&self) -> String {
        let Self { id, name, arguments, rest, .. } = self;
        let rest: String = rest.iter().map(|(key, value)| format!(",{key}:{value}")).collect();
        format!(
            r#"{{"id":"{id}","type":"function","function":{{"name":"{name}","arguments":"{arguments}"}}{rest}}}"#
        )
    }
}

/// The message of an answer that came in one document, as it is written there.
pub(crate) fn of_document(document: &[u8]) -> Result<(String, Option<Tokens>), BadChunk> {
    let text = std::str::from_utf8(document).map_err(|_| BadChunk::Malformed)?;
    handoff_protocol::json::check(document).map_err(|_| BadChunk::Malformed)?;
    if let Some(error) = scan::member(text, "error").filter(|error| *error != "null") {
        return Err(BadChunk::Failed(error_text(error)));
    }
    let choices = scan::member(text, "choices").and_then(scan::elements).ok_or(BadChunk::Malformed)?;
    let message = choices.into_iter().find(|choice| is_first(choice));
    let message = message.and_then(|choice| scan::member(choice, "message")).ok_or(BadChunk::Malformed)?;
    if crate::message::role(message) != Some(crate::message::Role::Assistant) {
        return Err(BadChunk::Malformed);
    }
    let mut counted = Answer::default();
    counted.count(text);
    Ok((on_one_line(message), counted.tokens))
}

/// What an error body says, for people.
pub(crate) fn error_text(error: &str) -> String {
    let inner = scan::member(error, "error").unwrap_or(error);
    let said = scan::member(inner, "message").and_then(scan::string).or_else(|| scan::string(inner));
    said.unwrap_or_else(|| inner.to_owned()).chars().take(500).collect()
}

fn is_first(choice: &str) -> bool {
    scan::member(choice, "index").is_none_or(|index| index == "0")
}

fn is_content(key: &str) -> bool {
    scan::string(key).as_deref() == Some("content")
}

/// The inside of a JSON string, as it is written.
fn inside(literal: &str) -> Option<&str> {
    literal.strip_prefix('"')?.strip_suffix('"')
}

/// Line breaks between the tokens of a JSON text become spaces; inside a string there are none.
fn on_one_line(json: &str) -> String {
    json.replace(['\n', '\r'], " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(deltas: &[&str]) -> Answer {
        let mut answer = Answer::default();
        for delta in deltas {
            let chunk = format!(r#"{{"choices":[{{"index":0,"delta":{delta},"finish_reason":null}}]}}"#);
            answer.push(chunk.as_bytes()).expect("a chunk");
        }
        answer
    }

    #[test]
    fn text_is_joined_as_it_is_written() {
        let said = answer(&[
            r#"{"role":"assistant","content":"","refusal":null}"#,
            r#"{"content":"\ud83d"}"#,
            r#"{"content":"\ude00 \u0000 é\n"}"#,
        ]);
        assert_eq!(said.message(), r#"{"role":"assistant","content":"\ud83d\ude00 \u0000 é\n"}"#);
        assert!(!said.finished());
    }

    #[test]
    fn calls_are_put_together_from_split_arguments() {
        let said = answer(&[
            r#"{"role":"assistant","content":null}"#,
            r#"{"tool_calls":[{"index":0,"id":"a","type":"function","function":{"name":"t","arguments":""}}]}"#,
            r#"{"tool_calls":[{"index":0,"function":{"arguments":"{\"x\":"}}]}"#,
            r#"{"tool_calls":[{"index":1,"id":"b","type":"function","function":{"name":"u","arguments":"{}"}}]}"#,
            r#"{"tool_calls":[{"index":0,"function":{"arguments":"1}"}}]}"#,
        ]);
        assert_eq!(
            said.message(),
            r#"{"role":"assistant","content":null,"tool_calls":[{"id":"a","type":"function","function":{"name":"t","arguments":"{\"x\":1}"}},{"id":"b","type":"function","function":{"name":"u","arguments":"{}"}}]}"#
        );
    }

    #[test]
    fn providers_that_number_calls_badly_are_understood() {
        let call = |index: &str, id: &str| {
            format!(
                r#"{{"tool_calls":[{{{index}"id":"{id}","function":{{"name":"t","arguments":"{{}}"}}}}]}}"#
            )
        };
        for index in ["\"index\":0,", ""] {
            let said = answer(&[&call(index, "a"), &call(index, "b")]);
            let calls = crate::message::calls(&said.message());
            assert_eq!(calls.iter().map(|call| call.id_text()).collect::<Vec<_>>(), ["a", "b"]);
            assert_eq!(calls[1].arguments, "{}");
        }
        let object =
            r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"t","arguments":{"x":"\ud83d"}}}]}"#;
        let calls = crate::message::calls(&answer(&[object]).message());
        assert_eq!(calls[0].arguments, r#"{"x":"\ud83d"}"#);
    }

    #[test]
    fn case_s04_two_calls_without_ids_stay_two_if_they_are_numbered() {
        let call = |index| {
            format!(
                r#"{{"tool_calls":[{{"index":{index},"id":"","function":{{"name":"t","arguments":"{{}}"}}}}]}}"#
            )
        };
        let said = answer(&[&call(0), &call(1)]);
        assert_eq!(crate::message::calls(&said.message()).len(), 2);
    }

    #[test]
    fn fields_of_other_providers_stay_in_the_message() {
        let said = answer(&[
            r#"{"reasoning_content":"a\ud83d","content":null}"#,
            r#"{"reasoning_content":"b","details":[{"z":1.50}],"n":-0}"#,
            r#"{"details":[{"y":2}],"content":"x"}"#,
            r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"t","arguments":"{}"},"extra":{"sig":"s=="}}]}"#,
        ]);
        assert_eq!(
            said.message(),
            r#"{"role":"assistant","reasoning_content":"a\ud83db","details":[{"z":1.50},{"y":2}],"n":-0,"content":"x","tool_calls":[{"id":"a","type":"function","function":{"name":"t","arguments":"{}"},"extra":{"sig":"s=="}}]}"#
        );
    }

    #[test]
    fn an_answer_without_text_gets_no_empty_block() {
        assert_eq!(answer(&[r#"{"content":""}"#]).message(), r#"{"role":"assistant","content":""}"#);
        assert_eq!(answer(&[]).message(), r#"{"role":"assistant","content":""}"#);
        let calling =
            r#"{"content":"","tool_calls":[{"index":0,"id":"a","function":{"name":"t","arguments":""}}]}"#;
        assert!(
            answer(&[calling]).message().starts_with(r#"{"role":"assistant","content":null,"tool_calls""#)
        );
    }

    #[test]
    fn ends_counts_and_errors_are_seen() {
        let mut said = Answer::default();
        said.push(br#"{"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":3}}"#).expect("usage");
        assert_eq!(said.tokens(), Some(Tokens { prompt: 7, completion: 3 }));
        assert!(!said.finished());
        said.push(br#"{"choices":[{"delta":{},"finish_reason":"stop"}],"usage":null}"#).expect("the end");
        assert!(said.finished());
        let failed = said.push(br#"{"error":{"message":"overloaded","code":529}}"#);
        assert_eq!(failed, Err(BadChunk::Failed("overloaded".to_owned())));
        assert_eq!(said.push(b"{"), Err(BadChunk::Malformed));
        assert_eq!(said.push(b"{\"type\":\"ping\"}"), Ok(()));
    }

    #[test]
    fn a_document_gives_its_message_as_written_on_one_line() {
        let document = b"{\"choices\": [{\"index\":0,\n\"message\": {\n \"role\":\"assistant\", \"content\":\"x\\n\"}}],\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":2}}";
        let (message, tokens) = of_document(document).expect("an answer");
        assert_eq!(message, "{  \"role\":\"assistant\", \"content\":\"x\\n\"}");
        assert_eq!(tokens, Some(Tokens { prompt: 1, completion: 2 }));
        assert_eq!(of_document(b"{}"), Err(BadChunk::Malformed));
    }
}
