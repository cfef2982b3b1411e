//! Requirements: each number once and none left out, each with its MUST, SHOULD or MAY, known to whoever names
//! one, and named by a test. They may stand in any order, so that a new one never renumbers those that tests name.

use std::collections::BTreeSet;

use super::document::{Document, NOT_BUILT, Requirement};
use super::{Difference, PATH};
use crate::tidy;

/// Their tests make requirements up.
const MADE_UP: &[&str] = &["crates/xtask/src/spec/document.rs", "crates/xtask/src/spec/requirements.rs"];

/// Tests that are not in test code: a store's own test binary calls them.
const CONTRACT: &str = "crates/handoff-testkit/src/contract/";

/// Everything that is wrong with the numbers and with those who use them.
pub(super) fn check(document: &Document, texts: &[(String, String)]) -> Vec<Difference> {
    let mut found = Vec::new();
    let mut known = BTreeSet::new();
    for requirement in &document.requirements {
        let number = requirement.number;
        if !known.insert(number) {
            found.push(Difference::new(requirement.line, format!("H-{number} is there twice")));
        }
        if !["MUST", "SHOULD", "MAY"].iter().any(|word| requirement.text.contains(word)) {
            found.push(Difference::new(
                requirement.line,
                format!("H-{number} says neither MUST, SHOULD nor MAY"),
            ));
        }
    }
    let highest = known.last().copied().unwrap_or(0);
    for number in (1..highest).filter(|number| !known.contains(number)) {
        found.push(Difference::new(1, format!("H-{number} is left out")));
    }
    for (path, line, number) in references(texts) {
        if !known.contains(&number) {
            found.push(Difference { path, line, what: format!("there is no requirement H-{number}") });
        }
    }
    found
}

/// Requirements that no test names although they are built, or that one names although they are not.
pub(super) fn unheld(document: &Document, texts: &[(String, String)]) -> Vec<Difference> {
    let mut found = Vec::new();
    let named = named_by_tests(texts);
    let held = |requirement: &Requirement| named.iter().any(|(.., number)| *number == requirement.number);
    for requirement in document.requirements.iter().filter(|found| found.is_built && !held(found)) {
        let number = requirement.number;
        let what =
            format!("no test names H-{number}; it needs one, or the mark {NOT_BUILT} if it is not built");
        found.push(Difference::new(requirement.line, what));
    }
    let not_built: BTreeSet<u64> = not_built(document).map(|(number, _)| number).collect();
    for (path, line, number) in named.iter().filter(|(.., number)| not_built.contains(number)) {
        let what = format!("H-{number} is marked {NOT_BUILT} as not built, and a test names it");
        found.push(Difference { path: path.clone(), line: *line, what });
    }
    found
}

/// Requirements that are not built yet, with their words.
pub(super) fn not_built(document: &Document) -> impl Iterator<Item = (u64, &str)> {
    let open = document.requirements.iter().filter(|requirement| !requirement.is_built);
    open.map(|requirement| (requirement.number, requirement.text.as_str()))
}

/// Every mention of a requirement in the documentation of a test: above a function in test code, at the head of a
/// file of tests, or in the contract that all stores keep, whose stories are functions of a library.
fn named_by_tests(texts: &[(String, String)]) -> Vec<(String, usize, u64)> {
    let is_candidate = |(path, text): &&(String, String)| {
        path.ends_with(".rs")
            && !MADE_UP.contains(&path.as_str())
            && (text.contains("H-") || text.contains("#[cfg(test)]"))
    };
    let texts: Vec<(String, String)> = texts.iter().filter(is_candidate).cloned().collect();
    let stories = texts.iter().filter(|(path, _)| path.starts_with(CONTRACT)).flat_map(|(path, text)| {
        text.lines().enumerate().map(|(index, line)| (path.as_str(), index + 1, line))
    });
    let mut found = Vec::new();
    for (path, number, line) in tidy::test_lines(&texts).into_iter().chain(stories) {
        if let Some(words) = line.trim_start().strip_prefix("//").filter(|rest| rest.starts_with(['/', '!']))
        {
            found.extend(mentions(words).into_iter().map(|mention| (path.to_owned(), number, mention)));
        }
    }
    found
}

