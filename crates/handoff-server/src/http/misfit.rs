//! What is wrong with a document, said without anything that was sent: which kind of fault, in which of our own
//! fields, and where. A parser's text repeats values, and a value may be a session's content or a token (H-15, H-28).

use handoff_protocol::digest::InvalidDigest;
use handoff_protocol::id::InvalidRequestId;
use handoff_protocol::reference::InvalidReference;
use serde::Deserializer;
use serde::de::{DeserializeOwned, Error as _, Visitor};

/// What a parser found.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Misfit {
    /// The sentence for whoever sent it.
    pub(super) message: String,
    /// Whether it is an amount of money.
    pub(super) is_amount: bool,
}

/// How the amount type marks what it expects and what it refuses, because a parser's error has no code.
const AMOUNT: &str = "invalid_amount: ";

/// What is wrong with these bytes as a `T`.
pub(super) fn of<T: DeserializeOwned>(bytes: &[u8], error: &serde_json::Error) -> Misfit {
    let (line, column) = (error.line(), error.column());
    let text = error.to_string();
    let text = text.strip_suffix(&format!(" at line {line} column {column}")).unwrap_or(&text);
    let expected = expected(text);
    let is_amount = text.starts_with(AMOUNT) || expected.is_some_and(|what| what.starts_with(AMOUNT));
    let what = if is_amount {
        "the amount is no decimal string with at most nine decimals".to_owned()
    } else {
        fault(text, expected)
    };
    let field = field_at(bytes, line, column)
        .filter(|found| fields::<T>().iter().any(|known| known.as_bytes() == *found));
    let field = field.map(|name| format!(" in the field `{}`", String::from_utf8_lossy(name)));
    let place = if line == 0 { String::new() } else { format!(" at line {line} column {column}") };
    Misfit { message: format!("{what}{}{place}", field.unwrap_or_default()), is_amount }
}

/// The fields of `T`, in words.
pub(super) fn known_fields<T: DeserializeOwned>() -> String {
    fields::<T>().join(", ")
}

/// The fault in words of ours and of the types. Of the parser's own text only names that stand in the types are
/// kept.
fn fault(text: &str, expected: Option<&str>) -> String {
    let kinds = [
        ("invalid type: ", "a value has the wrong type"),
        ("invalid value: ", "a value is not possible"),
        ("invalid length ", "a list has the wrong length"),
        ("unknown variant ", "a word is none of those that are known"),
        ("unknown field ", "a field is unknown"),
    ];
    if let Some((_, words)) = kinds.iter().find(|(start, _)| text.starts_with(start)) {
        return expected.map_or((*words).to_owned(), |what| format!("{words}; expected is {what}"));
    }
    if text.starts_with("missing field ") || text.starts_with("duplicate field ") {
        return text.to_owned();
    }
    // These types refuse with sentences that have no room for what was sent.
    let references = [
        InvalidReference::Scheme,
        InvalidReference::Alphabet,
        InvalidReference::Parts,
        InvalidReference::Field,
    ];
    let mut sentences = references.map(|error| error.to_string()).to_vec();
    sentences.extend([InvalidDigest.to_string(), InvalidRequestId.to_string()]);
    sentences.into_iter().find(|known| known == text).unwrap_or_else(|| "a value is not possible".to_owned())
}

/// What a type says that it expects. It stands last, behind whatever was sent.
fn expected(text: &str) -> Option<&str> {
    if text.ends_with("there are no fields") || text.ends_with("there are no variants") {
        return None;
    }
    text.rsplit_once(", expected ").map(|(_, what)| what)
}

/// The key of the outermost object whose value holds this place.
fn field_at(bytes: &[u8], line: usize, column: usize) -> Option<&[u8]> {
    let start: usize =
        bytes.split_inclusive(|byte| *byte == b'\n').take(line.checked_sub(1)?).map(<[u8]>::len).sum();
    let end = start.saturating_add(column).min(bytes.len());
    let (mut depth, mut at, mut key, mut key_comes) = (0usize, 0, None, false);
    while at < end {
        match bytes[at] {
            b'"' => {
                let close = string_end(bytes, at);
                if depth == 1 && key_comes {
                    (key, key_comes) = (bytes.get(at + 1..close), false);
                }
                at = close;
            }
            b'{' | b'[' => {
                depth += 1;
                key_comes = depth == 1;
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            b',' if depth == 1 => (key, key_comes) = (None, true),
            _ => {}
        }
        at += 1;
    }
    key.filter(|_| depth > 0)
}

/// Where the string that opens at `at` closes.
fn string_end(bytes: &[u8], at: usize) -> usize {
    let mut end = at + 1;
    while end < bytes.len() && bytes[end] != b'"' {
        end += if bytes[end] == b'\\' { 2 } else { 1 };
    }
    end.min(bytes.len())
}

/// The names of the fields of `T`, as its own reader asks for them.
fn fields<T: DeserializeOwned>() -> &'static [&'static str] {
    let mut found: &'static [&'static str] = &[];
    // It reads nothing, so it always ends in an error; what it asked for is the answer.
    let _ = T::deserialize(Ask(&mut found));
    found
}

