//! Every source starts by saying what it is for.

use super::{Finding, Source};

const RULE: &str = "module-doc";

pub(super) fn check(source: &Source<'_>) -> Vec<Finding> {
    let first = source.text.lines().next().unwrap_or("");
    match first.strip_prefix("//!") {
        Some(words) if words.split_whitespace().count() >= 2 => Vec::new(),
        Some(_) | None => vec![Finding::new(
            RULE,
            source.path,
            1,
            "start the file with //! and a sentence that says what it is for",
        )],
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::tests::of_source;
    use super::*;

    #[test]
    fn the_first_line_must_be_a_sentence() {
        for bad in ["fn a() {}\n", "\n//! Too late.\n", "//!\n//! Later.\n", "/// Not this.\nfn a() {}\n", ""]
        {
            assert_eq!(of_source(check, "crates/a/src/lib.rs", bad).len(), 1, "{bad:?}");
        }
        assert!(of_source(check, "crates/a/src/lib.rs", "//! Leases: how long.\n").is_empty());
    }
}
