//! One Rust source: its tokens, its syntax tree, and which of its lines are tests.

use std::ops::RangeInclusive;

use proc_macro2::{Literal, TokenStream, TokenTree};
use syn::spanned::Spanned;
use syn::visit::Visit;

use super::repo::Repo;

/// A parsed source with its place in the repository.
pub(super) struct Source<'a> {
    pub(super) repo: &'a Repo,
    pub(super) path: &'a str,
    pub(super) text: &'a str,
    pub(super) tree: syn::File,
    tokens: Vec<Token>,
    /// The whole file is test code: it lies under `tests/`, or is declared under `#[cfg(test)]`.
    pub(super) is_test_file: bool,
    test_lines: Vec<RangeInclusive<usize>>,
}

/// A token with its line, groups opened up.
#[derive(Debug, Clone)]
pub(super) struct Token {
    pub(super) line: usize,
    pub(super) kind: Kind,
}

/// What a token is.
#[derive(Debug, Clone)]
pub(super) enum Kind {
    /// A name or keyword.
    Name(String),
    /// A literal.
    Literal(Literal),
    /// Any other sign, opening delimiters included.
    Sign(char),
}

/// Why a text is not Rust.
pub(super) struct NotRust {
    pub(super) line: usize,
    pub(super) why: String,
}

impl From<syn::Error> for NotRust {
    fn from(error: syn::Error) -> Self {
        Self { line: error.span().start().line.max(1), why: error.to_string() }
    }
}

impl<'a> Source<'a> {
    pub(super) fn parse(repo: &'a Repo, path: &'a str, text: &'a str) -> Result<Self, NotRust> {
        let stream: TokenStream = text.parse().map_err(|error: proc_macro2::LexError| NotRust {
            line: error.span().start().line.max(1),
            why: error.to_string(),
        })?;
        let mut tokens = Vec::new();
        flatten(stream.clone(), &mut tokens);
        let tree: syn::File = syn::parse2(stream)?;
        let mut spans = TestSpans::default();
        spans.visit_file(&tree);
        let is_test_file = is_test_path(path) || repo.is_test_module(path);
        Ok(Self { repo, path, text, tree, tokens, is_test_file, test_lines: spans.lines })
    }

    /// The crate that the file belongs to.
    pub(super) fn crate_name(&self) -> &str {
        self.path.strip_prefix("crates/").and_then(|rest| rest.split('/').next()).unwrap_or("")
    }

    /// Whether a line is test code.
    pub(super) fn is_test(&self, line: usize) -> bool {
        self.is_test_file || self.test_lines.iter().any(|lines| lines.contains(&line))
    }

    /// All tokens in order.
    pub(super) fn tokens(&self) -> &[Token] {
        &self.tokens
    }

    /// All names in order, with their lines.
    pub(super) fn names(&self) -> impl Iterator<Item = (usize, &str)> {
        self.tokens.iter().filter_map(|token| match &token.kind {
            Kind::Name(name) => Some((token.line, name.as_str())),
            Kind::Literal(_) | Kind::Sign(_) => None,
        })
    }

    /// All string literals in order, unescaped, with their lines.
    pub(super) fn strings(&self) -> impl Iterator<Item = (usize, String)> {
        self.tokens.iter().filter_map(|token| match &token.kind {
            Kind::Literal(literal) => match syn::Lit::new(literal.clone()) {
                syn::Lit::Str(text) => Some((token.line, text.value())),
                _ => None,
            },
            Kind::Name(_) | Kind::Sign(_) => None,
        })
    }

    /// The line on which trailing test modules begin: what stands before it is the file's own length.
    pub(super) fn first_trailing_test_line(&self) -> Option<usize> {
        let trailing = self.tree.items.iter().rev().take_while(|item| match item {
            syn::Item::Mod(module) => module.content.is_some() && is_test(&module.attrs),
            _ => false,
        });
        trailing.last().map(|item| item.span().start().line)
    }
}

fn is_test_path(path: &str) -> bool {
    path.split('/').any(|part| matches!(part, "tests" | "benches" | "examples" | "tests.rs"))
}

