//! What `/v1` shows of a transfer, a session, an event and an approval: never content.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::id::RequestId;
use crate::request::{Labels, Operation};
use crate::{
    ApprovalId, Digest, EventId, IncarnationId, NanoUsd, NodeId, SessionId, Status, TierName, Timestamp,
    TransferId,
};

/// What waits for a person or a policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ApprovalView {
    /// Its id.
    pub approval_id: ApprovalId,
    /// For which transfer.
    pub transfer_id: TransferId,
    /// For which operation.
    pub operation: Operation,
    /// Who asked.
    pub asked_by: String,
    /// What was asked, as it will be bound: tier and budget, or the digest.
    pub subject: BTreeMap<String, String>,
    /// What was decided, if it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approved: Option<bool>,
    /// Until when it can be decided.
    pub expires_at: Timestamp,
}

/// The money of one transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BudgetView {
    /// What it may spend in all.
    pub allocated_usd: NanoUsd,
    /// Spent, over all epochs, by the last reports.
    pub spent_usd: NanoUsd,
    /// Granted to unclosed epochs and not yet reported as spent.
    pub leased_usd: NanoUsd,
    /// Kept for the wind-down.
    pub reserve_usd: NanoUsd,
    /// Whether all is reported and proved: no epoch open, nothing left on a node.
    pub closed: bool,
}

/// The lease of a live transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LeaseView {
    /// Who holds it.
    pub incarnation: IncarnationId,
    /// Until when, by the store's clock.
    pub until: Timestamp,
}

/// Where a transfer runs, or will.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DestinationView {
    /// The node.
    pub node_id: NodeId,
    /// The size.
    pub tier: TierName,
    /// The number of the assignment.
    pub generation: u64,
    /// What the node reported last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed: Option<crate::node::ObservedState>,
    /// Resting: still active, without a sandbox.
    pub resting: bool,
}

/// One transfer, without content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TransferView {
    /// Always `handoff.status.v1`.
    pub schema: String,
    /// The transfer.
    pub transfer: TransferId,
    /// Its session.
    pub session: SessionId,
    /// Where it stands.
    pub status: Status,
    /// The session's epoch.
    pub epoch: u64,
    /// The last epoch in which this transfer held the session, if it ever did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_epoch: Option<u64>,
    /// Rises with every change of it, or of what its node should do.
    pub version: u64,
    /// The snapshot it carries.
    pub snapshot: Digest,
    /// Whether that carries the final mark of the present epoch.
    #[serde(rename = "final")]
    pub is_final: bool,
    /// Its money, once provisioned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<BudgetView>,
    /// Its lease, while it is live.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<LeaseView>,
    /// Its destination, once provisioned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destination: Option<DestinationView>,
    /// Whether the source must go on existing: true until `active` has been seen.
    pub source_must_keep_running: bool,
    /// Why it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// When grace ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace_until: Option<Timestamp>,
    /// When it expires unless activated.
    pub expires_at: Timestamp,
    /// Labels of its session.
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    pub labels: Labels,
    /// Its events, oldest first; a page.
    pub events: Vec<EventView>,
    /// Where the next page starts, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<u64>,
    /// The request id of the call that is answered, where it was a mutating one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<RequestId>,
}

/// The eight types of usage event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EventType {
    /// Staged.
    SnapshotCreated,
    /// Provisioned.
    RuntimeProvisioned,
    /// Pushed.
    StatePushed,
    /// Active, by a claim or by a raised budget (`cause: budget_raised`).
    Activated,
    /// A report counted.
    UsageReported,
    /// The budget was reached.
    Insolvent,
    /// Over, with a reason.
    Terminated,
    /// Never activated in time.
    Expired,
}

impl EventType {
    /// All eight.
    pub const ALL: [Self; 8] = [
        Self::SnapshotCreated,
        Self::RuntimeProvisioned,
        Self::StatePushed,
        Self::Activated,
        Self::UsageReported,
        Self::Insolvent,
        Self::Terminated,
        Self::Expired,
    ];

    /// The word in columns and documents.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::SnapshotCreated => "snapshot_created",
            Self::RuntimeProvisioned => "runtime_provisioned",
            Self::StatePushed => "state_pushed",
            Self::Activated => "activated",
            Self::UsageReported => "usage_reported",
            Self::Insolvent => "insolvent",
            Self::Terminated => "terminated",
            Self::Expired => "expired",
        }
    }

    /// The type with this word.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == word)
    }
}

/// One usage event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EventView {
    /// Its id.
    pub event_id: EventId,
    /// Its place in the transfer's gap-free sequence, from 1.
    pub seq: u64,
    /// What happened.
    #[serde(rename = "type")]
    pub kind: EventType,
    /// When, by the store's clock.
    pub at: Timestamp,
    /// Who did it.
    pub actor: String,
    /// More, in words and figures; never content.
    pub detail: BTreeMap<String, String>,
}

/// One session, without content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SessionView {
    /// The session.
    pub session: SessionId,
    /// Its epoch.
    pub epoch: u64,
    /// Who holds it: `source`, an incarnation, or `none`.
    pub holder: String,
    /// Its pending transfer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending: Option<TransferId>,
    /// Its live transfer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub live: Option<TransferId>,
    /// The last snapshot that was accepted from a holder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_snapshot: Option<Digest>,
    /// Its labels.
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    pub labels: Labels,
}
