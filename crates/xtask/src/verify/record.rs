//! `docs/verification.toml`: what the full suites showed, on which code. A record counts as long as the
//! suite's definition and the trees it covers are the ones it was made with.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use anyhow::{Context, Result, bail};
use handoff_protocol::Digest;
use serde::{Deserialize, Serialize};

use super::Outcome;
use super::machine;
use super::suites::Suite;
use crate::git;

const PATH: &str = "docs/verification.toml";
const HEADER: &str =
    "# Written by `scripts/test --full`; read by `scripts/test` and `scripts/test --verified`.\n\n";
const UNCOMMITTED: &str = "uncommitted";
/// Covered besides the crates, where a suite names nothing.
const WORKSPACE: &[&str] = &[".cargo", "Cargo.lock", "Cargo.toml"];

/// All records, by suite.
#[derive(Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Records {
    #[serde(default)]
    suite: BTreeMap<String, Record>,
}

/// What one suite showed.
#[derive(Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Record {
    commit: String,
    machine: String,
    passed: u64,
    failed: u64,
    seconds: u64,
    /// Digest of the suite's entry in the registry.
    definition: String,
    #[serde(default)]
    figures: BTreeMap<String, String>,
    /// Hash by covered path.
    trees: BTreeMap<String, String>,
}

/// What a record is worth now.
pub(super) enum Standing {
    /// It never ran.
    Never,
    /// It ran and failed.
    Failed { commit: String, failed: u64 },
    /// It passed, and this has changed since.
    Changed { commit: String, paths: Vec<String> },
    /// It passed on this very code.
    Verified { commit: String, machine: String, passed: u64, seconds: u64 },
}

impl Standing {
    /// Whether nothing needs to be run.
    pub(super) fn is_verified(&self) -> bool {
        match self {
            Self::Verified { .. } => true,
            Self::Never | Self::Failed { .. } | Self::Changed { .. } => false,
        }
    }
}

impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Never => write!(f, "never ran"),
            Self::Failed { commit, failed } => write!(f, "{failed} failed at {commit}"),
            Self::Changed { commit, paths } => {
                write!(f, "passed at {commit}; changed since: {}", paths.join(", "))
            }
            Self::Verified { commit, machine, passed, seconds } => {
                write!(f, "{passed} passed at {commit} in {seconds} s on {machine}; unchanged since")
            }
        }
    }
}

