//! Requirements: each number once and none left out, each with its MUST, SHOULD or MAY, and known to whoever
//! names one. They may stand in any order, so that a new one never renumbers those that tests name.

use std::collections::BTreeSet;

use super::document::Document;
use super::{Difference, PATH};

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

/// Requirements that no source names, with their words.
pub(super) fn uncovered<'a>(document: &'a Document, texts: &[(String, String)]) -> Vec<(u64, &'a str)> {
    let named: BTreeSet<u64> = references(texts)
        .into_iter()
        .filter(|(path, ..)| path.ends_with(".rs"))
        .map(|(.., number)| number)
        .collect();
    let open = document.requirements.iter().filter(|requirement| !named.contains(&requirement.number));
    open.map(|requirement| (requirement.number, requirement.text.as_str())).collect()
}

/// Every mention of a requirement outside the specification, and outside this crate, which speaks of others'.
fn references(texts: &[(String, String)]) -> Vec<(String, usize, u64)> {
    let mut found = Vec::new();
    for (path, text) in texts.iter().filter(|(path, _)| path != PATH && !path.starts_with("crates/xtask/")) {
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
    fn requirements_that_nobody_names_are_listed() {
        let document = Document::parse("- **H-1** It MUST.\n- **H-2** It SHOULD.\n");
        let texts = [
            ("crates/a/tests/a.rs".to_owned(), "// H-2".to_owned()),
            ("README.md".to_owned(), "H-1".to_owned()),
        ];
        assert_eq!(uncovered(&document, &texts), [(1, "It MUST.")]);
    }
}