struct Ask<'a>(&'a mut &'static [&'static str]);

impl<'de> Deserializer<'de> for Ask<'_> {
    type Error = serde::de::value::Error;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Self::Error> {
        Err(Self::Error::custom("nothing is read"))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        *self.0 = fields;
        self.deserialize_any(visitor)
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit
        unit_struct newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

#[cfg(test)]
mod tests {
    use handoff_protocol::node::{Register, Usage};
    use handoff_protocol::request::{Activate, IssueToken, Provision, Raise, Stage};

    use super::*;

    fn misfit<T: DeserializeOwned>(text: &str) -> Misfit {
        let error = serde_json::from_str::<T>(text).err().expect("it does not fit");
        of::<T>(text.as_bytes(), &error)
    }

    #[test]
    fn it_says_which_fault_in_which_field_and_where() {
        for (found, message) in [
            (
                misfit::<Stage>(r#"{"input":{"message_history":"hello"}}"#),
                "a value has the wrong type; expected is a sequence in the field `input` at line 1 column 35",
            ),
            (misfit::<Provision>("{\n\"tier\":\"t\"}"), "missing field `budget_usd` at line 2 column 11"),
            (
                misfit::<Raise>(r#"{"budget_usd":"1","budget_usd":"2"}"#),
                "duplicate field `budget_usd` in the field `budget_usd` at line 1 column 30",
            ),
            (
                misfit::<Raise>(r#"{"budget_usd":1.5}"#),
                "the amount is no decimal string with at most nine decimals in the field `budget_usd` at line 1 \
                 column 17",
            ),
        ] {
            assert_eq!(found.message, message);
        }
        assert_eq!(known_fields::<Raise>(), "request_id, budget_usd");
    }

    fn check<T: DeserializeOwned>(with: &dyn Fn(&str) -> String) {
        let words = ["canary", "canary, expected canary", "missing field canary", "invalid_amount: canary"];
        let strings = words.map(|word| format!("\"{word}\""));
        let others = ["31337", "-31337", "31337.5", "31337e300", "[\"canary\",31337]", "{\"canary\":31337}"];
        for value in strings.iter().map(String::as_str).chain(others).chain(["true", "null"]) {
            let text = with(value);
            let Err(error) = serde_json::from_str::<T>(&text) else { continue };
            let Misfit { message, .. } = of::<T>(text.as_bytes(), &error);
            for sent in ["canary", "31337", "true", "null"] {
                assert!(!message.contains(sent), "{text}: {message}");
            }
        }
    }

    /// H-15, H-28
    #[test]
    fn nothing_that_was_sent_comes_back() {
        for field in fields::<Stage>() {
            check::<Stage>(&|value| format!(r#"{{"{field}":{value}}}"#));
        }
        for field in ["source_host", "message_history", "mcp_config"] {
            check::<Stage>(&|value| format!(r#"{{"input":{{"{field}":{value}}}}}"#));
        }
        check::<Stage>(&|value| format!(r#"{{"input":{{"message_history":[],"mcp_config":[{value}]}}}}"#));
        for field in fields::<Activate>() {
            check::<Activate>(&|value| format!(r#"{{"{field}":{value}}}"#));
        }
        for field in fields::<IssueToken>() {
            check::<IssueToken>(&|value| format!(r#"{{"{field}":{value}}}"#));
        }
        for field in fields::<Provision>() {
            check::<Provision>(&|value| format!(r#"{{"{field}":{value}}}"#));
        }
        for field in fields::<Register>() {
            check::<Register>(&|value| format!(r#"{{"{field}":{value}}}"#));
        }
        for field in fields::<Usage>() {
            check::<Usage>(&|value| format!(r#"{{"{field}":{value}}}"#));
        }
        check::<Stage>(&|value| format!(r#"{{"canary":{value}}}"#));
        check::<Stage>(&|value| format!(r#"{{"labels":{{"canary":{value}}}}}"#));
    }
}
