//! Finds its way in JSON text without changing a byte of it: members, elements and strings as slices of the
//! text. Texts are checked before, by [`crate::json::check`] or a parser; on anything else the answers are
//! `None`, never a panic.

/// A member of an object: both as they are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Member<'t> {
    /// The key, with its quotes.
    pub key: &'t str,
    /// The value.
    pub value: &'t str,
}

/// The members of an object, in order. `None` if the text is no object.
pub fn members(object: &str) -> Option<Vec<Member<'_>>> {
    let mut rest = object.trim_ascii().strip_prefix('{')?.strip_suffix('}')?.trim_ascii();
    let mut found = Vec::new();
    while !rest.is_empty() {
        let (key, after) = value(rest).filter(|(key, _)| key.starts_with('"'))?;
        let (value, after) = value(after.trim_ascii_start().strip_prefix(':')?.trim_ascii_start())?;
        found.push(Member { key, value });
        rest = next(after)?;
    }
    Some(found)
}

/// The elements of an array, in order. `None` if the text is no array.
pub fn elements(array: &str) -> Option<Vec<&str>> {
    let mut rest = array.trim_ascii().strip_prefix('[')?.strip_suffix(']')?.trim_ascii();
    let mut found = Vec::new();
    while !rest.is_empty() {
        let (element, after) = value(rest)?;
        found.push(element);
        rest = next(after)?;
    }
    Some(found)
}

/// The value of the member with this key. `None` if there is none, or the text is no object.
pub fn member<'t>(object: &'t str, key: &str) -> Option<&'t str> {
    let found = members(object)?.into_iter().find(|member| string(member.key).as_deref() == Some(key));
    found.map(|member| member.value)
}

/// The text behind a JSON string. A lone surrogate becomes U+FFFD. `None` if it is no string.
pub fn string(literal: &str) -> Option<String> {
    let body = literal.strip_prefix('"')?.strip_suffix('"')?;
    if !body.contains('\\') {
        return Some(body.to_owned());
    }
    let mut text = String::with_capacity(body.len());
    let mut rest = body;
    while let Some(at) = rest.find('\\') {
        text.push_str(&rest[..at]);
        let (decoded, after) = escape(&rest[at..])?;
        text.push(decoded.unwrap_or(char::REPLACEMENT_CHARACTER));
        rest = after;
    }
    text.push_str(rest);
    Some(text)
}

/// The text with every lone surrogate escape replaced by the escape of U+FFFD. `None` if there is none.
pub fn without_lone_surrogates(json: &str) -> Option<String> {
    let mut fixed = String::new();
    let mut kept = 0;
    let mut at = 0;
    while let Some(found) = json[at..].find('\\') {
        let start = at + found;
        let (decoded, after) = escape(&json[start..])?;
        at = json.len() - after.len();
        if decoded.is_none() {
            fixed.push_str(&json[kept..start]);
            fixed.push_str("\\ufffd");
            kept = at;
        }
    }
    if kept == 0 {
        return None;
    }
    fixed.push_str(&json[kept..]);
    Some(fixed)
}

/// Where a slice of a text stands in it.
pub fn place(outer: &str, inner: &str) -> std::ops::Range<usize> {
    let start = inner.as_ptr() as usize - outer.as_ptr() as usize;
    start..start + inner.len()
}

/// What the escape at the beginning stands for (`None`: a lone surrogate), and the rest after it.
fn escape(text: &str) -> Option<(Option<char>, &str)> {
    let kind = *text.as_bytes().get(1)?;
    let plain = match kind {
        b'u' => return unicode(text),
        b'n' => '\n',
        b't' => '\t',
        b'r' => '\r',
        b'b' => '\u{8}',
        b'f' => '\u{c}',
        b'"' | b'\\' | b'/' => char::from(kind),
        _ => return None,
    };
    Some((Some(plain), &text[2..]))
}

fn unicode(text: &str) -> Option<(Option<char>, &str)> {
    let unit = |text: &str| u16::from_str_radix(text.strip_prefix("\\u")?.get(..4)?, 16).ok();
    let first = unit(text)?;
    let after = &text[6..];
    let pair = unit(after).filter(|second| (0xDC00..0xE000).contains(second));
    match (first, pair) {
        (0xD800..0xDC00, Some(second)) => {
            let decoded = char::decode_utf16([first, second]).next()?.ok();
            Some((decoded, &after[6..]))
        }
        _ => Some((char::from_u32(u32::from(first)), after)),
    }
}

