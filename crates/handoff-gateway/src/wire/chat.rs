//! Chat Completions requests: what they demand for, and the two edits that metering needs.
//! Source of the fields: platform.openai.com/docs/api-reference/chat/create.

use std::borrow::Cow;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::fields::{Edit, Fields, edited};
use super::{Demand, InvalidDemand};
use crate::policy::MaxTokensField;

/// Fields that the meter reads or writes. A server that does not care about the case of keys would read
/// another spelling of them, so those are refused.
const METERED: [&str; 9] = [
    "model",
    "messages",
    "stream",
    "stream_options",
    "max_tokens",
    "max_completion_tokens",
    "n",
    "best_of",
    "prediction",
];

/// Fields that bring charges of their own, choose another model, or send the call elsewhere.
const UNMETERED: [&str; 10] = [
    "web_search_options",
    "plugins",
    "models",
    "fallbacks",
    "route",
    "audio",
    "api_base",
    "base_url",
    "api_key",
    "extra_body",
];

const LIMITS: [&str; 2] = ["max_tokens", "max_completion_tokens"];

pub(super) fn demand(body: &[u8]) -> Result<Demand, InvalidDemand> {
    handoff_protocol::json::check(body)?;
    let fields = Fields::of(body).ok_or(problem("body", "it must be a JSON object"))?;
    refuse_unmetered(&fields, body)?;
    let limits: Vec<u64> =
        LIMITS.iter().filter_map(|key| count(&fields, body, key).transpose()).collect::<Result<_, _>>()?;
    let several = |key| Ok::<_, InvalidDemand>(count(&fields, body, key)?.unwrap_or(1));
    let options: Option<StreamOptions> = read(&fields, body, "stream_options")?;
    let prediction = present(&fields, body, "prediction").map_or(0, |value| value.len() as u64);
    Ok(Demand {
        model: read(&fields, body, "model")?.ok_or(problem("model", "it is missing"))?,
        stream: read(&fields, body, "stream")?.unwrap_or(false),
        wants_usage: options.and_then(|options| options.include_usage).unwrap_or(false),
        max_tokens: limits.into_iter().max(),
        choices: several("n")?.max(several("best_of")?),
        // Predicted tokens that are rejected are charged as output.
        extra_output: prediction,
        attachments: attachments(&fields, body)?,
    })
}

pub(super) fn limited(body: &Bytes, demand: &Demand, max_tokens: u64, field: MaxTokensField) -> Bytes {
    let fields = Fields::of(body).expect("the request was read before");
    let mut edits: Vec<Edit> = Vec::new();
    for key in LIMITS {
        if count(&fields, body, key).ok().flatten().is_some_and(|stated| stated > max_tokens) {
            edits.push(fields.set(key, &max_tokens.to_string()));
        }
    }
    if demand.max_tokens.is_none() {
        edits.push(fields.set(field.key(), &max_tokens.to_string()));
    }
    if demand.stream && !demand.wants_usage {
        edits.push(include_usage(&fields, body));
    }
    if edits.is_empty() { body.clone() } else { edited(body, edits).into() }
}

fn include_usage(fields: &Fields, body: &[u8]) -> Edit {
    let Some(options) = fields.get("stream_options") else {
        return fields.set("stream_options", r#"{"include_usage":true}"#);
    };
    let at = options.value.clone();
    match Fields::of(&body[at.clone()]) {
        Some(inner) => {
            let Edit { at: inside, with } = inner.set("include_usage", "true");
            Edit { at: at.start + inside.start..at.start + inside.end, with }
        }
        None => Edit { at, with: r#"{"include_usage":true}"#.to_owned() },
    }
}

fn problem(field: &'static str, problem: &'static str) -> InvalidDemand {
    InvalidDemand::Field { field, problem }
}

/// The bytes of a field that is there and not null.
fn present<'b>(fields: &Fields, body: &'b [u8], key: &str) -> Option<&'b [u8]> {
    let value = &body[fields.get(key)?.value.clone()];
    (value != b"null").then_some(value)
}

