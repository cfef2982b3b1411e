//! What an operator may set, in `config.toml`. Everything has a safe default; unknown keys are refused.

use std::path::{Path, PathBuf};

use anyhow::Result;
use handoff_core::{OutOfRange, Policy};
use handoff_protocol::{ErrorCode, NanoUsd, Tier};
use serde::{Deserialize, Serialize};

use super::Home;
use crate::refusal::{OrRefuse as _, refuse};

const HOUR_MS: u64 = 3_600_000;
const YEAR_MS: u64 = 365 * 24 * HOUR_MS;

/// All settings.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Where snapshot bytes are kept.
    pub blobs: BlobPlace,
    /// The reaper's fallback interval, in milliseconds; it also wakes at every deadline.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reap_every_ms: Option<u64>,
    /// How long a control plane that was started in the background stays when there is nothing to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_exit_ms: Option<u64>,
    /// Times and sizes that decisions depend on.
    pub policy: PolicySettings,
    /// The node on this machine.
    pub node: NodeSettings,
}

/// Where snapshot bytes are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BlobPlace {
    /// As files below the state directory.
    #[default]
    Directory,
    /// In the embedded database.
    Database,
}

/// Times in milliseconds. What is left out keeps its default.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PolicySettings {
    /// From staging until a transfer expires unless it was activated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_to_live_ms: Option<u64>,
    /// From insolvency until teardown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grace_ms: Option<u64>,
    /// From activate until a claim is too late.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub authorization_ms: Option<u64>,
    /// How long an incarnation may run without renewing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease_ms: Option<u64>,
    /// How often it renews.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub renew_ms: Option<u64>,
    /// The unit of compute that is reserved and charged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tick_ms: Option<u64>,
    /// How long a lease must have been over before another assignment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reassign_after_ms: Option<u64>,
    /// What the last snapshot may cost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub final_snapshot_usd: Option<NanoUsd>,
    /// The sizes on offer, in place of the defaults.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tiers: Vec<Tier>,
}

/// The node on this machine.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NodeSettings {
    /// Start sandboxes although this host cannot enforce everything.
    pub allow_degraded: bool,
    /// How often a running session is checkpointed, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoint_every_ms: Option<u64>,
}

impl Settings {
    /// Reads the state directory's `config.toml`, or the user's, or takes the defaults.
    pub fn load(home: &Home) -> Result<Self> {
        for path in [Some(home.settings()), user_file()].into_iter().flatten() {
            match std::fs::read_to_string(&path) {
                Ok(text) => {
                    let hint = format!("correct {}, as docs/configuration.md says", path.display());
                    let settings: Self = toml::from_str(&text).map_err(|error| {
                        refuse(ErrorCode::Misconfigured, malformed(&path, &text, &error), &hint)
                    })?;
                    settings.check().or_refuse(ErrorCode::Misconfigured, path.display(), hint)?;
                    return Ok(settings);
                }
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => {
                    let message = format!("{} cannot be read: {error}", path.display());
                    return Err(refuse(ErrorCode::Misconfigured, message, "check its permissions"));
                }
            }
        }
        Ok(Self::default())
    }

    /// Whether everything is what it may be.
    fn check(&self) -> Result<()> {
        for (setting, value, may_be) in [
            ("reap_every_ms", self.reap_every_ms, 1_000..=HOUR_MS),
            ("idle_exit_ms", self.idle_exit_ms, 1_000..=YEAR_MS),
            ("checkpoint_every_ms", self.node.checkpoint_every_ms, 1_000..=YEAR_MS),
        ] {
            value.map_or(Ok(()), |value| OutOfRange::check(setting, value, may_be))?;
        }
        Ok(self.policy().check()?)
    }

    /// The policy that the machine decides by.
    pub fn policy(&self) -> Policy {
        let set = &self.policy;
        let mut policy = Policy::default();
        let times = [
            (&mut policy.time_to_live_ms, set.time_to_live_ms),
            (&mut policy.grace_ms, set.grace_ms),
            (&mut policy.authorization_ms, set.authorization_ms),
            (&mut policy.lease_ms, set.lease_ms),
            (&mut policy.renew_ms, set.renew_ms),
            (&mut policy.tick_ms, set.tick_ms),
            (&mut policy.reassign_after_ms, set.reassign_after_ms),
        ];
        for (place, value) in times {
            *place = value.unwrap_or(*place);
        }
        policy.final_snapshot_cost = set.final_snapshot_usd.unwrap_or(policy.final_snapshot_cost);
        if !set.tiers.is_empty() {
            policy.tiers = set.tiers.clone();
        }
        policy
    }
}

