//! The node wire: what a node asks of the control plane and reports to it. A node in the same process uses
//! it too.
//!
//! | route | body → reply |
//! |---|---|
//! | `POST /v1/nodes` | [`Register`] → [`Registered`] |
//! | `GET /v1/nodes/{id}/desired?after=REV&wait_s=25` | → [`Desired`] |
//! | `POST /v1/transfers/{id}/receipt` | [`Receipt`] → [`Accepted`] |
//! | `POST /v1/transfers/{id}/claim` | [`Claim`] → [`Claimed`] |
//! | `POST /v1/transfers/{id}/decline` | [`Decline`] → [`Accepted`] |
//! | `POST /v1/transfers/{id}/renew` | [`Renew`] → [`Renewed`] |
//! | `POST /v1/transfers/{id}/rest` | [`Rest`] → [`Accepted`] |
//! | `POST /v1/transfers/{id}/usage` | [`Usage`] → [`UsageAnswer`] |
//! | `POST /v1/transfers/{id}/observed` | [`Observed`] → [`Accepted`] |
//! | `POST /v1/transfers/{id}/checkpoint` | [`Checkpoint`] → [`Accepted`] |
//!
//! A node also refreshes a successor with the final (`POST /v1/transfers/{id}/snapshot`, see
//! [`crate::request::Refresh`]).

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::id::RequestId;
use crate::{
    AuthorizationId, Digest, IncarnationId, NanoUsd, NodeId, SessionId, Tier, Timestamp, Totals, TransferId,
};

/// The entry of [`Register::isolation`] by which a node that cannot enforce everything says that its own settings
/// forbid it to start a sandbox all the same.
pub const DEGRADED_START: &str = "degraded_start";

/// A node says who it is and what it offers; said again at every start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Register {
    /// The node's id; it keeps it for life.
    pub node_id: NodeId,
    /// A name for people, usually the host's.
    pub name: String,
    /// The key that its receipts are verified with: 32 bytes of Ed25519 as lower-case hexadecimal.
    pub public_key: String,
    /// Room for destinations.
    pub capacity: Capacity,
    /// What each limit is enforced by, or why it is not: `memory → "cgroup v1"`.
    pub isolation: BTreeMap<String, String>,
    /// The version of the program.
    pub version: String,
}

/// Room for destinations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Capacity {
    /// Thousandths of a core.
    pub cpu_millis: u64,
    /// Bytes of memory.
    pub memory_bytes: u64,
}

/// The answer to [`Register`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Registered {
    /// How long an incarnation may run without renewing, in milliseconds.
    pub lease_ms: u64,
    /// How often it should renew, in milliseconds.
    pub renew_ms: u64,
}

/// The full list of what a node should hold. Absence from it removes nothing; only [`Want::Gone`] does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Desired {
    /// Which control plane answers; a list from another one is ignored.
    pub control_plane: String,
    /// Rises with every change; lists with a lower one are ignored.
    pub revision: u64,
    /// Every destination that is this node's concern, one entry per transfer and generation.
    pub destinations: Vec<Destination>,
}

/// One destination as it should be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Destination {
    /// The transfer.
    pub transfer_id: TransferId,
    /// Its session.
    pub session_id: SessionId,
    /// The number of this assignment; an older one of the same transfer is another entry, `gone`.
    pub generation: u64,
    /// The transfer's version; an entry with a lower one is ignored.
    pub version: u64,
    /// What should be there.
    pub want: Want,
    /// The authorisation that a claim may use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authorization: Option<AuthorizationOffer>,
    /// The snapshot to hold.
    pub snapshot: Digest,
    /// Whether push has been asked for: the node verifies, restores and sends a receipt.
    pub push: bool,
    /// The size to enforce and charge.
    pub tier: Tier,
    /// The session's epoch, once this transfer has been activated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u64>,
    /// The incarnation that holds the session, if this transfer is live.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<IncarnationId>,
    /// Whether the holder's lease is over, so that a new incarnation may claim.
    #[serde(default)]
    pub lease_over: bool,
    /// Milliseconds of compute that are reserved and charged at a time.
    pub tick_ms: u64,
    /// Milliseconds of grace, counted from insolvency, that the node may charge to the wind-down.
    pub grace_ms: u64,
    /// What the wind-down may cost over all epochs.
    pub wind_down_usd: NanoUsd,
}

/// What a node should make true for one destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Want {
    /// Blobs fetched and a sandbox sized, as far as possible; nothing is accepted by it.
    Warm,
    /// Verified, restored, receipt sent; the agent loaded but idle.
    Prepared,
    /// The agent runs under a lease.
    Running,
    /// The agent is frozen and a checkpoint is taken.
    Frozen,
    /// Checkpointed, no sandbox.
    Resting,
    /// Nothing is left, and that has been reported.
    Gone,
}

/// An authorisation as a node sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuthorizationOffer {
    /// Its id: the spent token's.
    pub id: AuthorizationId,
    /// Milliseconds until it runs out, measured when the list was made.
    pub deadline_ms: u64,
}

