//! `/v1` requests and replies other than the node wire.
//!
//! | command | route | body → reply |
//! |---|---|---|
//! | stage | `POST /v1/transfers` | [`Stage`] → [`Staged`] |
//! | refresh | `POST /v1/transfers/{id}/snapshot` | [`Refresh`] → [`Staged`] |
//! | provision | `POST /v1/transfers/{id}/provision` | [`Provision`] → [`TransferView`] |
//! | push | `POST /v1/transfers/{id}/push` | [`Push`] → [`TransferView`] |
//! | activate | `POST /v1/transfers/{id}/activate` | [`Activate`] → [`TransferView`] |
//! | report usage | `POST /v1/transfers/{id}/report-usage` | [`ReportUsage`] → [`TransferView`] |
//! | raise budget | `POST /v1/transfers/{id}/raise` | [`Raise`] → [`TransferView`] |
//! | terminate | `POST /v1/transfers/{id}/terminate` | [`Terminate`] → [`TransferView`] |
//! | write off | `POST /v1/transfers/{id}/write-off` | [`WriteOff`] → [`TransferView`] |
//! | return | `POST /v1/sessions/{id}/return` | [`Return`] → [`Returned`] |
//! | abandon source | `POST /v1/sessions/{id}/abandon-source` | [`Reasoned`] → [`SessionView`] |
//! | wake | `POST /v1/sessions/{id}/wake` | [`Reasoned`] → [`SessionView`] |
//! | issue token | `POST /v1/tokens` | [`IssueToken`] → [`IssuedToken`] |
//! | approve | `POST /v1/approvals/{id}` | [`Decide`] → [`ApprovalView`] |
//! | reap | `POST /v1/reap` | [`Reasoned`] → [`Reaped`] |

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::document::SnapshotInput;
use crate::id::RequestId;
use crate::{
    Digest, IncarnationId, NanoUsd, NodeId, SessionId, Status, TierName, Timestamp, TokenId, TransferId,
};

/// Labels: what a cost is attributed to. They travel from the session to transfers, usage and metrics.
pub type Labels = BTreeMap<String, String>;

pub use crate::view::{
    ApprovalView, BudgetView, DestinationView, EventType, EventView, LeaseView, SessionView, TransferView,
};

/// Starts a transfer from a snapshot. Exactly one of `snapshot`, `input` and neither: neither means the last
/// accepted snapshot of `session_id`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stage {
    /// Chosen by the caller; made by the server where it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<RequestId>,
    /// The session; left out, a new one is made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<SessionId>,
    /// The session's epoch as the caller knows it; required for a known session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_epoch: Option<u64>,
    /// A sealed snapshot whose blobs have been uploaded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<Digest>,
    /// The minimal input, sealed by the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<SnapshotInput>,
    /// Where the loop runs now, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_host: Option<String>,
    /// The source has stopped at a step boundary and does not go on.
    #[serde(default, rename = "final")]
    pub is_final: bool,
    /// An orchestrator gives up a source it cannot stop, before staging.
    #[serde(default)]
    pub abandon_source: bool,
    /// Labels of a new session.
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    pub labels: Labels,
}

/// Replaces the snapshot of a pending transfer, or asks the live holder for its final one (`final` without a
/// snapshot).
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Refresh {
    /// Chosen by the caller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<RequestId>,
    /// The session's epoch as the caller knows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_epoch: Option<u64>,
    /// The new snapshot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<Digest>,
    /// The minimal input, sealed by the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<SnapshotInput>,
    /// The holder has stopped at a step boundary for this transfer.
    #[serde(default, rename = "final")]
    pub is_final: bool,
    /// The live holder, when its node refreshes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incarnation: Option<IncarnationId>,
}

/// The answer to [`Stage`] and [`Refresh`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Staged {
    /// The transfer.
    pub transfer_id: TransferId,
    /// Its session.
    pub session_id: SessionId,
    /// The session's epoch: what a later `expected_epoch` names.
    pub epoch: u64,
    /// Where it stands.
    pub status: Status,
    /// The snapshot's name.
    pub snapshot: Digest,
    /// Whether it carries the final mark of the present epoch.
    #[serde(rename = "final")]
    pub is_final: bool,
    /// When it expires unless it is activated.
    pub expires_at: Timestamp,
    /// The request id that counts for a repetition.
    pub request_id: RequestId,
}

