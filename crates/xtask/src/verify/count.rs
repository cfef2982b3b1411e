//! Counts and figures, read from what suites print.
//!
//! Understood are the summaries of nextest and of the standard test harness, a line `N passed, N failed`, and
//! `figure: name = value` for a number worth keeping. A suite that prints no counts counts as one.

use std::collections::BTreeMap;

/// What a suite has shown so far.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) passed: u64,
    pub(super) failed: u64,
    /// Tests that exist and did not run: never in order.
    pub(super) ignored: u64,
    pub(super) figures: BTreeMap<String, String>,
    /// Whether the suite printed any.
    pub(super) has_counts: bool,
}

impl Counts {
    /// Looks at one line of output.
    pub(super) fn read(&mut self, line: &str) {
        let line = plain(line);
        let line = line.trim();
        if let Some((name, value)) = line.strip_prefix("figure: ").and_then(|rest| rest.split_once(" = ")) {
            self.figures.insert(name.trim().to_owned(), value.trim().to_owned());
        } else if let Some(counts) = summary(line) {
            for part in counts.split([',', ';']) {
                self.add(part.trim());
            }
        }
    }

    fn add(&mut self, part: &str) {
        let Some((number, what)) = part.split_once(' ') else { return };
        let Ok(number) = number.parse::<u64>() else { return };
        // `4 passed (1 slow, 1 leaky)` is cut at its comma; both pieces read right.
        match what.split(" (").next().unwrap_or(what) {
            "passed" => self.passed += number,
            "failed" | "timed out" | "exec failed" => self.failed += number,
            "ignored" => self.ignored += number,
            _ => return,
        }
        self.has_counts = true;
    }

    /// Closes the account of a suite that ended well, or did not.
    pub(super) fn finish(&mut self, ended_well: bool) {
        if ended_well && !self.has_counts {
            self.passed = 1;
        }
        if !ended_well && self.failed == 0 {
            self.failed = 1;
        }
        if ended_well && self.ignored > 0 {
            self.failed += self.ignored;
        }
    }

    /// What is wrong with the counts of a suite that ended well.
    pub(super) fn complaint(&self) -> Option<String> {
        (self.ignored > 0)
            .then(|| format!("{} tests were ignored; a test runs or is not there", self.ignored))
    }
}

/// The part of a summary line that holds the counts.
fn summary(line: &str) -> Option<&str> {
    if let Some(rest) = line.strip_prefix("Summary [") {
        return rest.split_once(" run: ").map(|(_, counts)| counts);
    }
    if let Some(rest) = line.strip_prefix("test result: ") {
        return rest.split_once(". ").map(|(_, counts)| counts);
    }
    let (passed, failed) = line.strip_suffix(" failed")?.split_once(" passed, ")?;
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    (is_number(passed) && is_number(failed)).then_some(line)
}

/// The line without colors.
fn plain(line: &str) -> String {
    let mut text = String::with_capacity(line.len());
    let mut letters = line.chars();
    while let Some(letter) = letters.next() {
        if letter == '\u{1b}' {
            letters.by_ref().find(|letter| letter.is_ascii_alphabetic());
        } else {
            text.push(letter);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(lines: &[&str]) -> Counts {
        let mut counts = Counts::default();
        lines.iter().for_each(|line| counts.read(line));
        counts
    }

    #[test]
    fn summaries_of_all_harnesses_are_read() {
        for (line, passed, failed) in [
            ("     Summary [   0.286s] 16/41 tests run: 15 passed, 1 failed, 0 skipped", 15, 1),
            (
                "     Summary [  70.2s] 9 tests run: 6 passed (2 slow, 1 leaky), 1 failed, 2 timed out, 3 skipped",
                6,
                3,
            ),
            (
                "\u{1b}[32;1m     Summary\u{1b}[0m [   0.1s] \u{1b}[1m3\u{1b}[0m tests run: \u{1b}[1m3\u{1b}[0m \u{1b}[32;1mpassed\u{1b}[0m, 0 skipped",
                3,
                0,
            ),
            (
                "test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s",
                3,
                0,
            ),
            ("test result: FAILED. 3 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out", 3, 2),
            ("12 passed, 4 failed", 12, 4),
            ("he said 12 passed, 4 failed", 0, 0),
            ("thread 'a' panicked: 4 failed", 0, 0),
        ] {
            let found = counts(&[line]);
            assert_eq!((found.passed, found.failed), (passed, failed), "{line}");
        }
    }

    #[test]
    fn several_summaries_add_up_and_ignored_tests_fail() {
        let mut found = counts(&[
            "test result: ok. 3 passed; 0 failed; 1 ignored",
            "test result: ok. 2 passed; 0 failed; 0 ignored",
        ]);
        found.finish(true);
        assert_eq!((found.passed, found.failed), (5, 1));
        assert!(found.complaint().is_some());
    }

    #[test]
    fn a_suite_that_fails_without_a_failed_test_has_failed() {
        let mut found = counts(&["test result: ok. 3 passed; 0 failed; 0 ignored"]);
        found.finish(false);
        assert_eq!((found.passed, found.failed), (3, 1));
    }

    #[test]
    fn figures_are_kept() {
        let found = counts(&["figure: blackout_p95_ms = 812", "figure: broken"]);
        assert_eq!(found.figures, BTreeMap::from([("blackout_p95_ms".to_owned(), "812".to_owned())]));
    }
}