fn read<'b, T: Deserialize<'b>>(
    fields: &Fields,
    body: &'b [u8],
    key: &'static str,
) -> Result<Option<T>, InvalidDemand> {
    let read = |value| serde_json::from_slice(value).map_err(|_| problem(key, "it has another type"));
    present(fields, body, key).map(read).transpose()
}

fn count(fields: &Fields, body: &[u8], key: &'static str) -> Result<Option<u64>, InvalidDemand> {
    match read::<u64>(fields, body, key) {
        Ok(Some(0)) | Err(_) => Err(problem(key, "it must be a whole number of at least 1")),
        other => other,
    }
}

fn refuse_unmetered(fields: &Fields, body: &[u8]) -> Result<(), InvalidDemand> {
    for field in fields.iter() {
        // Both directions, because U+017F and U+212A fold to ASCII letters in only one of them.
        let folded = field.key.to_uppercase().to_lowercase();
        if folded != field.key && METERED.contains(&folded.as_str()) {
            return Err(InvalidDemand::Unmetered(field.key.clone()));
        }
        if UNMETERED.contains(&folded.as_str()) && &body[field.value.clone()] != b"null" {
            return Err(InvalidDemand::Unmetered(field.key.clone()));
        }
    }
    let tier: Option<String> = read(fields, body, "service_tier")?;
    if tier.is_some_and(|tier| tier != "auto" && tier != "default") {
        return Err(InvalidDemand::Unmetered("service_tier".to_owned()));
    }
    let modalities: Option<Vec<String>> = read(fields, body, "modalities")?;
    if modalities.is_some_and(|kinds| kinds.iter().any(|kind| kind != "text")) {
        return Err(InvalidDemand::Unmetered("modalities".to_owned()));
    }
    Ok(())
}

#[derive(Deserialize)]
struct StreamOptions {
    include_usage: Option<bool>,
}

/// How many parts of all messages are not text. Texts are skipped, never decoded: they may hold what a decoder
/// refuses, such as half a surrogate pair.
fn attachments(fields: &Fields, body: &[u8]) -> Result<u64, InvalidDemand> {
    let messages: Vec<Message<'_>> =
        read(fields, body, "messages")?.ok_or(problem("messages", "it is missing"))?;
    let mut count = 0;
    for content in messages.iter().filter_map(|message| message.content) {
        let parts: Vec<Part<'_>> = match content.get().as_bytes().first() {
            Some(b'[') => serde_json::from_str(content.get())
                .map_err(|_| problem("messages", "a content is a text or a list of parts"))?,
            Some(b'"' | b'n') => continue,
            _ => return Err(problem("messages", "a content is a text or a list of parts")),
        };
        count += parts.iter().filter(|part| part.kind != "text" && part.kind != "refusal").count() as u64;
    }
    Ok(count)
}

#[derive(Deserialize)]
struct Message<'b> {
    #[serde(borrow, default)]
    content: Option<&'b RawValue>,
}

