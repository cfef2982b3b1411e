//! What an operator decides about the use-cases. The rules themselves are in the core's policy.

use std::collections::BTreeMap;

use handoff_core::Policy;
use handoff_protocol::{NanoUsd, ProjectId};

use crate::token::TokenKeys;

/// Whose everything is while there is one project: the embedded mode.
pub const DEFAULT_PROJECT: ProjectId = ProjectId::from_u128(1);

/// Settings of the service. Durations in milliseconds.
#[derive(Debug)]
pub struct ServiceConfig {
    /// Names this control plane to its nodes; the same for life, also after a restart.
    pub control_plane: String,
    /// The version of the program, for health answers.
    pub version: String,
    /// The project of the embedded mode, and of the reaper.
    pub project: ProjectId,
    /// The rules' settings; the ledger decides by the same.
    pub policy: Policy,
    /// What transfer tokens are signed with.
    pub token_keys: TokenKeys,
    /// How long a transfer token is good for unless its minter says otherwise.
    pub token_ttl_ms: u64,
    /// How long it may be good for at the most.
    pub longest_token_ttl_ms: u64,
    /// How long activate waits for the claim unless the call says otherwise.
    pub activate_wait_ms: u64,
    /// How long push waits for the receipt unless the call says otherwise.
    pub push_wait_ms: u64,
    /// How long a call may wait at all.
    pub longest_wait_ms: u64,
    /// How long an approval can be decided.
    pub approval_ttl_ms: u64,
    /// What is approved without asking anybody.
    pub approvals: ApprovalPolicy,
    /// How often the reaper looks, when nothing is due earlier.
    pub reap_interval_ms: u64,
}

impl ServiceConfig {
    /// The defaults of the protocol.
    pub fn new(control_plane: impl Into<String>, policy: Policy, token_keys: TokenKeys) -> Self {
        Self {
            control_plane: control_plane.into(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            project: DEFAULT_PROJECT,
            policy,
            token_keys,
            token_ttl_ms: 5 * 60_000,
            longest_token_ttl_ms: 60 * 60_000,
            activate_wait_ms: 30_000,
            push_wait_ms: 30_000,
            longest_wait_ms: 10 * 60_000,
            approval_ttl_ms: 15 * 60_000,
            approvals: ApprovalPolicy::default(),
            reap_interval_ms: 30_000,
        }
    }
}

/// What an operator lets pass without asking, by the name of who asks. Whoever is not named is asked for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ApprovalPolicy {
    /// By principal. A principal in the role `source` is never covered.
    pub principals: BTreeMap<String, AutoApproval>,
}

/// How far a principal's requests are approved without asking.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AutoApproval {
    /// All of them.
    Always,
    /// Those whose transfer costs at most so much; more is asked for.
    UpTo(NanoUsd),
    /// None.
    Never,
}

impl ApprovalPolicy {
    /// Whether this principal's request over this budget passes without asking.
    pub fn covers(&self, principal: &str, budget: NanoUsd) -> bool {
        match self.principals.get(principal) {
            Some(AutoApproval::Always) => true,
            Some(AutoApproval::UpTo(most)) => budget <= *most,
            Some(AutoApproval::Never) | None => false,
        }
    }
}
