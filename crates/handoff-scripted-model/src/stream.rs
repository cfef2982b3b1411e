//! Writes a reply in the wire format: one JSON document, or the events of a stream.

use bytes::Bytes;
use serde_json::json;

use crate::reply::{Call, Reply, Usage};

/// What stands at the top of a document and of every chunk.
#[derive(Debug, Clone)]
pub(crate) struct Head {
    pub(crate) model: String,
    /// Seconds since 1970.
    pub(crate) created: u64,
}

/// The whole answer in one document.
pub(crate) fn document(head: &Head, reply: &Reply) -> Bytes {
    let calls: Vec<_> = reply.calls.iter().map(whole_call).collect();
    let mut message = json!({"role": "assistant", "content": null, "refusal": null});
    if !reply.text.is_empty() || calls.is_empty() {
        message["content"] = json!(reply.text);
    }
    if !calls.is_empty() {
        message["tool_calls"] = json!(calls);
    }
    let mut document = json!({
        "id": completion_id(reply),
        "object": "chat.completion",
        "created": head.created,
        "model": head.model,
        "system_fingerprint": "scripted",
        "choices": [{"index": 0, "message": message, "logprobs": null, "finish_reason": reply.finish}],
    });
    if let Some(usage) = reply.usage {
        document["usage"] = json!(usage);
    }
    Bytes::from(document.to_string())
}

fn whole_call(call: &Call) -> serde_json::Value {
    let function = json!({"name": call.name, "arguments": call.arguments});
    json!({"id": call.id, "type": "function", "function": function})
}

fn completion_id(reply: &Reply) -> String {
    format!("chatcmpl-scripted-{}", reply.number)
}

/// The answer as server-sent events, `[DONE]` last.
pub(crate) fn events(head: &Head, reply: &Reply, include_usage: bool) -> Vec<Bytes> {
    let chunk = Chunk { head, id: completion_id(reply), include_usage };
    let pieces = |text: &str| match reply.split_surrogates {
        true => utf16_pieces(text),
        false => char_pieces(text, reply.chunk_bytes),
    };
    let mut events = Vec::new();
    let opening = if reply.text.is_empty() && !reply.calls.is_empty() { "null" } else { "\"\"" };
    events.push(chunk.delta(&format!(r#"{{"role":"assistant","content":{opening},"refusal":null}}"#)));
    for piece in pieces(&reply.text) {
        events.push(chunk.delta(&format!(r#"{{"content":"{piece}"}}"#)));
    }
    for (index, call) in reply.calls.iter().enumerate() {
        let function = json!({"name": call.name, "arguments": ""});
        let opened = json!({"index": index, "id": call.id, "type": "function", "function": function});
        events.push(chunk.delta(&format!(r#"{{"tool_calls":[{opened}]}}"#)));
        for piece in pieces(&call.arguments) {
            let delta = format!(r#"{{"index":{index},"function":{{"arguments":"{piece}"}}}}"#);
            events.push(chunk.delta(&format!(r#"{{"tool_calls":[{delta}]}}"#)));
        }
    }
    events.push(chunk.choice("{}", &format!("\"{}\"", reply.finish)));
    if let Some(usage) = reply.usage.filter(|_| include_usage) {
        events.push(chunk.usage(&usage));
    }
    events.push(Bytes::from_static(b"data: [DONE]\n\n"));
    events
}

struct Chunk<'r> {
    head: &'r Head,
    id: String,
    include_usage: bool,
}

impl Chunk<'_> {
    fn delta(&self, delta: &str) -> Bytes {
        self.choice(delta, "null")
    }

    fn choice(&self, delta: &str, finish: &str) -> Bytes {
        let choice = format!(r#"{{"index":0,"delta":{delta},"logprobs":null,"finish_reason":{finish}}}"#);
        self.event(&format!("[{choice}]"), "null")
    }

    fn usage(&self, usage: &Usage) -> Bytes {
        self.event("[]", &serde_json::to_string(usage).expect("plain data"))
    }

    fn event(&self, choices: &str, usage: &str) -> Bytes {
        let usage = if self.include_usage { format!(r#","usage":{usage}"#) } else { String::new() };
        let (id, created) = (&self.id, self.head.created);
        let model = json!(self.head.model);
        Bytes::from(
            format!(
                r#"data: {{"id":"{id}","object":"chat.completion.chunk","created":{created},"model":{model},"system_fingerprint":"scripted","choices":{choices}{usage}}}"#
            ) + "\n\n",
        )
    }
}

/// The text as bodies of JSON strings, each of at most so many bytes before escaping (one character at least).
fn char_pieces(text: &str, chunk_bytes: usize) -> Vec<String> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let first = rest.chars().next().map_or(1, char::len_utf8);
        let (piece, tail) = rest.split_at(rest.floor_char_boundary(chunk_bytes).max(first));
        let quoted = serde_json::to_string(piece).expect("a string is JSON");
        pieces.push(quoted[1..quoted.len() - 1].to_owned());
        rest = tail;
    }
    pieces
}

/// The text as bodies of JSON strings, one UTF-16 unit each, everything but plain ASCII as an escape.
fn utf16_pieces(text: &str) -> Vec<String> {
    let piece = |unit: u16| match u8::try_from(unit) {
        Ok(byte) if (byte.is_ascii_graphic() || byte == b' ') && byte != b'"' && byte != b'\\' => {
            char::from(byte).to_string()
        }
        _ => format!("\\u{unit:04x}"),
    };
    text.encode_utf16().map(piece).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_put_together_are_the_text() {
        let text = "a\"\\\n é 木 😀 end";
        for size in 1..20 {
            let whole = format!("\"{}\"", char_pieces(text, size).concat());
            assert_eq!(serde_json::from_str::<String>(&whole).expect("a string"), text);
        }
        let units = utf16_pieces(text);
        assert!(units.contains(&"\\ud83d".to_owned()) && units.contains(&"\\ude00".to_owned()));
        let whole = format!("\"{}\"", units.concat());
        assert_eq!(serde_json::from_str::<String>(&whole).expect("a string"), text);
    }
}