/// Whether attributes say `#[test]`, `#[tokio::test]`, `#[cfg(test)]` or the like.
fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let name = attribute.path().segments.last().map(|segment| segment.ident.to_string());
        match (name.as_deref(), &attribute.meta) {
            (Some("test"), _) => true,
            (Some("cfg"), syn::Meta::List(list)) => {
                let words = list.tokens.to_string();
                let words: Vec<&str> = words.split(|letter: char| !letter.is_alphanumeric()).collect();
                words.contains(&"test") && !words.contains(&"not")
            }
            _ => false,
        }
    })
}

#[derive(Default)]
struct TestSpans {
    lines: Vec<RangeInclusive<usize>>,
}

impl<'ast> Visit<'ast> for TestSpans {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        let attributes: &[syn::Attribute] = match item {
            syn::Item::Fn(item) => &item.attrs,
            syn::Item::Mod(item) => &item.attrs,
            syn::Item::Impl(item) => &item.attrs,
            syn::Item::Macro(item) => &item.attrs,
            syn::Item::Use(item) => &item.attrs,
            syn::Item::Struct(item) => &item.attrs,
            syn::Item::Enum(item) => &item.attrs,
            _ => &[],
        };
        if is_test(attributes) {
            self.lines.push(item.span().start().line..=item.span().end().line);
        } else {
            syn::visit::visit_item(self, item);
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        if is_test(&item.attrs) {
            self.lines.push(item.span().start().line..=item.span().end().line);
        }
    }
}

fn flatten(stream: TokenStream, into: &mut Vec<Token>) {
    for tree in stream {
        let line = tree.span().start().line;
        match tree {
            TokenTree::Ident(name) => into.push(Token { line, kind: Kind::Name(name.to_string()) }),
            TokenTree::Literal(literal) => into.push(Token { line, kind: Kind::Literal(literal) }),
            TokenTree::Punct(sign) => into.push(Token { line, kind: Kind::Sign(sign.as_char()) }),
            TokenTree::Group(group) if is_doc(&group) => {}
            TokenTree::Group(group) => {
                let open = match group.delimiter() {
                    proc_macro2::Delimiter::Parenthesis => '(',
                    proc_macro2::Delimiter::Brace => '{',
                    proc_macro2::Delimiter::Bracket => '[',
                    proc_macro2::Delimiter::None => ' ',
                };
                into.push(Token { line, kind: Kind::Sign(open) });
                flatten(group.stream(), into);
            }
        }
    }
}

/// A doc comment, which is prose although it arrives as an attribute.
fn is_doc(group: &proc_macro2::Group) -> bool {
    let mut inner = group.stream().into_iter();
    let is_doc = matches!(inner.next(), Some(TokenTree::Ident(name)) if name == "doc");
    let is_value = matches!(inner.next(), Some(TokenTree::Punct(sign)) if sign.as_char() == '=');
    is_doc && is_value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_lines_are_those_of_test_functions_and_modules() {
        let text = "//! A.\nfn real() {}\n#[tokio::test]\nasync fn one() {\n}\nimpl A {\n    #[cfg(test)]\n    fn two() {}\n    fn real() {}\n}\n#[cfg(not(test))]\nmod real {}\n#[cfg(all(test, unix))]\nmod tests {\n    fn x() {}\n}\n";
        let repo = Repo::of(&[]);
        let source = Source::parse(&repo, "crates/a/src/lib.rs", text).map_err(|e| e.why).expect("Rust");
        let tests: Vec<usize> = (1..=16).filter(|line| source.is_test(*line)).collect();
        assert_eq!(tests, [3, 4, 5, 7, 8, 13, 14, 15, 16]);
        assert_eq!(source.first_trailing_test_line(), Some(13));
        assert_eq!(source.crate_name(), "a");
    }

    #[test]
    fn strings_inside_macros_are_seen() {
        let repo = Repo::of(&[]);
        let text = "//! \"Not\" a string.\nfn a() { run!(r#\"UPDATE \"x\"\"#, b\"no\", \"a\\nb\"); }";
        let source = Source::parse(&repo, "a.rs", text).map_err(|e| e.why).expect("Rust");
        let strings: Vec<String> = source.strings().map(|(_, text)| text).collect();
        assert_eq!(strings, ["UPDATE \"x\"", "a\nb"]);
    }

    #[test]
    fn what_is_not_rust_says_where() {
        let repo = Repo::of(&[]);
        let Err(error) = Source::parse(&repo, "a.rs", "fn a() {}\nfn b( {}\n") else { panic!("parsed") };
        assert_eq!(error.line, 2, "{}", error.why);
    }
}
