//! A clone stands alone: no path of one machine, no mirror of one network, no invented person in it.

use super::{Finding, Repo};

const RULE: &str = "machine-facts";
// In two pieces each, so that this file does not hold what it forbids.
const PATHS: &[&str] = &[concat!("/wo", "rk/"), concat!("/ro", "ot/")];
const REGISTRIES: &[&str] = &[
    concat!("replace", "-with"),
    concat!("sparse", "+http"),
    concat!("registry", " = \"http"),
    concat!("--registry", " http"),
    concat!("--index", "-url"),
    concat!("index.crates", ".io"),
    concat!("registry.npmjs", ".org"),
    concat!("files.python", "hosted.org"),
];

pub(super) fn check(repo: &Repo) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in repo.texts().filter(|(path, _)| *path != "Cargo.lock") {
        for (index, line) in text.lines().enumerate() {
            findings.extend(advice(line).map(|advice| Finding::new(RULE, path, index + 1, advice)));
        }
    }
    findings
}

fn advice(line: &str) -> Option<String> {
    if let Some(found) = PATHS.iter().find(|found| line.contains(*found)) {
        return Some(format!("{found}… is a path of one machine; use a temporary or configured folder"));
    }
    if let Some(found) = REGISTRIES.iter().find(|found| line.contains(*found)) {
        return Some(format!(
            "'{found}' names a registry; where packages come from is each machine's own setting"
        ));
    }
    let person = line.contains('@').then(|| line.split_whitespace().find(|word| is_person(word)))??;
    Some(format!("{person}: an invented person; write a role or nothing"))
}

/// An address at the reserved domain, such as stands in for somebody.
fn is_person(word: &str) -> bool {
    let Some((_, host)) = word.split_once('@') else { return false };
    let host: String =
        host.chars().take_while(|letter| letter.is_alphanumeric() || "-.".contains(*letter)).collect();
    host.trim_end_matches('.').ends_with(concat!(".exam", "ple"))
}

#[cfg(test)]
mod tests {
    use super::super::super::tests::of_repo;
    use super::*;

    #[test]
    fn paths_registries_and_people_are_found_in_any_text() {
        let person = format!("by <someone@team{}>", concat!(".exam", "ple"));
        let path = format!("cd {}main", PATHS[0]);
        let registry = format!("{} = \"mirror\"", REGISTRIES[0]);
        let found = of_repo(check, &[("a.md", &person), ("scripts/a", &path), ("c.toml", &registry)]);
        assert_eq!(found.len(), 3, "{found:#?}");
    }

    #[test]
    fn the_sandbox_s_own_paths_and_reserved_hosts_are_left_alone() {
        let text = "/workspace/a\nhttps://vault.example/secret\nuser@host\n/rooted\n";
        assert!(of_repo(check, &[("a.md", text), ("Cargo.lock", REGISTRIES[1])]).is_empty());
    }
}
