//! Identifiers are spelled the American way, so that grep finds one word for one thing.

use super::{Finding, Source};

const RULE: &str = "spelling";
const PAIRS: &[(&str, &str)] = &[
    ("authoris", "authoriz"),
    ("behaviour", "behavior"),
    ("canceller", "canceler"),
    ("colour", "color"),
    ("initialis", "initializ"),
    ("normalis", "normaliz"),
    ("recognis", "recogniz"),
    ("serialis", "serializ"),
    ("synchronis", "synchroniz"),
];

pub(super) fn check(source: &Source<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let text = source.text.to_lowercase();
    let pairs: Vec<_> = PAIRS.iter().filter(|(found, _)| text.contains(found)).collect();
    if pairs.is_empty() {
        return findings;
    }
    // The names of tests are sentences, and nobody calls them.
    for (line, name) in source.names().filter(|(line, _)| !source.is_test(*line)) {
        let lower = name.to_lowercase();
        if let Some((found, right)) = pairs.iter().find(|(found, _)| lower.contains(found)) {
            findings.push(Finding::new(
                RULE,
                source.path,
                line,
                format!("{name}: write {right}…, not {found}…"),
            ));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::super::tests::of_source;
    use super::*;

    #[test]
    fn identifiers_are_checked_and_sentences_are_not() {
        let bad = "struct AuthorisationOffer;\nfn serialise() {}\n";
        assert_eq!(of_source(check, "crates/a/src/lib.rs", bad).len(), 2);
        assert!(
            of_source(check, "crates/a/src/lib.rs", "/// An authorisation.\nstruct Authorization;")
                .is_empty()
        );
    }
}