#[derive(Deserialize)]
struct Part<'b> {
    #[serde(rename = "type", borrow, default)]
    kind: Cow<'b, str>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(rest: &str) -> Result<Demand, InvalidDemand> {
        demand(body(rest).as_bytes())
    }

    fn body(rest: &str) -> String {
        format!(r#"{{"model":"m","messages":[{{"role":"user","content":"hi \ud83d"}}]{rest}}}"#)
    }

    fn limit(text: &str, max_tokens: u64) -> String {
        let demand = demand(text.as_bytes()).expect("a request");
        let body = Bytes::copy_from_slice(text.as_bytes());
        let bytes = limited(&body, &demand, max_tokens, MaxTokensField::MaxTokens);
        String::from_utf8(bytes.to_vec()).expect("text")
    }

    #[test]
    fn what_a_request_asks_for() {
        let plain = of("").expect("a request");
        let expected = Demand {
            model: "m".to_owned(),
            stream: false,
            wants_usage: false,
            max_tokens: None,
            choices: 1,
            extra_output: 0,
            attachments: 0,
        };
        assert_eq!(plain, expected);
        let rest = r#","stream":true,"stream_options":{"include_usage":true},"n":3,"max_tokens":7,"max_completion_tokens":9"#;
        let demand = of(rest).expect("a request");
        assert!(demand.stream && demand.wants_usage);
        assert_eq!((demand.choices, demand.max_tokens), (3, Some(9)));
        assert_eq!(of(r#","max_tokens":null,"n":null"#), Ok(expected));
    }

    #[test]
    fn numbers_that_would_slip_past_the_bound_are_refused() {
        for bad in ["0", "-1", "1.5", "1e3", "\"9\"", "true", "18446744073709551616", "[]"] {
            for key in ["max_tokens", "max_completion_tokens", "n", "best_of"] {
                assert!(of(&format!(",\"{key}\":{bad}")).is_err(), "{key} {bad}");
            }
        }
        for other in ["Max_Tokens", "MODEL", "\\u017ftream", "STREAM", "N"] {
            let result = of(&format!(",\"{other}\":1"));
            assert!(matches!(result, Err(InvalidDemand::Unmetered(_))), "{other}: {result:?}");
        }
        assert!(matches!(of(r#","model":"x""#), Err(InvalidDemand::Json(_))), "a key twice");
    }

    #[test]
    fn what_has_its_own_price_is_refused() {
        for rest in [
            r#","service_tier":"priority""#,
            r#","modalities":["text","audio"]"#,
            r#","web_search_options":{}"#,
            r#","models":["dear"]"#,
        ] {
            assert!(matches!(of(rest), Err(InvalidDemand::Unmetered(_))), "{rest}");
        }
        assert!(of(r#","service_tier":"auto","modalities":["text"],"models":null,"seed":1"#).is_ok());
        assert!(
            of(r#","prediction":{"type":"content","content":"abc"}"#).expect("a request").extra_output > 3
        );
    }

    #[test]
    fn attachments_are_counted() {
        let text = r#"{"model":"m","messages":[
            {"role":"user","content":[{"type":"text","text":"x"},{"type":"\u0069mage_url","image_url":{"url":"https://a"}}]},
            {"role":"assistant","content":null,"tool_calls":[]},
            {"role":"assistant"},
            {"role":"user","content":[{"type":"file"},{}]}]}"#;
        assert_eq!(demand(text.as_bytes()).expect("a request").attachments, 3);
    }

    #[test]
    fn case_m12_only_what_must_change_changes() {
        let given = r#", "stream" : true,"x":117.63331139400017"#;
        let asked = limit(&body(given), 50);
        let opened = r#"{"max_tokens":50,"stream_options":{"include_usage":true},"#;
        assert_eq!(asked, body(given).replacen('{', opened, 1));
        let off = body(r#","stream":true,"max_tokens":10,"stream_options":{"a": 1,"include_usage": false}"#);
        assert_eq!(limit(&off, 50), off.replace("false", "true"));
        let none = body(r#","stream":true,"max_tokens":10,"stream_options":null"#);
        assert_eq!(limit(&none, 50), none.replace("null", r#"{"include_usage":true}"#));
        let empty = body(r#","stream":true,"max_tokens":10,"stream_options":{ }"#);
        assert_eq!(limit(&empty, 50), empty.replace("{ }", r#"{"include_usage":true }"#));
        let both = body(r#","max_tokens":900,"max_completion_tokens":10"#);
        assert_eq!(limit(&both, 50), both.replace("900", "50"));
        let null = body(r#","max_tokens":null"#);
        assert_eq!(limit(&null, 50), null.replace("null", "50"));
        let same = body(r#","max_tokens":50"#);
        assert_eq!(limit(&same, 50), same);
    }
}
