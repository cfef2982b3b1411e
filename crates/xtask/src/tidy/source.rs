//! One Rust source: its tokens, its outline, and which of its lines are tests.

use super::outline::Outline;
use super::repo::Repo;
use super::token::{self, Kind, NotRust, Token};

/// A source with its place in the repository.
pub(super) struct Source<'a> {
    pub(super) repo: &'a Repo,
    pub(super) path: &'a str,
    pub(super) text: &'a str,
    /// All tokens in order.
    pub(super) tokens: Vec<Token>,
    pub(super) outline: Outline,
    /// The whole file is test code: it lies under `tests/`, or is declared under `#[cfg(test)]`.
    pub(super) is_test_file: bool,
}

impl<'a> Source<'a> {
    pub(super) fn parse(repo: &'a Repo, path: &'a str, text: &'a str) -> Result<Self, NotRust> {
        let tokens = token::read(text)?;
        let outline = Outline::of(&tokens);
        let is_test_file = is_test_path(path) || repo.is_test_module(path);
        Ok(Self { repo, path, text, tokens, outline, is_test_file })
    }

    /// The crate that the file belongs to.
    pub(super) fn crate_name(&self) -> &str {
        self.path.strip_prefix("crates/").and_then(|rest| rest.split('/').next()).unwrap_or("")
    }

    /// Whether a line is test code.
    pub(super) fn is_test(&self, line: usize) -> bool {
        self.is_test_file || self.outline.tests.iter().any(|lines| lines.contains(&line))
    }

    /// All names in order, with their lines.
    pub(super) fn names(&self) -> impl Iterator<Item = (usize, &str)> {
        self.tokens.iter().filter_map(|token| Some((token.line, token.name()?)))
    }

    /// All string literals in order, unescaped, with their lines. Doc comments are not among them.
    pub(super) fn strings(&self) -> impl Iterator<Item = (usize, String)> {
        self.tokens.iter().filter_map(|token| match &token.kind {
            Kind::Literal(text) => Some((token.line, token::unquoted(text)?)),
            Kind::Name(_) | Kind::Sign(_) | Kind::Open(_) | Kind::Close => None,
        })
    }
}

fn is_test_path(path: &str) -> bool {
    path.split('/').any(|part| matches!(part, "tests" | "benches" | "examples" | "tests.rs"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_inside_macros_are_seen_and_doc_comments_are_not() {
        let repo = Repo::of(&[]);
        let text = "//! \"Not\" a string.\nfn a() { run!(r#\"UPDATE \"x\"\"#, b\"no\", \"a\\nb\"); }";
        let source = Source::parse(&repo, "a.rs", text).map_err(|e| e.why).expect("Rust");
        let strings: Vec<String> = source.strings().map(|(_, text)| text).collect();
        assert_eq!(strings, ["UPDATE \"x\"", "a\nb"]);
    }

    #[test]
    fn files_of_tests_are_known_by_their_place() {
        let repo = Repo::of(&[("crates/a/src/lib.rs", "#[cfg(test)]\nmod given;\n")]);
        for (path, is_test) in [
            ("crates/a/tests/b/c.rs", true),
            ("crates/a/src/b/tests.rs", true),
            ("crates/a/src/given.rs", true),
            ("crates/a/src/b.rs", false),
        ] {
            let source = Source::parse(&repo, path, "fn a() {}").map_err(|e| e.why).expect("Rust");
            assert_eq!(source.is_test(1), is_test, "{path}");
            assert_eq!(source.crate_name(), "a");
        }
    }
}
