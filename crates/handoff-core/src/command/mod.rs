//! What can be asked of the machine, already understood: every text is parsed, every signature checked, every
//! id minted.

mod actor;
mod body;
mod name;

use handoff_protocol::node::{ObservedState, Usage};
use handoff_protocol::{
    AuthorizationId, Digest, IncarnationId, NanoUsd, NodeId, SessionId, Timestamp, TransferId,
};

use crate::state::{Epoch, Generation};
use crate::token::TokenClaims;
use crate::transfer::EndReason;

pub use actor::{Actor, Role};
pub use body::{Claim, Provision, Reclaim, Refresh, RefreshBy, Stage};

/// A command: one row of the grid.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Command {
    /// Start a transfer.
    Stage(Stage),
    /// Replace a pending transfer's snapshot, or ask the live holder for its final.
    Refresh(Refresh),
    /// Size and budget a destination.
    Provision(Provision),
    /// Have the destination verify the snapshot.
    Push {
        /// Which transfer.
        transfer: TransferId,
        /// What the caller believes it carries.
        checksum: Option<Digest>,
    },
    /// The node holds and verified it.
    Receipt {
        /// Which transfer.
        transfer: TransferId,
        /// Who says so; the signature was checked.
        node: NodeId,
        /// For which assignment.
        generation: Generation,
        /// What it holds.
        digest: Digest,
        /// References that do not resolve there.
        missing: Vec<String>,
    },
    /// Let the destination claim.
    Activate {
        /// Which transfer.
        transfer: TransferId,
        /// The token that is spent.
        token: TokenClaims,
    },
    /// The destination cannot use an authorisation.
    Decline {
        /// Which transfer.
        transfer: TransferId,
        /// Who says so.
        node: NodeId,
        /// For which assignment.
        generation: Generation,
        /// Which authorisation.
        authorization: AuthorizationId,
        /// Why.
        reason: String,
    },
    /// Nobody claimed in time.
    Withdraw {
        /// Which transfer.
        transfer: TransferId,
        /// Which authorisation.
        authorization: AuthorizationId,
    },
    /// The destination takes the session: the only irreversible point.
    Claim(Claim),
    /// A new incarnation of a live transfer takes the session.
    Reclaim(Reclaim),
    /// The holder asks to go on.
    Renew {
        /// Which transfer.
        transfer: TransferId,
        /// Who asks.
        node: NodeId,
        /// Its epoch.
        epoch: Epoch,
        /// Its assignment.
        generation: Generation,
        /// Which start.
        incarnation: IncarnationId,
    },
    /// A live destination stored a snapshot.
    Checkpoint {
        /// Which transfer.
        transfer: TransferId,
        /// Who says so.
        node: NodeId,
        /// Its epoch.
        epoch: Epoch,
        /// Which start.
        incarnation: IncarnationId,
        /// The manifest's digest; its blobs are stored.
        digest: Digest,
        /// The accepted snapshot that it was taken after, as the node knows it.
        follows: Option<Digest>,
    },
    /// The holder goes to rest.
    Rest {
        /// Which transfer.
        transfer: TransferId,
        /// Who asks.
        node: NodeId,
        /// Its epoch.
        epoch: Epoch,
    },
    /// A resting session is to run again.
    Wake {
        /// Which session.
        session: SessionId,
    },
    /// A meter's cumulative report.
    ReportUsage {
        /// Which transfer.
        transfer: TransferId,
        /// Who reports.
        node: NodeId,
        /// What.
        usage: Usage,
        /// Digest of the report as it was sent.
        body: Digest,
    },
    /// An increment that was spent outside the gateway.
    RecordSpend {
        /// Which transfer.
        transfer: TransferId,
        /// How much.
        cost: NanoUsd,
        /// What for.
        detail: String,
    },
    /// A new absolute budget.
    RaiseBudget {
        /// Which transfer.
        transfer: TransferId,
        /// The amount in all.
        allocated: NanoUsd,
    },
    /// Another node, or the same one anew.
    Reassign {
        /// Which transfer.
        transfer: TransferId,
        /// Since when the control plane has served without a break.
        serving_since: Timestamp,
    },
    /// End a transfer.
    Terminate {
        /// Which transfer.
        transfer: TransferId,
        /// Why.
        reason: EndReason,
    },
    /// End a transfer that was not activated in time.
    Expire {
        /// Which transfer.
        transfer: TransferId,
    },
    /// A frozen source takes its session back.
    Return {
        /// Which session.
        session: SessionId,
        /// Who returns.
        principal: String,
        /// Made after freezing.
        nonce: IncarnationId,
        /// The epoch it was frozen in.
        frozen_epoch: Epoch,
    },
    /// An orchestrator gives up a source that it cannot stop.
    AbandonSource {
        /// Which session.
        session: SessionId,
    },
    /// What a node finds.
    Observe {
        /// Which transfer.
        transfer: TransferId,
        /// Who says so.
        node: NodeId,
        /// For which assignment.
        generation: Generation,
        /// What is there.
        state: ObservedState,
        /// The last proof of life.
        last_alive: Option<Timestamp>,
        /// Which start it is about.
        incarnation: Option<IncarnationId>,
    },
    /// Close an epoch whose node will never report again.
    WriteOff {
        /// Which transfer.
        transfer: TransferId,
        /// Which epoch.
        epoch: Epoch,
    },
}
