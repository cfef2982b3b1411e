//! Says where in a JSON text a byte is, as a path a person can follow.

const COMPONENTS_SHOWN: usize = 12;
const KEY_CHARS: usize = 40;

enum Level {
    Array { index: usize },
    Object { key: String },
}

/// The path of the value that holds the byte at `offset`, such as `.content[0].input`; empty for the whole.
/// The text need not be valid: the path is of what stands before the byte.
pub(crate) fn path_at(text: &[u8], offset: usize) -> String {
    let mut levels = Vec::new();
    let mut at = 0;
    while at < offset.min(text.len()) {
        match text[at] {
            b'{' => levels.push(Level::Object { key: String::new() }),
            b'[' => levels.push(Level::Array { index: 0 }),
            b'}' | b']' => drop(levels.pop()),
            b',' => {
                if let Some(Level::Array { index }) = levels.last_mut() {
                    *index += 1;
                }
            }
            b'"' => {
                let end = string_end(text, at);
                let is_key = text[end..].iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b':');
                if is_key && let Some(Level::Object { key }) = levels.last_mut() {
                    let inner = text.get(at + 1..end - 1).unwrap_or_default();
                    *key = String::from_utf8_lossy(inner).chars().take(KEY_CHARS).collect();
                }
                at = end;
                continue;
            }
            _ => {}
        }
        at += 1;
    }
    print(&levels)
}

fn string_end(text: &[u8], open: usize) -> usize {
    let mut at = open + 1;
    while let Some(byte) = text.get(at) {
        match byte {
            b'"' => return at + 1,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    text.len()
}

fn print(levels: &[Level]) -> String {
    let mut path = String::new();
    for level in levels.iter().take(COMPONENTS_SHOWN) {
        match level {
            Level::Array { index } => path.push_str(&format!("[{index}]")),
            Level::Object { key } if key.is_empty() => {}
            Level::Object { key } => path.push_str(&format!(".{key}")),
        }
    }
    if levels.len() > COMPONENTS_SHOWN {
        path.push('…');
    }
    path
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_path_leads_to_the_byte() {
        let text = br#"{"role":"user","content":[{"a":1},{"b,[":{"c":2,"c":3}}]}"#;
        let again = text.windows(5).rposition(|window| window == br#""c":3"#).expect("there");
        assert_eq!(path_at(text, again), ".content[1].b,[.c");
        assert_eq!(path_at(text, 0), "");
        assert_eq!(path_at(text, text.len()), "");
    }

    #[test]
    fn a_deep_path_is_cut() {
        let deep = "[".repeat(5_000);
        assert_eq!(path_at(deep.as_bytes(), 129), format!("{}…", "[0]".repeat(COMPONENTS_SHOWN)));
    }

    proptest! {
        #[test]
        fn any_bytes_have_a_path(bytes in proptest::collection::vec(any::<u8>(), 0..64), offset in 0usize..80) {
            prop_assert!(path_at(&bytes, offset).len() < 4096);
        }
    }
}
