//! The top-level fields of a JSON object as ranges of its bytes, so that one value can be replaced while every
//! other byte stays.

use std::ops::Range;

/// Where the parts of an object are. The text has passed `handoff_protocol::json::check`.
pub(super) struct Fields {
    fields: Vec<Field>,
    /// Just after the opening brace.
    start: usize,
}

pub(super) struct Field {
    /// The key with its escapes resolved; as it is written where it has lone surrogates.
    pub(super) key: String,
    /// Where the value stands.
    pub(super) value: Range<usize>,
}

impl Fields {
    /// The fields of an object, or none if the text is no object.
    pub(super) fn of(text: &[u8]) -> Option<Self> {
        let mut at = space(text, 0);
        if text.get(at) != Some(&b'{') {
            return None;
        }
        at += 1;
        let start = at;
        let mut fields = Vec::new();
        loop {
            at = space(text, at);
            match text.get(at)? {
                b'}' => return Some(Self { fields, start }),
                b',' => at += 1,
                b'"' => {
                    let key = at..value_end(text, at)?;
                    at = space(text, key.end);
                    at = space(text, at + 1);
                    let value = at..value_end(text, at)?;
                    at = value.end;
                    fields.push(Field { key: plain(&text[key]), value });
                }
                _ => return None,
            }
        }
    }

    pub(super) fn get(&self, key: &str) -> Option<&Field> {
        self.fields.iter().find(|field| field.key == key)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Field> {
        self.fields.iter()
    }

    /// The edit that sets a field: its value is replaced where it stands, or it becomes the first one.
    pub(super) fn set(&self, key: &str, value: &str) -> Edit {
        match self.get(key) {
            Some(field) => Edit { at: field.value.clone(), with: value.to_owned() },
            None => {
                let comma = if self.fields.is_empty() { "" } else { "," };
                Edit { at: self.start..self.start, with: format!("\"{key}\":{value}{comma}") }
            }
        }
    }
}

/// Bytes that take the place of others.
pub(super) struct Edit {
    pub(super) at: Range<usize>,
    pub(super) with: String,
}

/// The text after these edits, which do not overlap.
pub(super) fn edited(text: &[u8], mut edits: Vec<Edit>) -> Vec<u8> {
    // Stable, so that two insertions at one place keep their order.
    edits.sort_by_key(|edit| edit.at.start);
    let mut result = Vec::with_capacity(text.len() + 64);
    let mut done = 0;
    for edit in edits {
        result.extend_from_slice(&text[done..edit.at.start]);
        result.extend_from_slice(edit.with.as_bytes());
        done = edit.at.end;
    }
    result.extend_from_slice(&text[done..]);
    result
}

fn space(text: &[u8], at: usize) -> usize {
    let blank = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\n' | b'\r');
    at + text[at.min(text.len())..].iter().take_while(|byte| blank(byte)).count()
}

fn plain(quoted: &[u8]) -> String {
    let raw = || String::from_utf8_lossy(&quoted[1..quoted.len() - 1]).into_owned();
    serde_json::from_slice(quoted).unwrap_or_else(|_| raw())
}

/// Just after the value that begins at `at`.
fn value_end(text: &[u8], mut at: usize) -> Option<usize> {
    let mut depth = 0usize;
    loop {
        match text.get(at)? {
            b'"' => at = string_end(text, at)?,
            b'{' | b'[' => {
                depth += 1;
                at += 1;
            }
            b'}' | b']' => {
                depth -= 1;
                at += 1;
            }
            b',' | b':' | b' ' | b'\t' | b'\n' | b'\r' => at += 1,
            _ => at += scalar_length(&text[at..]),
        }
        if depth == 0 {
            return Some(at);
        }
    }
}

fn string_end(text: &[u8], start: usize) -> Option<usize> {
    let mut at = start + 1;
    loop {
        match text.get(at)? {
            b'"' => return Some(at + 1),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

fn scalar_length(text: &[u8]) -> usize {
    let inside = |byte: &u8| !matches!(byte, b',' | b'}' | b']' | b' ' | b'\t' | b'\n' | b'\r');
    text.iter().take_while(|byte| inside(byte)).count().max(1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn fields_are_where_they_are() {
        let text = br#" { "a" : [1,{"b":"}"}] , "\u0062":-1e5,"c":"x\"y" , "d":{}}"#;
        let fields = Fields::of(text).expect("an object");
        let value =
            |key| fields.get(key).map(|field| std::str::from_utf8(&text[field.value.clone()]).expect("text"));
        assert_eq!(value("a"), Some(r#"[1,{"b":"}"}]"#));
        assert_eq!(value("b"), Some("-1e5"));
        assert_eq!(value("c"), Some(r#""x\"y""#));
        assert_eq!(value("d"), Some("{}"));
        assert!(Fields::of(b"[]").is_none());
    }

    #[test]
    fn setting_a_field_changes_nothing_else() {
        let text = br#"{ "n":1.50 , "z": "\u0000" }"#;
        let fields = Fields::of(text).expect("an object");
        let edits = vec![fields.set("n", "2"), fields.set("m", "3"), fields.set("k", "4")];
        assert_eq!(edited(text, edits), br#"{"m":3,"k":4, "n":2 , "z": "\u0000" }"#);
        let empty = Fields::of(b"{}").expect("an object");
        assert_eq!(edited(b"{}", vec![empty.set("m", "3")]), br#"{"m":3}"#);
    }

    proptest! {
        #[test]
        fn any_object_can_be_edited(keys in prop::collection::btree_map("[a-z\"\\\\é]{0,4}", "[ -~é]{0,6}", 0..6), value: u64) {
            let text = serde_json::to_vec_pretty(&keys).expect("plain data");
            let fields = Fields::of(&text).expect("an object");
            let result = edited(&text, vec![fields.set("max_tokens", &value.to_string())]);
            let mut parsed: serde_json::Value = serde_json::from_slice(&result).expect("still JSON");
            let object = parsed.as_object_mut().expect("an object");
            prop_assert_eq!(object.remove("max_tokens"), Some(value.into()));
            prop_assert_eq!(parsed, serde_json::to_value(&keys).expect("plain data"));
        }
    }
}
