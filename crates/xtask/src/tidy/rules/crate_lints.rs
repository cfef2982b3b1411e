//! Every crate takes the workspace's lints, edition, licence and version.

use super::manifest::{self, Manifest};
use super::{Finding, Repo, rooms};

const RULE: &str = "crate-lints";
const INHERITED: &[&str] = &["edition", "license", "publish", "rust-version", "version"];

pub(super) fn check(repo: &Repo) -> Vec<Finding> {
    manifest::of_crates(repo).iter().flat_map(of_manifest).collect()
}

fn of_manifest(manifest: &Manifest<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let lints = manifest.table.get("lints").is_some_and(inherits);
    if !lints && manifest.name() != rooms::UNSAFE {
        findings.push(Finding::new(RULE, manifest.path, 1, "add [lints] workspace = true"));
    }
    let package = manifest.table.get("package");
    for key in INHERITED {
        if !package.and_then(|package| package.get(key)).is_some_and(inherits) {
            findings.push(Finding::new(RULE, manifest.path, 1, format!("write {key}.workspace = true")));
        }
    }
    findings
}

fn inherits(value: &toml::Value) -> bool {
    value.get("workspace").and_then(toml::Value::as_bool) == Some(true)
}

#[cfg(test)]
mod tests {
    use super::super::super::tests::of_repo;
    use super::*;

    fn text(name: &str, lints: &str) -> String {
        let inherited: String = INHERITED.iter().map(|key| format!("{key}.workspace = true\n")).collect();
        format!("[package]\nname = \"{name}\"\n{inherited}{lints}")
    }

    #[test]
    fn only_the_sandbox_may_have_lints_of_its_own() {
        let path = "crates/a/Cargo.toml";
        assert_eq!(of_repo(check, &[(path, &text("handoff-node", ""))]).len(), 1);
        assert_eq!(of_repo(check, &[(path, &text("handoff-node", "[lints]\nworkspace = false\n"))]).len(), 1);
        assert!(of_repo(check, &[(path, &text("handoff-node", "[lints]\nworkspace = true\n"))]).is_empty());
        assert!(of_repo(check, &[(path, &text("handoff-sandbox", ""))]).is_empty());
    }

    #[test]
    fn a_version_of_its_own_is_found() {
        let own = text("handoff-node", "[lints]\nworkspace = true\n")
            .replace("\nversion.workspace = true\n", "\nversion = \"2.0.0\"\n");
        let found = of_repo(check, &[("crates/a/Cargo.toml", &own)]);
        assert_eq!(found, ["crates/a/Cargo.toml:1: write version.workspace = true"]);
    }
}
