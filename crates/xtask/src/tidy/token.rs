//! Rust as a flat list of tokens with their lines. Most rules need no more than that, and a list is read many
//! times faster than a syntax tree is built.

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

/// A token with its line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Token {
    pub(super) line: usize,
    pub(super) kind: Kind,
    /// For a delimiter, the place of the one that belongs to it.
    pub(super) mate: usize,
}

/// What a token is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kind {
    /// A name or keyword.
    Name(String),
    /// A literal as it is written.
    Literal(String),
    /// A sign; `::` is two of them.
    Sign(char),
    /// An opening delimiter.
    Open(char),
    /// A closing delimiter.
    Close,
}

impl Token {
    /// The name that it is.
    pub(super) fn name(&self) -> Option<&str> {
        match &self.kind {
            Kind::Name(name) => Some(name),
            Kind::Literal(_) | Kind::Sign(_) | Kind::Open(_) | Kind::Close => None,
        }
    }

    /// Whether it is this sign.
    pub(super) fn is(&self, sign: char) -> bool {
        self.kind == Kind::Sign(sign)
    }

    /// Whether it opens with this delimiter.
    pub(super) fn opens(&self, delimiter: char) -> bool {
        self.kind == Kind::Open(delimiter)
    }
}

/// Why a text is not Rust.
pub(super) struct NotRust {
    pub(super) line: usize,
    pub(super) why: String,
}

/// Reads a text. Comments are no tokens, and doc comments are comments.
pub(super) fn read(text: &str) -> Result<Vec<Token>, NotRust> {
    let stream: TokenStream = text.parse().map_err(|error: proc_macro2::LexError| NotRust {
        line: error.span().start().line.max(1),
        why: error.to_string(),
    })?;
    let mut tokens = Vec::with_capacity(text.len() / 4);
    flatten(stream, &mut tokens);
    Ok(tokens)
}

fn flatten(stream: TokenStream, into: &mut Vec<Token>) {
    for tree in stream {
        let line = tree.span().start().line;
        let kind = match tree {
            TokenTree::Ident(name) => Kind::Name(name.to_string()),
            TokenTree::Literal(literal) => Kind::Literal(literal.to_string()),
            TokenTree::Punct(sign) => Kind::Sign(sign.as_char()),
            TokenTree::Group(group) => {
                if !is_doc(&group) {
                    open(&group, into);
                }
                continue;
            }
        };
        into.push(Token { line, kind, mate: 0 });
    }
}

fn open(group: &Group, into: &mut Vec<Token>) {
    let delimiter = match group.delimiter() {
        Delimiter::Parenthesis => '(',
        Delimiter::Brace => '{',
        Delimiter::Bracket => '[',
        Delimiter::None => ' ',
    };
    let opened = into.len();
    into.push(Token { line: group.span_open().start().line, kind: Kind::Open(delimiter), mate: 0 });
    flatten(group.stream(), into);
    into[opened].mate = into.len();
    into.push(Token { line: group.span_close().end().line, kind: Kind::Close, mate: opened });
}

/// A doc comment, which is prose although it arrives as an attribute.
fn is_doc(group: &Group) -> bool {
    if group.delimiter() != Delimiter::Bracket {
        return false;
    }
    let mut inner = group.stream().into_iter();
    let is_doc = matches!(inner.next(), Some(TokenTree::Ident(name)) if name == "doc");
    is_doc && matches!(inner.next(), Some(TokenTree::Punct(sign)) if sign.as_char() == '=')
}

/// What a string literal says; none for any other literal.
pub(super) fn unquoted(literal: &str) -> Option<String> {
    if let Some(raw) = literal.strip_prefix('r') {
        let hashes = raw.len() - raw.trim_start_matches('#').len();
        let inner = raw.get(hashes + 1..raw.len().checked_sub(hashes + 1)?)?;
        return raw[hashes..].starts_with('"').then(|| inner.to_owned());
    }
    let inner = literal.strip_prefix('"')?.strip_suffix('"')?;
    let mut text = String::with_capacity(inner.len());
    let mut letters = inner.chars().peekable();
    while let Some(letter) = letters.next() {
        if letter != '\\' {
            text.push(letter);
            continue;
        }
        match letters.next()? {
            'n' => text.push('\n'),
            't' => text.push('\t'),
            'r' => text.push('\r'),
            '0' => text.push('\0'),
            // A line that goes on: its break and what is blank after it do not count.
            '\n' => while letters.next_if(|letter| letter.is_whitespace()).is_some() {},
            // Numbered letters are of no interest to any rule.
            'x' => {
                letters.nth(1);
            }
            'u' => {
                letters.by_ref().find(|letter| *letter == '}');
            }
            other => text.push(other),
        }
    }
    Some(text)
}

/// Whether a literal is a floating-point number.
pub(super) fn is_float(literal: &str) -> bool {
    let is_number = literal.starts_with(|letter: char| letter.is_ascii_digit());
    let other_base = ["0x", "0b", "0o"].iter().any(|prefix| literal.starts_with(prefix));
    let is_marked = literal.ends_with("f32") || literal.ends_with("f64");
    is_number && !other_base && (is_marked || literal.contains('.') || exponent(literal))
}

fn exponent(literal: &str) -> bool {
    let digits = literal.trim_start_matches(|letter: char| letter.is_ascii_digit() || letter == '_');
    digits
        .strip_prefix(['e', 'E'])
        .is_some_and(|rest| rest.starts_with(|letter: char| "+-0123456789".contains(letter)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delimiters_know_each_other_and_docs_are_no_tokens() {
        let tokens = read("/// Said.\nfn a(b: [u8; 2]) {\n}\n").map_err(|e| e.why).expect("Rust");
        let names: Vec<&str> = tokens.iter().filter_map(Token::name).collect();
        assert_eq!(names, ["fn", "a", "b", "u8"]);
        let body = tokens.iter().position(|token| token.opens('{')).expect("a body");
        assert_eq!((tokens[body].line, tokens[tokens[body].mate].line), (2, 3));
        assert_eq!(tokens[tokens[body].mate].mate, body);
    }

    #[test]
    fn strings_are_unquoted() {
        assert_eq!(
            unquoted(
                r#""a \"b\" \\ \
            c\n\u{41}\x41.""#
            )
            .as_deref(),
            Some("a \"b\" \\ c\n.")
        );
        assert_eq!(unquoted("r##\"a\"#b\"##").as_deref(), Some("a\"#b"));
        assert_eq!(unquoted("r\"\\n\"").as_deref(), Some("\\n"));
        for other in ["b\"a\"", "'a'", "12", "c\"a\"", "br\"a\""] {
            assert_eq!(unquoted(other), None, "{other}");
        }
    }

    #[test]
    fn floats_are_told_from_other_numbers() {
        for float in ["1.5", "1.", "2e9", "1f64", "1_0E-3", "3_f32"] {
            assert!(is_float(float), "{float}");
        }
        for other in ["1", "0x1e5", "0xf32", "1_000", "\"1.5\"", "7u8", "12usize"] {
            assert!(!is_float(other), "{other}");
        }
    }

    #[test]
    fn what_is_not_rust_says_where() {
        let Err(error) = read("fn a() {}\nfn b( {}\n") else { panic!("read") };
        assert_eq!(error.line, 2, "{}", error.why);
    }
}
