//! A relative link in a document leads somewhere: to a file that is there, and to a heading that is in it.

use std::collections::BTreeSet;

use super::{Finding, Repo};

const RULE: &str = "link";

pub(super) fn check(repo: &Repo) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in repo.texts().filter(|(path, _)| path.ends_with(".md")) {
        for (line, target) in links(text) {
            if let Some(advice) = dead(repo, path, target) {
                findings.push(Finding::new(RULE, path, line, advice));
            }
        }
    }
    findings
}

fn dead(repo: &Repo, path: &str, target: &str) -> Option<String> {
    let is_elsewhere = target.contains("://") || target.starts_with("mailto:");
    if is_elsewhere {
        return None;
    }
    let (file, heading) = target.split_once('#').unwrap_or((target, ""));
    let place = if file.is_empty() { Some(path.to_owned()) } else { resolve(path, file) };
    let Some(place) = place.filter(|place| repo.has(place)) else {
        return Some(format!("'{target}' is not in the repository; correct the link"));
    };
    if heading.is_empty() || repo.text(&place).is_some_and(|text| anchors(text).contains(heading)) {
        return None;
    }
    Some(format!("'{place}' has no heading '#{heading}'; correct the link"))
}

/// The path that a link of this document means, or none if it leaves the repository.
fn resolve(document: &str, link: &str) -> Option<String> {
    let mut parts: Vec<&str> = document.split('/').collect();
    parts.pop();
    if link.starts_with('/') {
        return None;
    }
    for part in link.trim_end_matches('/').split('/') {
        match part {
            "." => {}
            ".." => {
                parts.pop()?;
            }
            _ => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// Lines of a document outside its code blocks.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut inside = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        let fence = line.trim_start().starts_with("```");
        inside ^= fence;
        (!inside && !fence).then_some((index + 1, line))
    })
}

/// The targets of inline links, with their lines.
fn links(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    for (number, line) in prose(text) {
        // Every second piece between backticks is code.
        for piece in line.split('`').step_by(2) {
            let targets = piece.match_indices("](").filter_map(|(at, opening)| {
                let rest = &piece[at + opening.len()..];
                rest.split_once(')').map(|(target, _)| target.split(' ').next().unwrap_or(target))
            });
            found.extend(targets.map(|target| (number, target)));
        }
        // A link whose text is code: the closing bracket follows a backtick.
        for (at, opening) in line.match_indices("`](") {
            let rest = &line[at + opening.len()..];
            found.extend(rest.split_once(')').map(|(target, _)| (number, target)));
        }
    }
    found.sort_unstable();
    found.dedup();
    found
}

/// The anchors of a document's headings, as forges make them.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut anchors = BTreeSet::new();
    for (_, line) in prose(text).filter(|(_, line)| line.starts_with('#')) {
        let words = line.trim_start_matches('#').trim().to_lowercase();
        let kept = words.chars().filter(|letter| letter.is_alphanumeric() || " -_".contains(*letter));
        let anchor: String = kept.map(|letter| if letter == ' ' { '-' } else { letter }).collect();
        let again = (1..).map(|nth| format!("{anchor}-{nth}"));
        let free = std::iter::once(anchor.clone()).chain(again).find(|name| !anchors.contains(name));
        anchors.extend(free);
    }
    anchors
}

#[cfg(test)]
mod tests {
    use super::super::super::tests::of_repo;
    use super::*;

    const GUIDE: &str = "# The guide\n\n## Add a `driver`, quickly\n\n## Same\n## Same\n";

    #[test]
    fn dead_files_and_headings_are_found() {
        let text =
            "[a](docs/gone.md) and [b](docs/guide.md#nothing)\n[c](../outside.md) [`d`](docs/gone.rs)\n";
        let found = of_repo(check, &[("README.md", text), ("docs/guide.md", GUIDE)]);
        assert_eq!(found.len(), 4, "{found:#?}");
        assert!(found[0].starts_with("README.md:1: "), "{found:#?}");
    }

    #[test]
    fn live_links_code_and_other_sites_pass() {
        let text = "[a](../README.md) [b](guide.md#add-a-driver-quickly) [c](#here) [d](https://a.b/c#d) [e](./)\n[f](guide.md#same-1 \"title\")\n# Here\n`[g](gone.md)`\n```\n[h](gone.md)\n```\n";
        let files = [("docs/a.md", text), ("docs/guide.md", GUIDE), ("README.md", "a\n")];
        assert!(of_repo(check, &files).is_empty(), "{:#?}", of_repo(check, &files));
    }
}
