//! The registry of suites, `scripts/suites.toml`: to add one, add its entry there.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

/// Where the registry stands.
pub(super) const PATH: &str = "scripts/suites.toml";
/// A suite takes at most this long, so that a full run can be taken up again after each.
const LONGEST_MINUTES: u64 = 40;

/// All suites, in the order they run.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Registry {
    suite: Vec<Suite>,
}

/// One suite.
#[derive(Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Suite {
    pub(super) name: String,
    pub(super) tier: Tier,
    /// What it shows, in a few words.
    pub(super) about: String,
    /// It is stopped, and has failed, after this.
    pub(super) limit_minutes: u64,
    /// What it runs, one after the other, until one fails.
    pub(super) steps: Vec<Step>,
    /// Programs that must be there.
    #[serde(default)]
    pub(super) needs: Vec<Need>,
    /// Folders and files whose change voids its record. Empty means all crates but xtask, and the lock file.
    #[serde(default)]
    pub(super) covers: Vec<String>,
}

/// When a suite runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Tier {
    /// With every `scripts/test`.
    Quick,
    /// With `scripts/test --full`, and recorded.
    Full,
}

/// One command.
#[derive(Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Step {
    /// The program and its arguments. `{out}` is the folder that `save` writes to.
    pub(super) run: Vec<String>,
    /// Environment besides the present one.
    #[serde(default)]
    pub(super) env: BTreeMap<String, String>,
    /// A file in `{out}` that takes its standard output.
    #[serde(default)]
    pub(super) save: Option<String>,
}

/// A program that a suite needs, and the packages that bring it.
#[derive(Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Need {
    /// A name that is looked for in PATH, or an absolute path.
    pub(super) program: String,
    /// The package of Debian and its kin.
    pub(super) apt: String,
}

impl Registry {
    /// Reads and checks the registry.
    pub(super) fn load(root: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(root.join(PATH)).with_context(|| format!("reading {PATH}"))?;
        Self::parse(&text).with_context(|| PATH.to_owned())
    }

    /// A registry from its text.
    pub(super) fn parse(text: &str) -> Result<Self> {
        let registry: Self = toml::from_str(text)?;
        let mut names = BTreeSet::new();
        for suite in &registry.suite {
            let name = &suite.name;
            ensure!(names.insert(name.as_str()), "two suites are called '{name}'");
            ensure!(!suite.steps.is_empty(), "suite '{name}' runs nothing");
            ensure!(suite.steps.iter().all(|step| !step.run.is_empty()), "a step of '{name}' runs nothing");
            let limit = suite.limit_minutes;
            ensure!(
                (1..=LONGEST_MINUTES).contains(&limit),
                "suite '{name}' has 1 to {LONGEST_MINUTES} minutes"
            );
        }
        Ok(registry)
    }

    /// The suites of a tier, in order.
    pub(super) fn of(&self, tier: Tier) -> impl Iterator<Item = &Suite> {
        self.suite.iter().filter(move |suite| suite.tier == tier)
    }

    /// All suites, in order.
    pub(super) fn all(&self) -> &[Suite] {
        &self.suite
    }

    /// The suite of this name.
    pub(super) fn find(&self, name: &str) -> Option<&Suite> {
        self.suite.iter().find(|suite| suite.name == name)
    }

    /// All names, in order.
    pub(super) fn names(&self) -> Vec<&str> {
        self.suite.iter().map(|suite| suite.name.as_str()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "[[suite]]\nname = \"a\"\ntier = \"full\"\nabout = \"b\"\nlimit_minutes = 5\nsteps = [{ run = [\"true\"] }]\n";

    #[test]
    fn a_registry_is_read_and_checked() {
        let registry = Registry::parse(ONE).expect("a registry");
        assert_eq!(registry.names(), ["a"]);
        assert_eq!((registry.of(Tier::Full).count(), registry.of(Tier::Quick).count()), (1, 0));
        for bad in [
            ONE.repeat(2),
            ONE.replace("[{ run = [\"true\"] }]", "[]"),
            ONE.replace("[\"true\"]", "[]"),
            ONE.replace("= 5", "= 41"),
            ONE.replace("= 5", "= 0"),
            ONE.replace("about", "abuot"),
            ONE.replace("full", "sometimes"),
        ] {
            assert!(Registry::parse(&bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_repository_s_own_registry_is_sound() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let registry = Registry::load(&root).expect("scripts/suites.toml");
        for name in ["fmt", "tidy", "spec", "clippy", "test", "doctest", "doc", "model", "demo"] {
            assert!(registry.find(name).is_some_and(|suite| suite.tier == Tier::Quick), "{name}");
        }
        let minutes: u64 = registry.of(Tier::Quick).map(|suite| suite.limit_minutes).sum();
        assert!(minutes > 0);
    }
}
