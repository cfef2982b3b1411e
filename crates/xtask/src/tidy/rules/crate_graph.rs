//! Who may know whom, read from the manifests and held against [`super::rooms`].

use super::manifest::{self, Manifest, Section};
use super::rooms::{self, Room};
use super::{Finding, Repo};

const RULE: &str = "crate-graph";

pub(super) fn check(repo: &Repo) -> Vec<Finding> {
    manifest::of_crates(repo).iter().flat_map(of_manifest).collect()
}

fn of_manifest(manifest: &Manifest<'_>) -> Vec<Finding> {
    let name = manifest.name();
    let folder = manifest.path.split('/').nth(1).unwrap_or("");
    let say = |key: &str, advice: String| Finding::new(RULE, manifest.path, manifest.line_of(key), advice);
    let Some(room) = rooms::ROOMS.iter().find(|room| room.name == name) else {
        return vec![say("name", format!("give {name} its place in crates/xtask/src/tidy/rooms.rs"))];
    };
    let mut findings = Vec::new();
    if folder != name {
        findings.push(say("name", format!("the folder {folder} and the crate {name} carry the same name")));
    }
    for (section, dependency) in manifest.dependencies() {
        findings.extend(advice(room, section, dependency).map(|advice| say(dependency, advice)));
        if section == Section::Normal && manifest.features(dependency).contains(&rooms::NEVER_SHIPPED) {
            let advice =
                format!("the feature {} takes rules out; only tests may ask for it", rooms::NEVER_SHIPPED);
            findings.push(say(dependency, advice));
        }
    }
    findings
}

fn advice(room: &Room, section: Section, dependency: &str) -> Option<String> {
    let name = room.name;
    if let Some((_, why)) = rooms::BANNED.iter().find(|(banned, _)| *banned == dependency) {
        return Some(format!("{dependency} is banned: {why}"));
    }
    if let Some((_, owners)) = rooms::RESERVED.iter().find(|(reserved, _)| *reserved == dependency)
        && !owners.contains(&name)
    {
        return Some(format!("only {} may see {dependency}", owners.join(" and ")));
    }
    if section == Section::Dev {
        return None;
    }
    if room.must_never_know.contains(&dependency) {
        return Some(format!("{name} must never know {dependency}; let an edge do it"));
    }
    let is_ours = dependency == "xtask" || dependency == "handoff" || dependency.starts_with("handoff-");
    if !is_ours || room.may_know.contains(&dependency) {
        return None;
    }
    let known = if room.may_know.is_empty() { "none of ours".to_owned() } else { room.may_know.join(", ") };
    Some(format!("{name} must not know {dependency}; it may know {known}"))
}

#[cfg(test)]
mod tests {
    use super::super::super::tests::of_repo;
    use super::*;

    fn of_crate(name: &str, sections: &str) -> Vec<String> {
        let path = format!("crates/{name}/Cargo.toml");
        of_repo(check, &[(&path, &format!("[package]\nname = \"{name}\"\n{sections}"))])
    }

    /// H-93
    #[test]
    fn forbidden_edges_are_found() {
        for (name, dependency) in [
            ("handoff-core", "tokio"),
            ("handoff-core", "handoff-store"),
            ("handoff-protocol", "handoff-core"),
            ("handoff-node", "handoff-store"),
            ("handoff-node", "rusqlite"),
            ("handoff-service", "axum"),
            ("handoff-service", "handoff-store"),
            ("handoff-server", "handoff-store"),
            ("handoff-agent", "handoff-core"),
            ("handoff-gateway", "handoff-testkit"),
            ("handoff-client", "sqlx"),
            ("handoff", "axum"),
        ] {
            let found = of_crate(name, &format!("[dependencies]\n{dependency}.workspace = true\n"));
            assert_eq!(found.len(), 1, "{name} → {dependency}: {found:?}");
            assert!(found[0].contains("Cargo.toml:4: "), "{found:?}");
        }
    }

    #[test]
    fn tests_see_more_but_not_reserved_libraries() {
        let store = "[dev-dependencies]\nhandoff-store.workspace = true\nhandoff-testkit.workspace = true\n";
        assert!(of_crate("handoff-server", store).is_empty());
        assert_eq!(of_crate("handoff-server", "[dev-dependencies]\nrusqlite.workspace = true\n").len(), 1);
    }

    #[test]
    fn rules_can_be_taken_out_in_tests_only() {
        let asks = "handoff-core = { path = \"../handoff-core\", features = [\"mutants\"] }\n";
        assert_eq!(of_crate("handoff-store", &format!("[dependencies]\n{asks}")).len(), 1);
        assert!(of_crate("handoff-core", &format!("[dev-dependencies]\n{asks}")).is_empty());
    }

    #[test]
    fn a_crate_without_a_place_is_found() {
        assert_eq!(of_crate("handoff-new", "").len(), 1);
        let misplaced = ("crates/core/Cargo.toml", "[package]\nname = \"handoff-core\"\n");
        assert_eq!(of_repo(check, &[misplaced]).len(), 1);
    }
}