/// What does not read, in one line: the parser's own message draws the place over several.
fn malformed(path: &Path, text: &str, error: &toml::de::Error) -> String {
    let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
    let line = before.matches('\n').count() + 1;
    let what = error.message().replace('\n', "; ");
    format!("{}, line {line}: {what}", path.display())
}

fn user_file() -> Option<PathBuf> {
    let from = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let base = from("XDG_CONFIG_HOME").or_else(|| from("HOME").map(|home| home.join(".config")))?;
    Some(base.join("handoff/config.toml"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::refusal::problem;

    /// H-97
    #[test]
    fn unknown_keys_are_refused_and_the_rest_keeps_its_default() {
        let directory = tempfile::tempdir().expect("a directory");
        let home = Home::find(Some(directory.path().to_owned())).expect("named");
        std::fs::write(home.settings(), "[policy]\ngrace_ms = 2000\n").expect("written");
        let policy = Settings::load(&home).expect("as documented").policy();
        assert_eq!((policy.grace_ms, policy.tick_ms), (2000, Policy::default().tick_ms));
        std::fs::write(home.settings(), "[policy]\ngrace = 2\n").expect("written");
        let error = format!("{:#}", Settings::load(&home).expect_err("unknown key"));
        assert!(error.contains("misconfigured") && error.contains("grace"), "{error}");
        assert!(error.contains("config.toml, line 2: ") && !error.contains('\n'), "{error}");
    }

    /// H-97
    #[test]
    fn what_nobody_can_run_by_is_refused_with_key_value_and_range() {
        let tier = "[[policy.tiers]]\nname = \"t\"\negress_bits_per_second = 1\nfrozen_price = 0\n";
        let sizes = "cpu_millis = 0\nmemory_bytes = 0\npids = 0\nrun_price = 18446744073709551615\n";
        let price = "cpu_millis = 1\nmemory_bytes = 1\npids = 1\nrun_price = 18446744073709551615\n";
        for (text, said) in [
            ("reap_every_ms = 0", "reap_every_ms is 0; it may be from 1000 to 3600000"),
            ("idle_exit_ms = 0", "idle_exit_ms is 0; it may be from 1000 to 31536000000"),
            (
                "[node]\ncheckpoint_every_ms = 0",
                "checkpoint_every_ms is 0; it may be from 1000 to 31536000000",
            ),
            ("[policy]\ntick_ms = 0", "tick_ms is 0; it may be from 100 to 3600000"),
            ("[policy]\nlease_ms = 0", "lease_ms is 0; it may be from 1000 to 3600000"),
            (
                "[policy]\nrenew_ms = 60000\nlease_ms = 30000",
                "renew_ms is 60000; it may be from 100 to 10000, a third",
            ),
            ("[policy]\ngrace_ms = 18446744073709551615", "18446744073709551615"),
            (
                "[policy]\ngrace_ms = 9223372036854775807",
                "grace_ms is 9223372036854775807; it may be from 0 to",
            ),
            (&format!("{tier}{sizes}"), "cpu_millis of tier 't' is 0; it may be from 1 to 1000000"),
            (&format!("{tier}{price}"), "run_price of tier 't' is 18446744073709551615; it may be from 0 to"),
        ] {
            let directory = tempfile::tempdir().expect("a directory");
            let home = Home::find(Some(directory.path().to_owned())).expect("named");
            std::fs::write(home.settings(), text).expect("written");
            let problem = problem(&Settings::load(&home).expect_err(text));
            assert_eq!(problem.code, ErrorCode::Misconfigured, "{text}");
            assert!(problem.message.contains(said), "{text}: {}", problem.message);
            assert!(problem.message.contains("config.toml"), "{}", problem.message);
        }
    }
}
