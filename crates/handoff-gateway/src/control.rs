//! The gateway's control socket: what a node asks of it. `POST /v1/<verb>` with a JSON body over the Unix
//! socket `gateway.sock` in the gateway's home; a refusal is a [`handoff_protocol::Problem`].
//!
//! A destination's life: `open` binds its door, `resolve` fills its key cabinet, `admit` lets it run,
//! `lease` keeps it running, `freeze` and `thaw` stop and start compute, `close` ends an epoch, `remove` ends
//! it all. Every verb may be said again. After a restart of the gateway a node says `open`, `resolve` and
//! `admit` again; until then no call is made, while totals and reports can be had at once.

use std::collections::BTreeMap;
use std::path::PathBuf;

use handoff_protocol::node::Usage;
use handoff_protocol::reference::CredentialRef;
use handoff_protocol::{Digest, IncarnationId, NanoUsd, Tier, Totals, TransferId};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// A question to the gateway and its answer.
pub trait Ask: Serialize + DeserializeOwned + Send {
    /// Where it is posted.
    const PATH: &'static str;
    /// What comes back.
    type Reply: Serialize + DeserializeOwned + Send;
}

macro_rules! asks {
    ($($ask:ident = $path:literal -> $reply:ty;)*) => {
        $(impl Ask for $ask {
            const PATH: &'static str = $path;
            type Reply = $reply;
        })*
    };
}

asks! {
    Open = "/v1/open" -> Done;
    CheckReferences = "/v1/check-references" -> Missing;
    Resolve = "/v1/resolve" -> Missing;
    Admit = "/v1/admit" -> Done;
    Lease = "/v1/lease" -> Done;
    Limit = "/v1/limit" -> Done;
    Stand = "/v1/stand" -> Done;
    Meter = "/v1/meter" -> MeterState;
    Acknowledge = "/v1/acknowledge" -> Done;
    Close = "/v1/close" -> Closed;
    Remove = "/v1/remove" -> Done;
    List = "/v1/list" -> Listed;
    AskPolicy = "/v1/policy" -> PolicyInForce;
}

/// Which destination: a transfer and the number of its assignment to this node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DestinationKey {
    /// The transfer.
    pub transfer_id: TransferId,
    /// Its generation.
    pub generation: u64,
}

impl std::fmt::Display for DestinationKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.transfer_id, self.generation)
    }
}

/// It is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Done {
    /// Always true: what is not done is answered with a problem.
    pub done: bool,
}

/// Binds `<door_dir>/gateway.sock`. Said again it replaces door, token, references, grace and wind-down; tier
/// and tick stay as they are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Open {
    /// Which destination.
    pub destination: DestinationKey,
    /// The folder that is mounted into the sandbox. Whoever can reach the socket needs the token besides, so
    /// the socket itself is open to all who can enter the folder.
    pub door_dir: PathBuf,
    /// SHA-256 of the agent's token.
    pub agent_token_digest: Digest,
    /// The size that is charged.
    pub tier: Tier,
    /// Milliseconds of compute that are reserved at a time; at least one.
    pub tick_ms: u64,
    /// Milliseconds of frozen time, per epoch, that may be charged to the wind-down.
    pub grace_ms: u64,
    /// What the wind-down may cost over all epochs.
    pub wind_down_usd: NanoUsd,
    /// References of the session's own configuration. They must resolve.
    #[serde(default)]
    pub references: Vec<CredentialRef>,
    /// Upstreams that the session may call; empty for all of the policy. The credential of one that is named
    /// must resolve.
    #[serde(default)]
    pub upstreams: Vec<String>,
}

/// Looks whether references resolve here, and keeps nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CheckReferences {
    /// The references.
    pub references: Vec<CredentialRef>,
}

/// Those that do not resolve; for `resolve` always empty, because it fails with `credential_unresolved`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Missing {
    /// The references.
    pub missing: Vec<CredentialRef>,
}

/// Resolves a destination's credentials into memory. `credential_unresolved` names those that do not resolve.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Resolve {
    /// Which destination.
    pub destination: DestinationKey,
}

/// An epoch runs from now on. An older epoch of the same destination ends. The same incarnation may be
/// admitted again: that is how a restarted node or gateway adopts it, and a proof of life.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Admit {
    /// Which destination.
    pub destination: DestinationKey,
    /// The epoch of the claim.
    pub epoch: u64,
    /// Who claimed.
    pub incarnation: IncarnationId,
    /// Spend plus holds never pass it; never lowered.
    pub limit_usd: NanoUsd,
    /// CLOCK_BOOTTIME in milliseconds at which the agent is frozen unless the lease is renewed.
    pub run_until_boot_ms: u64,
    /// The boot that this is counted in.
    pub boot_id: String,
}

