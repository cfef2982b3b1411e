//! Reading the outermost level of a JSON text without changing or decoding what is inside.
//!
//! A parser that decodes strings refuses lone surrogates and rewrites numbers; this one hands out slices of
//! the text. Every text must have passed `handoff_protocol::json::check` first; on anything else the result
//! is meaningless, but nothing panics and nothing recurses.

/// What a JSON value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Object,
    Array,
    String,
    Null,
    Other,
}

/// What this value is.
pub(crate) fn kind(text: &[u8]) -> Kind {
    match text.iter().find(|byte| !is_space(**byte)) {
        Some(b'{') => Kind::Object,
        Some(b'[') => Kind::Array,
        Some(b'"') => Kind::String,
        Some(b'n') => Kind::Null,
        Some(_) | None => Kind::Other,
    }
}

/// The value of a string, if it is one that has a value: a lone surrogate has none.
pub(crate) fn string(text: &[u8]) -> Option<String> {
    serde_json::from_slice(text).ok()
}

/// The members of an object: keys as they are written, without their quotes, and values.
pub(crate) fn members(text: &[u8]) -> Members<'_> {
    Members(Cursor::inside(text))
}

/// The elements of an array.
pub(crate) fn elements(text: &[u8]) -> Elements<'_> {
    Elements(Cursor::inside(text))
}

/// The value under a key, spelled as it is here.
pub(crate) fn member<'t>(text: &'t [u8], key: &str) -> Option<&'t [u8]> {
    members(text).find(|(name, _)| *name == key.as_bytes()).map(|(_, value)| value)
}

/// Iterator over the members of an object.
pub(crate) struct Members<'t>(Cursor<'t>);

impl<'t> Iterator for Members<'t> {
    type Item = (&'t [u8], &'t [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let key = self.0.value()?;
        let value = self.0.value()?;
        let key = key.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
        Some((key, value))
    }
}

/// Iterator over the elements of an array.
pub(crate) struct Elements<'t>(Cursor<'t>);

impl<'t> Iterator for Elements<'t> {
    type Item = &'t [u8];

    fn next(&mut self) -> Option<Self::Item> {
        self.0.value()
    }
}

struct Cursor<'t> {
    text: &'t [u8],
    at: usize,
}

impl<'t> Cursor<'t> {
    fn inside(text: &'t [u8]) -> Self {
        let open = text.iter().position(|byte| matches!(byte, b'{' | b'['));
        Self { text, at: open.map_or(text.len(), |open| open + 1) }
    }

    /// The next value of this level, or nothing at its end.
    fn value(&mut self) -> Option<&'t [u8]> {
        while self.text.get(self.at).is_some_and(|byte| is_space(*byte) || matches!(byte, b',' | b':')) {
            self.at += 1;
        }
        let start = self.at;
        let mut depth = 0usize;
        while let Some(byte) = self.text.get(self.at) {
            match byte {
                b'"' => self.skip_string(),
                b'{' | b'[' => {
                    depth += 1;
                    self.at += 1;
                }
                b'}' | b']' if depth == 0 => break,
                b'}' | b']' => {
                    depth -= 1;
                    self.at += 1;
                }
                b',' | b':' if depth == 0 => break,
                _ if depth == 0 && is_space(*byte) => break,
                _ => self.at += 1,
            }
            if depth == 0 && matches!(self.text[self.at - 1], b'"' | b'}' | b']') {
                break;
            }
        }
        let end = self.at.min(self.text.len());
        (end > start).then(|| &self.text[start..end])
    }

    fn skip_string(&mut self) {
        self.at += 1;
        while let Some(byte) = self.text.get(self.at) {
            match byte {
                b'"' => {
                    self.at += 1;
                    return;
                }
                b'\\' => self.at += 2,
                _ => self.at += 1,
            }
        }
        self.at = self.text.len();
    }
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text(bytes: &[u8]) -> &str {
        std::str::from_utf8(bytes).expect("UTF-8")
    }

    #[test]
    fn members_and_elements_come_out_as_they_are_written() {
        let object = br#" { "a" : "x,\"}" , "b":[1,{"c":"]"}], "\ud83d":-0,"n":null , "e":{} } "#;
        let found: Vec<_> = members(object).map(|(key, value)| (text(key), text(value))).collect();
        let expected =
            [("a", r#""x,\"}""#), ("b", r#"[1,{"c":"]"}]"#), (r"\ud83d", "-0"), ("n", "null"), ("e", "{}")];
        assert_eq!(found, expected);
        let array: Vec<_> = elements(br#"[ 1e400, "a" ,[],{"x":1}]"#).map(text).collect();
        assert_eq!(array, ["1e400", r#""a""#, "[]", r#"{"x":1}"#]);
        assert_eq!(elements(b"[ ]").count() + members(b"{}").count(), 0);
    }

    #[test]
    fn kinds_and_strings() {
        assert_eq!(
            [kind(b" {"), kind(b"["), kind(b"\"\""), kind(b"null"), kind(b"-1")],
            [Kind::Object, Kind::Array, Kind::String, Kind::Null, Kind::Other]
        );
        assert_eq!(string(br#""a\u00e9""#).as_deref(), Some("aé"));
        assert_eq!(string(br#""\ud83d""#), None);
    }

    proptest! {
        #[test]
        fn any_bytes_come_to_an_end(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            prop_assert!(members(&bytes).count() <= bytes.len());
            prop_assert!(elements(&bytes).count() <= bytes.len());
        }

        #[test]
        fn agrees_with_a_parser(keys in proptest::collection::btree_map("[a-c\\\\\"\\[{ ]{1,4}", ".{0,6}", 0..5)) {
            let object = serde_json::to_string(&keys).expect("strings");
            let found: Vec<_> = members(object.as_bytes())
                .map(|(key, value)| (string(&[b"\"", key, b"\""].concat()).expect("a key"), string(value).expect("a string")))
                .collect();
            prop_assert_eq!(found, keys.into_iter().collect::<Vec<_>>());
        }
    }
}
