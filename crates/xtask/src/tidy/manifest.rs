//! Cargo manifests as far as rules look into them.

use super::repo::Repo;

/// A crate's manifest.
pub(super) struct Manifest<'a> {
    pub(super) path: &'a str,
    pub(super) text: &'a str,
    pub(super) table: toml::Table,
}

/// Which kind of dependency it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Section {
    /// Part of what is shipped.
    Normal,
    /// Only tests see it.
    Dev,
    /// Only the build script sees it.
    Build,
}

impl Manifest<'_> {
    /// The crate's name.
    pub(super) fn name(&self) -> &str {
        let package = self.table.get("package").and_then(|package| package.get("name"));
        package.and_then(toml::Value::as_str).unwrap_or("")
    }

    /// All dependencies, target-specific ones included.
    pub(super) fn dependencies(&self) -> Vec<(Section, &str)> {
        let mut found = Vec::new();
        collect(&self.table, &mut found);
        if let Some(targets) = self.table.get("target").and_then(toml::Value::as_table) {
            targets.values().filter_map(toml::Value::as_table).for_each(|target| collect(target, &mut found));
        }
        found
    }

    /// The features that a dependency of what is shipped is asked for.
    pub(super) fn features(&self, dependency: &str) -> Vec<&str> {
        let entry = self.table.get("dependencies").and_then(|found| found.get(dependency));
        let features = entry.and_then(|entry| entry.get("features")).and_then(toml::Value::as_array);
        features.into_iter().flatten().filter_map(toml::Value::as_str).collect()
    }

    /// The first line that starts with this key.
    pub(super) fn line_of(&self, key: &str) -> usize {
        let starts = |line: &str| {
            line.trim_start().strip_prefix(key).is_some_and(|rest| rest.starts_with(['.', ' ', '=']))
        };
        self.text.lines().position(starts).map_or(1, |index| index + 1)
    }
}

fn collect<'t>(table: &'t toml::Table, into: &mut Vec<(Section, &'t str)>) {
    for (section, key) in [
        (Section::Normal, "dependencies"),
        (Section::Dev, "dev-dependencies"),
        (Section::Build, "build-dependencies"),
    ] {
        if let Some(found) = table.get(key).and_then(toml::Value::as_table) {
            into.extend(found.keys().map(|name| (section, name.as_str())));
        }
    }
}

/// The manifests of all crates.
pub(super) fn of_crates(repo: &Repo) -> Vec<Manifest<'_>> {
    let is_manifest = |path: &str| path.starts_with("crates/") && path.ends_with("/Cargo.toml");
    repo.texts()
        .filter(|(path, _)| is_manifest(path))
        .filter_map(|(path, text)| Some(Manifest { path, text, table: text.parse().ok()? }))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependencies_of_every_kind_are_listed() {
        let text = "[package]\nname = \"a\"\n[dependencies]\nx.workspace = true\n[dev-dependencies]\ny = \"1\"\n[target.'cfg(unix)'.dependencies]\nz = \"1\"\n";
        let repo = Repo::of(&[("crates/a/Cargo.toml", text)]);
        let manifests = of_crates(&repo);
        assert_eq!(manifests[0].name(), "a");
        let expected = [(Section::Normal, "x"), (Section::Dev, "y"), (Section::Normal, "z")];
        assert_eq!(manifests[0].dependencies(), expected);
        assert_eq!(manifests[0].line_of("y"), 6);
    }
}