/// The lease was renewed and the sandbox was seen alive. Only ever prolongs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lease {
    /// Which destination.
    pub destination: DestinationKey,
    /// Its epoch.
    pub epoch: u64,
    /// CLOCK_BOOTTIME in milliseconds at which the agent is frozen unless the lease is renewed again.
    pub run_until_boot_ms: u64,
    /// The boot that this is counted in.
    pub boot_id: String,
}

/// A new limit, absolute. A lower one changes nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limit {
    /// Which destination.
    pub destination: DestinationKey,
    /// Which epoch.
    pub epoch: u64,
    /// What it may spend.
    pub limit_usd: NanoUsd,
}

/// What the live epoch's time counts as from now on. While it does not run, calls are refused and open ones
/// settle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stand {
    /// Which destination.
    pub destination: DestinationKey,
    /// As what.
    pub mode: crate::meter::Mode,
}

/// Asks for a destination's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Meter {
    /// Which destination.
    pub destination: DestinationKey,
    /// The revision that is known; 0 for none. The answer waits for another one.
    pub after: u64,
    /// Milliseconds to wait at the most; no more than 60 s are waited.
    pub wait_ms: u64,
}

/// A destination as its meter sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeterState {
    /// Another one with every change.
    pub revision: u64,
    /// Admitted since the gateway started. If not, the node has to open, resolve and admit again.
    pub admitted: bool,
    /// It stands still, by the node's word.
    pub frozen: bool,
    /// Every epoch, the oldest first.
    pub epochs: Vec<EpochState>,
    /// What went wrong last, for people.
    pub last_error: Option<String>,
}

/// One epoch as its meter sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EpochState {
    /// Which.
    pub epoch: u64,
    /// Who holds it.
    pub incarnation: IncarnationId,
    /// The report to send next. It stays the same until it is acknowledged; then comes the next one.
    pub report: Option<Usage>,
    /// All that was used so far.
    pub totals: Totals,
    /// What it may spend.
    pub limit_usd: NanoUsd,
    /// What it has spent.
    pub spent_usd: NanoUsd,
    /// Open holds and the rest of the reserved tick.
    pub held_usd: NanoUsd,
    /// Calls on their way.
    pub holds_open: u64,
    /// Calls with an unknown outcome.
    pub indeterminate_calls: u64,
    /// What they are charged: a part of `spent_usd`.
    pub indeterminate_usd: NanoUsd,
    /// Calls that were charged by estimate, because the upstream did not say what was used.
    pub estimated_calls: u64,
    /// What upstreams counted beyond their hold and the limit: evidence, never charged.
    pub overrun_usd: NanoUsd,
    /// The next tick does not fit: freeze the agent. The report says so once no call is open.
    pub exhausted: bool,
    /// No more calls.
    pub closing: bool,
    /// The closing report is sealed.
    pub closed: bool,
}

/// The control plane has accepted the reports of an epoch up to `seq`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Acknowledge {
    /// Which destination.
    pub destination: DestinationKey,
    /// Which epoch.
    pub epoch: u64,
    /// Up to which report.
    pub seq: u64,
}

/// Ends an epoch: no new calls, no more ticks. The answer waits until no hold is open. An epoch that was never
/// admitted here closes with nothing used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Close {
    /// Which destination.
    pub destination: DestinationKey,
    /// Which epoch.
    pub epoch: u64,
    /// The last proof of life, in CLOCK_BOOTTIME milliseconds of this boot. Running counts until then; absent,
    /// until now as far as the lease reaches, and not at all where this gateway has not admitted the epoch.
    /// What was charged stays charged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_boot_ms: Option<u64>,
    /// Milliseconds to wait at the most; no more than 60 s are waited.
    pub wait_ms: u64,
}

/// How closing went.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Closed {
    /// No hold is open and the closing report is the last of `reports`, or has been acknowledged. If not: ask
    /// again.
    pub closed: bool,
    /// Reports that the control plane has not accepted, in the order to send them.
    pub reports: Vec<Usage>,
}

/// Unbinds the door and wipes the credentials, always. Forgets the ledger if every epoch is closed and
/// acknowledged, else `precondition_failed`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Remove {
    /// Which destination.
    pub destination: DestinationKey,
    /// Forget reports that nobody accepted: only after a write-off.
    #[serde(default)]
    pub written_off: bool,
}

/// Asks which policy is in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AskPolicy {}

/// The policy in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyInForce {
    /// SHA-256 of the file's text as it was taken up.
    pub digest: Digest,
}

/// Asks which destinations there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct List {}

/// All destinations.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listed {
    /// Every one that has a ledger here.
    pub destinations: Vec<ListedDestination>,
}

/// One destination in a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedDestination {
    /// Which.
    pub destination: DestinationKey,
    /// Its door is bound.
    pub open: bool,
    /// Spent so far, by epoch, the wind-down included.
    pub spent_usd: BTreeMap<u64, NanoUsd>,
}