/// The value that the text begins with, and what follows it.
fn value(text: &str) -> Option<(&str, &str)> {
    let bytes = text.as_bytes();
    let end = match bytes.first()? {
        b'"' => string_end(bytes, 0)?,
        b'{' | b'[' => container_end(bytes)?,
        _ => {
            let stop = |byte: &u8| matches!(byte, b',' | b'}' | b']' | b' ' | b'\t' | b'\n' | b'\r');
            bytes.iter().position(stop).unwrap_or(bytes.len())
        }
    };
    (end > 0).then(|| text.split_at(end))
}

fn string_end(bytes: &[u8], start: usize) -> Option<usize> {
    let mut at = start + 1;
    loop {
        at += bytes.get(at..)?.iter().position(|byte| matches!(byte, b'"' | b'\\'))?;
        if bytes[at] == b'"' {
            return Some(at + 1);
        }
        at += 2;
    }
}

fn container_end(bytes: &[u8]) -> Option<usize> {
    let mut depth = 0usize;
    let mut at = 0;
    loop {
        match bytes.get(at)? {
            b'"' => {
                at = string_end(bytes, at)?;
                continue;
            }
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth -= 1,
            _ => {}
        }
        at += 1;
        if depth == 0 {
            return Some(at);
        }
    }
}

/// What follows a comma; nothing at the end. `None` on a comma that nothing follows.
fn next(after: &str) -> Option<&str> {
    let after = after.trim_ascii_start();
    match after.strip_prefix(',') {
        Some(rest) => Some(rest.trim_ascii_start()).filter(|rest| !rest.is_empty()),
        None => after.is_empty().then_some(after),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_and_elements_are_slices_of_the_text() {
        let text = r#" { "a" : [1, {"x":"]}"}] , "b\u0062":"q\"," ,"c":-0} "#;
        let found = members(text).expect("an object");
        let pairs: Vec<_> = found.iter().map(|member| (member.key, member.value)).collect();
        let expected =
            [(r#""a""#, r#"[1, {"x":"]}"}]"#), (r#""b\u0062""#, r#""q\"," "#.trim()), (r#""c""#, "-0")];
        assert_eq!(pairs, expected);
        assert_eq!(member(text, "bb"), Some(r#""q\",""#));
        assert_eq!(elements(found[0].value), Some(vec!["1", r#"{"x":"]}"}"#]));
        assert_eq!(&text[place(text, found[2].value)], "-0");
        assert_eq!((members("{}"), elements("[ ]")), (Some(vec![]), Some(vec![])));
    }

    #[test]
    fn what_is_broken_is_none_and_no_panic() {
        for text in ["", "{", "{}x", "{\"a\"}", "{\"a\":}", "{\"a\":1,}", "{1:2}", "{\"a\":\"}", "[}"] {
            assert_eq!(members(text), None, "{text}");
        }
        for text in ["[", "[1,]", "[\"]", "[,]", "x"] {
            assert_eq!(elements(text), None, "{text}");
        }
        for text in ["\"", "\"\\\"", "\"\\u12\"", "\"\\x\"", "7"] {
            assert_eq!(string(text), None, "{text}");
        }
    }

    #[test]
    fn case_s01_lone_surrogates_are_found_and_pairs_are_left() {
        let lone =
            r#"{"k\ud83d":"\ud83d\u0000","ok":"\ud83d\ude00 \\ud83d","low":"\ude00x\ud83d\ud83d\ude00"}"#;
        let fixed =
            r#"{"k\ufffd":"\ufffd\u0000","ok":"\ud83d\ude00 \\ud83d","low":"\ufffdx\ufffd\ud83d\ude00"}"#;
        assert_eq!(without_lone_surrogates(lone).as_deref(), Some(fixed));
        assert_eq!(without_lone_surrogates(fixed), None);
        assert!(serde_json::from_str::<serde_json::Value>(fixed).is_ok());
        assert_eq!(string(r#""\ud83d-\ud83d\ude00\/\n""#).as_deref(), Some("\u{fffd}-😀/\n"));
    }
}
