//! `cargo xtask tidy`: the repository's own rules, each in one small file under `rules/`.
//!
//! A rule looks at one Rust source, or at the repository as a whole, and returns findings that say what to
//! do. Which crate may know what stands in [`rooms`].

mod manifest;
mod outline;
mod repo;
mod rooms;
mod rules;
mod source;
mod token;

use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use anyhow::Result;

use repo::Repo;
use source::Source;

/// One place that breaks a rule.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Finding {
    path: String,
    line: usize,
    rule: &'static str,
    /// What to do about it.
    advice: String,
}

impl Finding {
    fn new(rule: &'static str, path: &str, line: usize, advice: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, rule, advice: advice.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}: {}", self.path, self.line, self.rule, self.advice)
    }
}

/// Checks the repository and prints what is found. True when nothing is.
///
/// # Errors
/// When the files cannot be listed or read.
pub(crate) fn run(root: &Path) -> Result<bool> {
    let started = Instant::now();
    let repo = Repo::load(root)?;
    let findings = check(&repo);
    for finding in &findings {
        println!("{finding}");
    }
    let (files, seconds) = (repo.paths().count(), started.elapsed().as_secs_f32());
    println!("tidy: {} findings in {files} files, {seconds:.1} s", findings.len());
    Ok(findings.is_empty())
}

/// The lines of test code among sources given as path and text, each with its path and number. What is not Rust
/// has none; it is a finding of its own.
pub(crate) fn test_lines(texts: &[(String, String)]) -> Vec<(&str, usize, &str)> {
    let repo = Repo::new(texts.iter().map(|(path, text)| (path.clone(), Some(text.clone()))).collect());
    let mut found = Vec::new();
    for (path, text) in texts.iter().filter(|(path, _)| path.ends_with(".rs")) {
        let Ok(source) = Source::parse(&repo, path, text) else { continue };
        let lines = text.lines().enumerate().map(|(index, line)| (index + 1, line));
        found.extend(
            lines.filter(|(number, _)| source.is_test(*number)).map(|(n, line)| (path.as_str(), n, line)),
        );
    }
    found
}

/// All findings, sorted by place. Every core takes the next file that nobody has taken: a token stream stays
/// on its thread.
fn check(repo: &Repo) -> Vec<Finding> {
    let sources: Vec<(&str, &str)> = repo.texts().filter(|(path, _)| path.ends_with(".rs")).collect();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let next = AtomicUsize::new(0);
    let work = || {
        let mut findings = Vec::new();
        while let Some((path, text)) = sources.get(next.fetch_add(1, Ordering::Relaxed)) {
            findings.extend(check_source(repo, path, text));
        }
        findings
    };
    let mut findings = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let mut findings: Vec<Finding> = rules::OF_REPO.iter().flat_map(|rule| rule(repo)).collect();
        for worker in workers {
            findings.extend(worker.join().expect("a rule never panics"));
        }
        findings
    });
    findings.sort();
    findings.dedup();
    findings
}

fn check_source(repo: &Repo, path: &str, text: &str) -> Vec<Finding> {
    match Source::parse(repo, path, text) {
        Ok(source) => rules::OF_SOURCE.iter().flat_map(|rule| rule(&source)).collect(),
        Err(error) => {
            vec![Finding::new("syntax", path, error.line, format!("cannot be read: {}", error.why))]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What one rule says of one source, as `line: advice`.
    pub(super) fn of_source(rule: fn(&Source<'_>) -> Vec<Finding>, path: &str, text: &str) -> Vec<String> {
        let repo = Repo::of(&[(path, text)]);
        let source = Source::parse(&repo, path, text).map_err(|error| error.why).expect("the sample parses");
        rule(&source).iter().map(|found| format!("{}: {}", found.line, found.advice)).collect()
    }

    /// What one rule says of a repository, as `path:line: advice`.
    pub(super) fn of_repo(rule: fn(&Repo) -> Vec<Finding>, files: &[(&str, &str)]) -> Vec<String> {
        let found = rule(&Repo::of(files));
        found.iter().map(|found| format!("{}:{}: {}", found.path, found.line, found.advice)).collect()
    }

    #[test]
    fn findings_come_from_all_rules_sorted_and_say_where() {
        let repo = Repo::of(&[
            ("crates/handoff-client/src/lib.rs", "fn broken( {"),
            ("crates/handoff-client/src/a.rs", "fn nothing_said() {}\n"),
        ]);
        let lines: Vec<String> = check(&repo).iter().map(Finding::to_string).collect();
        assert_eq!(lines.len(), 2, "{lines:#?}");
        assert!(lines[0].starts_with("crates/handoff-client/src/a.rs:1: module-doc: "), "{}", lines[0]);
        assert!(lines[1].starts_with("crates/handoff-client/src/lib.rs:1: syntax: "), "{}", lines[1]);
    }
}
