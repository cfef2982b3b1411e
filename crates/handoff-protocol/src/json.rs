//! A scan over JSON bytes that refuses what a parser must never see: deeper than the one documented limit,
//! and the same key twice in an object. It allocates per level, never recurses, and keeps the bytes as they
//! are: whoever stores them stores what was received.

use crate::limits::JSON_DEPTH;

/// Why a text is not acceptable JSON.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidJson {
    /// Nested deeper than [`JSON_DEPTH`].
    #[error("nested deeper than {JSON_DEPTH} levels at byte {at}")]
    TooDeep {
        /// Where the level opens that is one too many.
        at: usize,
    },
    /// The same key twice in one object: readers disagree about which one counts.
    #[error("the key {key} stands twice in one object, again at byte {at}")]
    DuplicateKey {
        /// The key as it is written, with its quotes, cut after 80 bytes.
        key: String,
        /// Where it stands again.
        at: usize,
    },
    /// Not JSON.
    #[error("not JSON at byte {at}")]
    Syntax {
        /// The first byte that does not fit.
        at: usize,
    },
}

/// Checks a whole text. Lone surrogate escapes, numbers of any size and any key order pass: they are carried
/// as bytes.
///
/// # Errors
/// Says where, and what is wrong there.
pub fn check(text: &[u8]) -> Result<(), InvalidJson> {
    check_around(text, 0)
}

/// Checks a document that holds texts of others, so many levels down: each of those may use the whole depth,
/// and whoever takes them out checks them again.
///
/// # Errors
/// As [`check`].
pub fn check_around(text: &[u8], levels: usize) -> Result<(), InvalidJson> {
    Scan { text, at: 0, open: Vec::new(), deepest: JSON_DEPTH + levels }.run()
}

enum Level {
    Array,
    Object { keys: std::collections::BTreeSet<Vec<u8>> },
}

struct Scan<'t> {
    text: &'t [u8],
    at: usize,
    open: Vec<Level>,
    deepest: usize,
}

impl Scan<'_> {
    fn run(mut self) -> Result<(), InvalidJson> {
        self.value()?;
        while let Some(level) = self.open.last() {
            let object = matches!(level, Level::Object { .. });
            self.space();
            match (self.peek(), object) {
                (Some(b'}'), true) | (Some(b']'), false) => {
                    self.at += 1;
                    self.open.pop();
                }
                (Some(b','), true) => {
                    self.at += 1;
                    self.member()?;
                }
                (Some(b','), false) => {
                    self.at += 1;
                    self.value()?;
                }
                _ => return Err(self.syntax()),
            }
        }
        self.space();
        if self.at == self.text.len() { Ok(()) } else { Err(self.syntax()) }
    }

    /// A scalar, an empty container, or the first value inside a container that then stays open.
    fn value(&mut self) -> Result<(), InvalidJson> {
        loop {
            self.space();
            match self.peek() {
                Some(b'{') => {
                    self.enter(Level::Object { keys: Default::default() })?;
                    self.space();
                    if self.peek() == Some(b'}') {
                        return Ok(());
                    }
                    self.key()?;
                }
                Some(b'[') => {
                    self.enter(Level::Array)?;
                    self.space();
                    if self.peek() == Some(b']') {
                        return Ok(());
                    }
                }
                Some(b'"') => return self.string().map(|_| ()),
                Some(b'-' | b'0'..=b'9') => return self.number(),
                Some(b't') => return self.word(b"true"),
                Some(b'f') => return self.word(b"false"),
                Some(b'n') => return self.word(b"null"),
                _ => return Err(self.syntax()),
            }
        }
    }

    fn member(&mut self) -> Result<(), InvalidJson> {
        self.space();
        self.key()?;
        self.value()
    }

    fn key(&mut self) -> Result<(), InvalidJson> {
        let start = self.at;
        let key = self.string()?;
        let key = self.text[key].to_vec();
        // Two spellings of one key ("a" and "\u0061") are the same key to most readers.
        let plain = unescape(&key);
        if let Some(Level::Object { keys }) = self.open.last_mut()
            && !keys.insert(plain)
        {
            let key = String::from_utf8_lossy(&key).chars().take(80).collect();
            return Err(InvalidJson::DuplicateKey { key, at: start });
        }
        self.space();
        if self.peek() != Some(b':') {
            return Err(self.syntax());
        }
        self.at += 1;
        Ok(())
    }

    fn enter(&mut self, level: Level) -> Result<(), InvalidJson> {
        if self.open.len() == self.deepest {
            return Err(InvalidJson::TooDeep { at: self.at });
        }
        self.open.push(level);
        self.at += 1;
        Ok(())
    }

    fn string(&mut self) -> Result<std::ops::Range<usize>, InvalidJson> {
        if self.peek() != Some(b'"') {
            return Err(self.syntax());
        }
        let start = self.at;
        self.at += 1;
        loop {
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    let range = start..self.at;
                    return match std::str::from_utf8(&self.text[range.clone()]) {
                        Ok(_) => Ok(range),
                        Err(error) => Err(InvalidJson::Syntax { at: start + error.valid_up_to() }),
                    };
                }
                Some(b'\\') => self.escape()?,
                Some(byte) if byte >= b' ' => self.at += 1,
                _ => return Err(self.syntax()),
            }
        }
    }

    fn escape(&mut self) -> Result<(), InvalidJson> {
        self.at += 1;
        match self.peek() {
            Some(b'u') => {
                let digits = self.text.get(self.at + 1..self.at + 5);
                if !digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit)) {
                    return Err(self.syntax());
                }
                self.at += 5;
            }
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => self.at += 1,
            _ => return Err(self.syntax()),
        }
        Ok(())
    }

    fn number(&mut self) -> Result<(), InvalidJson> {
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        match self.peek() {
            Some(b'0') => self.at += 1,
            _ => self.digits()?,
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.digits()?;
        }
        Ok(())
    }

    fn digits(&mut self) -> Result<(), InvalidJson> {
        let start = self.at;
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        if self.at > start { Ok(()) } else { Err(self.syntax()) }
    }

    fn word(&mut self, word: &[u8]) -> Result<(), InvalidJson> {
        if !self.text[self.at..].starts_with(word) {
            return Err(self.syntax());
        }
        self.at += word.len();
        Ok(())
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn syntax(&self) -> InvalidJson {
        InvalidJson::Syntax { at: self.at }
    }
}