/// The node's signed statement that it holds and verified a digest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Receipt {
    /// Chosen by the node; the same receipt may be sent again.
    pub request_id: RequestId,
    /// Who holds it.
    pub node_id: NodeId,
    /// For which assignment.
    pub generation: u64,
    /// What is held: the manifest's digest.
    pub digest: Digest,
    /// Bytes that had to be fetched.
    pub bytes_fetched: u64,
    /// Bytes of the whole snapshot.
    pub bytes_total: u64,
    /// Credential references that do not resolve here.
    pub missing_references: Vec<String>,
    /// Ed25519 over [`receipt_message`], 64 bytes as lower-case hexadecimal.
    pub signature: String,
}

/// The bytes that a receipt's signature covers.
pub fn receipt_message(transfer: TransferId, generation: u64, node: NodeId, digest: Digest) -> Vec<u8> {
    format!("handoff-receipt-v1\n{transfer}\n{generation}\n{node}\n{digest}").into_bytes()
}

/// A destination that is ready asks to become the one that runs. Without an authorisation it is a re-claim
/// of a live transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// Which start of the agent claims.
    pub incarnation: IncarnationId,
    /// For which assignment.
    pub generation: u64,
    /// By which authorisation; none for a re-claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authorization: Option<AuthorizationId>,
    /// What was loaded.
    pub digest: Digest,
}

/// The claim was accepted: this incarnation holds the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claimed {
    /// The new epoch.
    pub epoch: u64,
    /// How long it may run without renewing.
    pub lease_ms: u64,
    /// How often to renew.
    pub renew_ms: u64,
    /// What this epoch may spend.
    pub budget: BudgetLimit,
}

/// An absolute limit for one epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct BudgetLimit {
    /// Spend plus holds of the epoch never pass it.
    pub limit_usd: NanoUsd,
}

/// The destination cannot use an authorisation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Decline {
    /// For which assignment.
    pub generation: u64,
    /// Which authorisation.
    pub authorization: AuthorizationId,
    /// Why, for people.
    pub reason: String,
}

/// The holder asks to go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Renew {
    /// Its epoch.
    pub epoch: u64,
    /// Its assignment.
    pub generation: u64,
    /// Itself.
    pub incarnation: IncarnationId,
}

/// The answer to [`Renew`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Renewed {
    /// Counted from the first sending of this renewal.
    pub lease_ms: u64,
    /// What to do.
    pub command: LeaseCommand,
    /// The successor that [`LeaseCommand::Quiesce`] is for.
    #[serde(default, rename = "for", skip_serializing_if = "Option::is_none")]
    pub for_transfer: Option<TransferId>,
}

/// What a holder is told with its renewal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LeaseCommand {
    /// Go on.
    Run,
    /// Stop at a step boundary and refresh the successor with the final.
    Quiesce,
    /// Stand still; the budget is used up.
    Freeze,
    /// End.
    Stop,
}

/// The holder goes to rest: its epoch is closed and its checkpoint accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rest {
    /// Its epoch.
    pub epoch: u64,
}

/// A cumulative report of one epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Usage {
    /// The epoch it is about; an older one counts until it is closed.
    pub epoch: u64,
    /// Rises by one with every report of the epoch.
    pub seq: u64,
    /// All that the epoch has used so far.
    pub totals: Totals,
    /// Stopped and no hold is open: the lease of this epoch comes back.
    pub closing: bool,
    /// The next tick does not fit.
    pub exhausted: bool,
    /// The limit that the meter knew when it said so. A higher one may be on its way to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_usd: Option<NanoUsd>,
    /// Digest of the report before it, absent for the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prev_hash: Option<Digest>,
}

/// The answer to [`Usage`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageAnswer {
    /// The highest report that counts.
    pub accepted_seq: u64,
    /// What the epoch may spend now.
    pub limit_usd: NanoUsd,
    /// What to do.
    pub command: UsageCommand,
}

/// What a meter is told with its report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum UsageCommand {
    /// Go on within the limit.
    Continue,
    /// Stand frozen and ask again: an older epoch is not closed yet.
    Wait,
    /// The budget is used up: freeze and checkpoint.
    Insolvent,
    /// The transfer is over.
    Terminate,
}

/// What a node finds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Observed {
    /// For which assignment.
    pub generation: u64,
    /// What is there.
    pub state: ObservedState,
    /// Why, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The last proof of life.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_alive_at: Option<Timestamp>,
    /// Which incarnation it is about. `absent` with the holder's own ends the lease at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incarnation: Option<IncarnationId>,
}

/// What a node can find.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ObservedState {
    /// Blobs are being fetched.
    Warm,
    /// Restored and verified.
    Prepared,
    /// The agent runs.
    Running,
    /// The agent is frozen.
    Frozen,
    /// No sandbox, checkpoint accepted.
    Resting,
    /// Proved: no process, mount, cgroup or file is left.
    Absent,
    /// It could not be made as wanted, or not removed.
    Failed,
}

/// A live destination has stored a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Checkpoint {
    /// Its epoch.
    pub epoch: u64,
    /// Itself.
    pub incarnation: IncarnationId,
    /// The manifest's digest.
    pub digest: Digest,
    /// The last accepted snapshot as the node knows it: what it claimed with, or its last final or checkpoint
    /// since. Where that is not the last accepted one any more, this checkpoint was overtaken and is refused
    /// with `stale_snapshot`: it must not take the place of later work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub follows: Option<Digest>,
}

/// It counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Accepted {
    /// Always true: what does not count is answered with a problem.
    pub accepted: bool,
}