impl Records {
    /// Reads the records; none where the file does not exist yet.
    pub(super) fn load(root: &Path) -> Result<Self> {
        match std::fs::read_to_string(root.join(PATH)) {
            Ok(text) => toml::from_str(&text).with_context(|| PATH.to_owned()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(error).with_context(|| format!("reading {PATH}")),
        }
    }

    /// What the record of a suite is worth now.
    pub(super) fn standing(&self, root: &Path, suite: &Suite) -> Result<Standing> {
        let Some(record) = self.suite.get(&suite.name) else { return Ok(Standing::Never) };
        let commit = record.commit.clone();
        if record.failed > 0 {
            return Ok(Standing::Failed { commit, failed: record.failed });
        }
        let now = trees(root, suite)?;
        let mut paths: Vec<String> = now
            .iter()
            .filter(|(path, hash)| record.trees.get(*path) != Some(hash))
            .map(|(path, _)| path.clone())
            .collect();
        paths.extend(record.trees.keys().filter(|path| !now.contains_key(*path)).cloned());
        if record.definition != definition(suite) {
            paths.push(format!("its entry in {}", super::suites::PATH));
        }
        if !paths.is_empty() {
            return Ok(Standing::Changed { commit, paths });
        }
        let Record { machine, passed, seconds, .. } = record.clone();
        Ok(Standing::Verified { commit, machine, passed, seconds })
    }

    /// Records an outcome, at once: a run that is cut short loses one suite at most.
    pub(super) fn put(&mut self, root: &Path, suite: &Suite, outcome: &Outcome) -> Result<()> {
        let record = Record {
            commit: git::head(root)?,
            machine: machine::describe(),
            passed: outcome.counts.passed,
            failed: outcome.counts.failed,
            seconds: outcome.seconds,
            definition: definition(suite),
            figures: outcome.counts.figures.clone(),
            trees: trees(root, suite)?,
        };
        self.suite.insert(suite.name.clone(), record);
        let text = format!("{HEADER}{}", toml::to_string_pretty(self)?);
        let (place, fresh) = (root.join(PATH), root.join(format!("{PATH}.new")));
        std::fs::write(&fresh, text).with_context(|| format!("writing {PATH}"))?;
        std::fs::rename(&fresh, &place).with_context(|| format!("writing {PATH}"))
    }
}

/// A record names a commit, so what it covers must be committed.
pub(super) fn must_be_committed(root: &Path, suite: &Suite) -> Result<()> {
    let trees = trees(root, suite)?;
    let dirty: Vec<&str> =
        trees.iter().filter(|(_, hash)| *hash == UNCOMMITTED).map(|(path, _)| path.as_str()).collect();
    if !dirty.is_empty() {
        bail!("commit first, a record names a commit: {} changed", dirty.join(", "));
    }
    Ok(())
}

fn definition(suite: &Suite) -> String {
    let entry = toml::to_string(suite).expect("the registry's own types print");
    Digest::of(entry.as_bytes()).to_string()
}

/// The hash of everything that a suite covers, as it is now.
fn trees(root: &Path, suite: &Suite) -> Result<BTreeMap<String, String>> {
    let changed = git::changed(root)?;
    let is_dirty = |path: &str| {
        changed
            .iter()
            .any(|file| file.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')))
    };
    let hash = |path: String| {
        let hash =
            if is_dirty(&path) { UNCOMMITTED.to_owned() } else { git::tree(root, &path).unwrap_or_default() };
        (path, hash)
    };
    let paths = if suite.covers.is_empty() { everything(root)? } else { suite.covers.clone() };
    Ok(paths.into_iter().map(hash).collect())
}

/// Every crate that can end up in the product or its tests, and what decides how they are built.
fn everything(root: &Path) -> Result<Vec<String>> {
    let files = git::files(root)?;
    let folders = files.iter().filter_map(|path| path.strip_prefix("crates/")?.split_once('/'));
    let mut paths: Vec<String> = folders
        .map(|(name, _)| name)
        .filter(|name| *name != "xtask")
        .map(|name| format!("crates/{name}"))
        .collect();
    paths.dedup();
    paths.extend(WORKSPACE.iter().filter(|path| root.join(path).exists()).map(|path| (*path).to_owned()));
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::super::count::Counts;
    use super::super::suites::Registry;
    use super::*;

    struct World {
        folder: tempfile::TempDir,
        suite: Suite,
        records: Records,
    }

    impl World {
        fn new() -> Self {
            let folder = tempfile::tempdir().expect("a temporary folder");
            let text = "[[suite]]\nname = \"s\"\ntier = \"full\"\nabout = \"a\"\nlimit_minutes = 1\nsteps = [{ run = [\"true\"] }]\n";
            let registry = Registry::parse(text).expect("a registry");
            let world = Self { suite: registry.all()[0].clone(), records: Records::default(), folder };
            world.git(&["init", "--quiet"]);
            std::fs::create_dir(world.folder.path().join("docs")).expect("a fresh folder");
            world.write("crates/a/lib.rs", "1");
            world.write("crates/xtask/main.rs", "1");
            world.write("Cargo.lock", "1");
            world.commit();
            world
        }

        fn git(&self, arguments: &[&str]) {
            let who = ["-c", "user.name=test", "-c", "user.email=test@localhost"];
            let status =
                Command::new("git").args(who).args(arguments).current_dir(self.folder.path()).status();
            assert!(status.expect("git is there").success(), "{arguments:?}");
        }

        fn write(&self, path: &str, text: &str) {
            let place = self.folder.path().join(path);
            std::fs::create_dir_all(place.parent().expect("a folder")).expect("a folder");
            std::fs::write(place, text).expect("a file");
        }

        fn commit(&self) {
            self.git(&["add", "."]);
            self.git(&["commit", "--quiet", "-m", "more"]);
        }

        fn record(&mut self, failed: u64) {
            let counts = Counts { passed: 3, failed, ..Counts::default() };
            let outcome = Outcome { name: "s".to_owned(), counts, seconds: 1, reasons: Vec::new() };
            self.records.put(self.folder.path(), &self.suite, &outcome).expect("written");
        }

        /// As the next run would find it.
        fn standing(&self) -> String {
            let records = Records::load(self.folder.path()).expect("readable");
            records.standing(self.folder.path(), &self.suite).expect("a repository").to_string()
        }
    }

    #[test]
    fn a_record_holds_until_what_it_covers_changes() {
        let mut world = World::new();
        assert_eq!(world.standing(), "never ran");
        world.record(0);
        assert!(world.standing().contains("3 passed at") && world.standing().ends_with("unchanged since"));
        world.commit();
        world.write("crates/xtask/main.rs", "2");
        world.write("README.md", "2");
        world.commit();
        assert!(world.standing().ends_with("unchanged since"), "{}", world.standing());
        world.write("crates/a/lib.rs", "2");
        assert!(world.standing().ends_with("changed since: crates/a"), "{}", world.standing());
        assert!(must_be_committed(world.folder.path(), &world.suite).is_err());
        world.commit();
        assert!(world.standing().ends_with("changed since: crates/a"), "{}", world.standing());
        must_be_committed(world.folder.path(), &world.suite).expect("all is committed");
        world.write("crates/b/lib.rs", "1");
        world.write("Cargo.lock", "2");
        world.commit();
        assert!(world.standing().ends_with("Cargo.lock, crates/a, crates/b"), "{}", world.standing());
    }

    #[test]
    fn failures_and_new_definitions_are_no_verification() {
        let mut world = World::new();
        world.record(2);
        assert!(world.standing().starts_with("2 failed at"), "{}", world.standing());
        world.record(0);
        world.suite.limit_minutes = 2;
        assert!(world.standing().contains("its entry in"), "{}", world.standing());
    }
}