/// The key with its escapes resolved as far as comparing keys needs; surrogates stay as they are written.
fn unescape(quoted: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(quoted.len());
    let mut rest = &quoted[1..quoted.len() - 1];
    while let [first, tail @ ..] = rest {
        if *first != b'\\' {
            plain.push(*first);
            rest = tail;
            continue;
        }
        let (escaped, length) = match tail[0] {
            b'u' => {
                let hex = std::str::from_utf8(&tail[1..5]).expect("scanned as hexadecimal digits");
                let code = u32::from_str_radix(hex, 16).expect("scanned as hexadecimal digits");
                (char::from_u32(code).map(String::from).unwrap_or_else(|| format!("\\u{hex}")), 5)
            }
            b'n' => ("\n".to_owned(), 1),
            b't' => ("\t".to_owned(), 1),
            b'r' => ("\r".to_owned(), 1),
            b'b' => ("\u{8}".to_owned(), 1),
            b'f' => ("\u{c}".to_owned(), 1),
            other => (char::from(other).to_string(), 1),
        };
        plain.extend_from_slice(escaped.as_bytes());
        rest = &tail[length..];
    }
    plain
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn nested(levels: usize) -> Vec<u8> {
        format!("{}{}", "[".repeat(levels), "]".repeat(levels)).into_bytes()
    }

    #[test]
    fn case_s15_one_depth_limit_and_no_crash() {
        for levels in [1, 127, 128] {
            assert_eq!(check(&nested(levels)), Ok(()), "{levels}");
        }
        for levels in [129, 5_000, 100_000] {
            assert_eq!(check(&nested(levels)), Err(InvalidJson::TooDeep { at: 128 }), "{levels}");
        }
        let wrapped = |levels| [&b"{\"state\":"[..], &nested(levels), b"}"].concat();
        assert_eq!(check_around(&wrapped(128), 1), Ok(()));
        assert!(check_around(&wrapped(129), 1).is_err() && check(&wrapped(128)).is_err());
    }

    #[test]
    fn case_s14_and_s01_bytes_that_parsers_change_pass() {
        for text in [
            r#"[117.63331139400017,1.5777777777770001,18446744073709551616,1e400,-0]"#,
            r#"{"\ud83d":"\ud83d alone","n":"\u0000"}"#,
            r#"{"b":1,"a":2}"#,
            " [ ] ",
        ] {
            assert_eq!(check(text.as_bytes()), Ok(()), "{text}");
        }
    }

    #[test]
    fn case_s16_duplicate_keys_are_refused_even_when_spelt_differently() {
        for text in [r#"{"a":1,"a":2}"#, r#"{"a":1,"\u0061":2}"#, r#"[{"b":{"c":1,"x":[],"c":2}}]"#] {
            assert!(matches!(check(text.as_bytes()), Err(InvalidJson::DuplicateKey { .. })), "{text}");
        }
        assert_eq!(check(br#"{"a":{"a":1},"b":{"a":1}}"#), Ok(()));
    }

    #[test]
    fn what_is_not_json_is_refused() {
        for text in [
            "",
            " ",
            "{",
            "]",
            "[1,]",
            "{\"a\"}",
            "{\"a\":}",
            "{,}",
            "01",
            "1.",
            "-",
            "1e",
            "tru",
            "\"",
            "\"\\x\"",
            "\"\\u12\"",
            "\"a\nb\"",
            "1 2",
            "[1 2]",
            "{\"a\":1 \"b\":2}",
            "nullx",
            "'a'",
            "{a:1}",
            "[1}",
        ] {
            assert!(matches!(check(text.as_bytes()), Err(InvalidJson::Syntax { .. })), "{text}");
        }
        assert!(check(b"\"\xff\"").is_err());
    }

    proptest! {
        #[test]
        fn agrees_with_a_parser_on_random_text(text in "[\\[\\]{}\",:0-9a-e.\\-\\\\u tfn]{0,24}") {
            let parsed = serde_json::from_str::<&serde_json::value::RawValue>(&text).is_ok();
            let checked = check(text.as_bytes());
            let scanned = !matches!(checked, Err(InvalidJson::Syntax { .. }));
            prop_assert_eq!(parsed, scanned, "{:?} on {}", checked, text);
        }
    }
}