/// Every mention of a requirement outside the specification and what is made up.
fn references(texts: &[(String, String)]) -> Vec<(String, usize, u64)> {
    let mut found = Vec::new();
    for (path, text) in texts.iter().filter(|(path, _)| path != PATH && !MADE_UP.contains(&path.as_str())) {
        for (index, line) in text.lines().enumerate() {
            found.extend(mentions(line).into_iter().map(|number| (path.clone(), index + 1, number)));
        }
    }
    found
}

fn mentions(line: &str) -> Vec<u64> {
    let starts = line.match_indices("H-").filter(|(at, _)| {
        let before = line[..*at].chars().next_back();
        !before.is_some_and(|letter| letter.is_alphanumeric() || "-_".contains(letter))
    });
    let number = |(at, prefix): (usize, &str)| {
        let rest = &line[at + prefix.len()..];
        let end = rest.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(rest.len());
        rest[..end].parse().ok()
    };
    starts.filter_map(number).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(document: &str, source: &str) -> Vec<String> {
        let texts = [("crates/a/src/lib.rs".to_owned(), source.to_owned())];
        check(&Document::parse(document), &texts).into_iter().map(|found| found.what).collect()
    }

    #[test]
    fn numbers_verbs_and_references_are_checked() {
        let good = "- **H-1** It MUST.\n- **H-2** It SHOULD.\n";
        assert!(said(good, "/// H-1 and (H-2); not SHA-256, PATH-9 or H-.").is_empty());
        assert_eq!(said(good, "// H-3"), ["there is no requirement H-3"]);
        assert!(said("- **H-2** It MUST.\n- **H-1** It MAY.\n", "").is_empty(), "in any order");
        assert_eq!(said("- **H-2** It MUST.\n", ""), ["H-1 is left out"]);
        assert_eq!(said("- **H-1** It MUST.\n- **H-1** It MAY.\n", ""), ["H-1 is there twice"]);
        assert_eq!(said("- **H-1** It does.\n", ""), ["H-1 says neither MUST, SHOULD nor MAY"]);
    }

    #[test]
    fn what_is_built_is_named_by_a_test_and_what_is_not_is_not() {
        let document = Document::parse("- **H-1** It MUST.\n- **H-2** ◌ It SHOULD.\n");
        let unheld = |sources: &[(&str, &str)]| -> Vec<(String, usize)> {
            let texts = sources.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned()));
            let found = unheld(&document, &texts.collect::<Vec<_>>());
            found.into_iter().map(|found| (found.what, found.line)).collect()
        };
        let none = "no test names H-1; it needs one, or the mark ◌ if it is not built".to_owned();
        for held in [
            ("crates/a/tests/a.rs", "//! H-1"),
            ("crates/a/src/a.rs", "#[cfg(test)]\nmod tests {\n    /// H-1\n    #[test]\n    fn a() {}\n}\n"),
            ("crates/handoff-testkit/src/contract/stories/a.rs", "/// It stays. H-1\npub async fn a() {}\n"),
        ] {
            assert_eq!(unheld(&[held]), [], "{held:?}");
        }
        for not_held in [
            ("crates/a/src/a.rs", "/// H-1\nfn a() {}\n#[cfg(test)]\nmod tests {}\n"),
            ("crates/a/tests/a.rs", "const A: &str = \"H-1\"; // H-1"),
            ("crates/a/tests/a.md", "/// H-1"),
            (MADE_UP[0], "#[cfg(test)]\nmod tests {\n    /// H-1\n    #[test]\n    fn a() {}\n}\n"),
        ] {
            assert_eq!(unheld(&[not_held]), [(none.clone(), 1)], "{not_held:?}");
        }
        let named = ("H-2 is marked ◌ as not built, and a test names it".to_owned(), 2);
        assert_eq!(unheld(&[("crates/a/tests/a.rs", "//! H-1\n/// H-2")]), [named]);
    }

    #[test]
    fn what_is_not_built_is_listed() {
        let document = Document::parse("- **H-1** It MUST.\n- **H-2** ◌ It SHOULD.\n- **H-3** It MAY.\n");
        assert_eq!(not_built(&document).collect::<Vec<_>>(), [(2, "It SHOULD.")]);
    }
}
