//! A file fits in the head: 400 lines without its tests, 800 for a file of tests.

use super::{Finding, Source};

const RULE: &str = "file-length";
const LIMIT: usize = 400;
const TEST_LIMIT: usize = 800;

pub(super) fn check(source: &Source<'_>) -> Vec<Finding> {
    let own = match source.outline.trailing_tests {
        Some(line) => line - 1,
        None => source.text.lines().count(),
    };
    let limit = if source.is_test_file { TEST_LIMIT } else { LIMIT };
    if own <= limit {
        return Vec::new();
    }
    let advice = format!("{own} lines, at most {limit}; it has two purposes: give each a file");
    vec![Finding::new(RULE, source.path, limit + 1, advice)]
}

#[cfg(test)]
mod tests {
    use super::super::super::tests::of_source;
    use super::*;

    #[test]
    fn only_what_stands_before_the_tests_counts() {
        let long = "fn a() {}\n".repeat(401);
        assert_eq!(of_source(check, "crates/a/src/lib.rs", &long).len(), 1);
        let tested = format!("{}#[cfg(test)]\nmod tests {{\n{long}}}\n", "fn a() {}\n".repeat(400));
        assert!(of_source(check, "crates/a/src/lib.rs", &tested).is_empty());
        let in_the_middle = format!("#[cfg(test)]\nmod tests {{}}\n{long}");
        assert_eq!(of_source(check, "crates/a/src/lib.rs", &in_the_middle).len(), 1);
    }

    #[test]
    fn files_of_tests_may_be_twice_as_long() {
        let long = "fn a() {}\n".repeat(800);
        assert!(of_source(check, "crates/a/tests/it.rs", &long).is_empty());
        assert_eq!(of_source(check, "crates/a/tests/it.rs", &format!("{long}fn b() {{}}\n")).len(), 1);
    }
}
