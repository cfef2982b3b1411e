//! Nothing is left for later in the text: no markers, no holes, no tests that do not run.

use super::{Finding, Repo};

const RULE: &str = "leftover";
const SOURCES: &[&str] = &["rs", "sh", "toml", "yml", "yaml", "sql", "js", "ts", "py", "md"];

// In two pieces each, so that this file does not hold what it forbids.
const MARKERS: &[&str] = &[concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];
const HOLES: &[&str] = &[concat!("to", "do!"), concat!("unimplem", "ented!"), concat!("#[ign", "ore")];

pub(super) fn check(repo: &Repo) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in repo.texts().filter(|(path, _)| is_source(path)) {
        for (index, line) in text.lines().enumerate() {
            findings.extend(advice(path, line).map(|advice| Finding::new(RULE, path, index + 1, advice)));
        }
    }
    findings
}

fn is_source(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    match name.rsplit_once('.') {
        Some((_, extension)) => SOURCES.contains(&extension),
        None => path.starts_with("scripts/") || path.starts_with(".ci/"),
    }
}

fn advice(path: &str, line: &str) -> Option<String> {
    if let Some(marker) = MARKERS.iter().find(|marker| has_word(line, marker)) {
        return Some(format!("do what {marker} says, or file it; the text speaks of what is"));
    }
    let hole = HOLES.iter().find(|hole| path.ends_with(".rs") && line.contains(*hole))?;
    Some(format!("{hole}…: finish it; a test that does not run, or code that is not there, proves nothing"))
}

fn has_word(line: &str, word: &str) -> bool {
    if !line.contains(word) {
        return false;
    }
    let is_part = |letter: char| letter.is_alphanumeric() || letter == '_';
    line.split(|letter: char| !is_part(letter)).any(|found| found == word)
}

#[cfg(test)]
mod tests {
    use super::super::super::tests::of_repo;
    use super::*;

    #[test]
    fn markers_and_holes_are_found_in_every_kind_of_text() {
        let marker = format!("# {}: later", MARKERS[0]);
        let hole = format!("fn a() {{ {}() }}\n", HOLES[1]);
        let test = format!("{}]\n", HOLES[2]);
        let found = of_repo(
            check,
            &[
                ("scripts/test", &marker),
                ("docs/a.md", &format!("x\n{}\n", MARKERS[1])),
                ("crates/a/src/lib.rs", &hole),
                ("crates/a/src/b.rs", &test),
            ],
        );
        assert_eq!(found.len(), 4, "{found:#?}");
        assert!(found[2].starts_with("docs/a.md:2: "), "{found:#?}");
    }

    #[test]
    fn other_words_are_left_alone() {
        let text = format!("{}S and a mktemp {}{}\n", MARKERS[0], MARKERS[2], MARKERS[2]);
        assert!(of_repo(check, &[("a.md", &text), ("LICENSE", MARKERS[0])]).is_empty());
    }
}