/// Sizes and budgets a destination. Needs a token for this transfer and `provision_runtime`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Provision {
    /// Chosen by the caller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<RequestId>,
    /// The transfer token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<TokenText>,
    /// The size.
    pub tier: TierName,
    /// What it may spend in all.
    pub budget_usd: NanoUsd,
    /// Take the budget out of what the session's live transfer has left, instead of adding new money.
    #[serde(default)]
    pub carve: bool,
    /// A node; left out, the control plane chooses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_id: Option<NodeId>,
}

/// Has the destination fetch and verify the snapshot; waits for its receipt.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Push {
    /// Chosen by the caller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<RequestId>,
    /// Must equal the staged snapshot where it is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checksum: Option<Digest>,
    /// How long to wait for the receipt, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_ms: Option<u64>,
}

/// Lets the destination claim the session. Needs a token for this transfer and `activate`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Activate {
    /// Chosen by the caller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<RequestId>,
    /// The transfer token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<TokenText>,
    /// How long to wait for the claim, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_ms: Option<u64>,
}

/// Money spent outside the gateway, recorded as a fact: an increment, not a total.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReportUsage {
    /// Chosen by the caller; the same one is billed once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<RequestId>,
    /// How much.
    pub cost_usd: NanoUsd,
    /// What for, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// Names the new absolute budget.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Raise {
    /// Chosen by the caller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<RequestId>,
    /// The new amount in all, not what is added.
    pub budget_usd: NanoUsd,
}

/// Ends a transfer. Never a tool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Terminate {
    /// Chosen by the caller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<RequestId>,
    /// Why, for the event log.
    pub reason: String,
}

/// Closes an epoch whose node will never report again, at its full limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WriteOff {
    /// Chosen by the caller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<RequestId>,
    /// The epoch.
    pub epoch: u64,
    /// Why, for the audit log.
    pub reason: String,
}

/// A frozen source takes its session back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Return {
    /// Made after freezing and durable before it is sent; the same one gets the same answer.
    pub nonce: IncarnationId,
    /// The epoch the source was frozen in.
    pub frozen_epoch: u64,
}

/// The answer to [`Return`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Returned {
    /// The source's new epoch.
    pub epoch: u64,
}

/// A request whose only content is why.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reasoned {
    /// Chosen by the caller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<RequestId>,
    /// Why, for the audit log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The two operations that need a transfer token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    /// Size and budget a destination.
    ProvisionRuntime,
    /// Let the destination claim the session.
    Activate,
}

impl Operation {
    /// The word in tokens, columns and the command line.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ProvisionRuntime => "provision_runtime",
            Self::Activate => "activate",
        }
    }
}

/// Mints a transfer token. Orchestrators only; never a tool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IssueToken {
    /// For this transfer alone.
    pub transfer_id: TransferId,
    /// For this operation alone.
    pub operation: Operation,
    /// How long it is good for, in milliseconds; five minutes where it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_ms: Option<u64>,
    /// The most that `provision_runtime` may ask for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_budget_usd: Option<NanoUsd>,
    /// The only tier that `provision_runtime` may ask for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tier: Option<TierName>,
}

/// A minted token. It is shown once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IssuedToken {
    /// Its id, as it will stand in the audit log.
    pub token_id: TokenId,
    /// The token itself.
    pub token: TokenText,
    /// When it stops being good.
    pub expires_at: Timestamp,
}

/// A token's text. Debug output never shows it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TokenText(String);

impl TokenText {
    /// Wraps a token.
    pub fn new(text: String) -> Self {
        Self(text)
    }

    /// The token, for the one place that sends or verifies it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for TokenText {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TokenText(redacted)")
    }
}

impl Drop for TokenText {
    fn drop(&mut self) {
        zeroize::Zeroize::zeroize(&mut self.0);
    }
}

/// A decision on an approval, by an orchestrator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Decide {
    /// Yes or no.
    pub approve: bool,
}

/// What one round of the reaper did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Reaped {
    /// Transfers that expired.
    pub expired: u64,
    /// Authorisations that were withdrawn.
    pub withdrawn: u64,
    /// Transfers that were terminated after grace.
    pub terminated: u64,
    /// Transfers that were assigned anew.
    pub reassigned: u64,
}
