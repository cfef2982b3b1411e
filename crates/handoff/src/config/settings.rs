//! What an operator may set, in `config.toml`. Everything has a safe default; unknown keys are refused.

use std::path::{Path, PathBuf};

use anyhow::Result;
use handoff_core::Policy;
use handoff_protocol::{ErrorCode, NanoUsd, Tier};
use serde::{Deserialize, Serialize};

use super::Home;
use crate::refusal::refuse;

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
                    return toml::from_str(&text).map_err(|error| {
                        refuse(ErrorCode::Misconfigured, malformed(&path, &text, &error), hint)
                    });
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
}
