//! What can be asked of the machine, already understood: every text is parsed, every signature checked, every
//! id minted.

use handoff_protocol::node::{ObservedState, Usage};
use handoff_protocol::request::Labels;
use handoff_protocol::{
    AuthorizationId, Digest, IncarnationId, NanoUsd, NodeId, ProjectId, SessionId, TierName, Timestamp,
    TransferId,
};

use crate::state::{Epoch, Generation};
use crate::token::TokenClaims;
use crate::transfer::EndReason;

/// Who asks. Surfaces decide what a role may ask at all; the machine records who it was.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Actor {
    /// The name in events and audit rows.
    pub principal: String,
    /// In which role.
    pub role: Role,
}

/// What somebody may ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// A loop that runs on a host: stage, refresh, return, its own status.
    Source,
    /// The six tools; provision and activate need a token.
    Caller,
    /// Mint, approve, raise, terminate.
    Orchestrator,
    /// Reconcile destinations.
    Node,
    /// Look.
    Viewer,
    /// Everything.
    Admin,
    /// The control plane itself: reaper and time-outs.
    ControlPlane,
}

impl Role {
    /// The word in keys, events and the audit log.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Source => "source",
            Self::Caller => "caller",
            Self::Orchestrator => "orchestrator",
            Self::Node => "node",
            Self::Viewer => "viewer",
            Self::Admin => "admin",
            Self::ControlPlane => "control_plane",
        }
    }

    /// The role with this word.
    pub fn parse(word: &str) -> Option<Self> {
        let all = [
            Self::Source,
            Self::Caller,
            Self::Orchestrator,
            Self::Node,
            Self::Viewer,
            Self::Admin,
            Self::ControlPlane,
        ];
        all.into_iter().find(|role| role.as_str() == word)
    }
}

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

/// Starts a transfer.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Stage {
    /// The transfer's id.
    pub transfer: TransferId,
    /// The session; a new one if the state has none.
    pub session: SessionId,
    /// Whose a new session is.
    pub project: ProjectId,
    /// Who stages: the holder of a new session.
    pub principal: String,
    /// The session's epoch as the caller knows it; none for a new session.
    pub expected_epoch: Option<Epoch>,
    /// The holder's snapshot; none means the last accepted one.
    pub snapshot: Option<Digest>,
    /// The holder stopped for it.
    pub is_final: bool,
    /// Labels of a new session.
    pub labels: Labels,
}

/// Replaces a pending transfer's snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Refresh {
    /// Which transfer.
    pub transfer: TransferId,
    /// Who gives the snapshot.
    pub by: RefreshBy,
    /// The session's epoch as that one knows it.
    pub expected_epoch: Option<Epoch>,
    /// The new snapshot; none asks the live holder for its final.
    pub snapshot: Option<Digest>,
    /// The holder stopped for it.
    pub is_final: bool,
}

/// Who refreshes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum RefreshBy {
    /// A source or caller.
    Principal(String),
    /// The live holder's node, for this incarnation.
    Incarnation(NodeId, IncarnationId),
}

/// Sizes and budgets a destination.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Provision {
    /// Which transfer.
    pub transfer: TransferId,
    /// The token that is spent.
    pub token: TokenClaims,
    /// The size.
    pub tier: TierName,
    /// The amount in all.
    pub budget: NanoUsd,
    /// Take it out of the live transfer's budget.
    pub carve: bool,
    /// A node, if it matters.
    pub node: Option<NodeId>,
}

/// Takes the session for a pushed transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Claim {
    /// Which transfer.
    pub transfer: TransferId,
    /// Whose destination claims.
    pub node: NodeId,
    /// For which assignment.
    pub generation: Generation,
    /// By which authorisation.
    pub authorization: AuthorizationId,
    /// Which start.
    pub incarnation: IncarnationId,
    /// What was loaded.
    pub digest: Digest,
}

/// Takes the session again for a live transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Reclaim {
    /// Which transfer.
    pub transfer: TransferId,
    /// Whose destination claims.
    pub node: NodeId,
    /// For which assignment.
    pub generation: Generation,
    /// Which start.
    pub incarnation: IncarnationId,
    /// What was loaded.
    pub digest: Digest,
}

impl Command {
    /// The transfer it names.
    pub fn transfer(&self) -> Option<TransferId> {
        match self {
            Self::Stage(stage) => Some(stage.transfer),
            Self::Refresh(refresh) => Some(refresh.transfer),
            Self::Provision(provision) => Some(provision.transfer),
            Self::Claim(claim) => Some(claim.transfer),
            Self::Reclaim(reclaim) => Some(reclaim.transfer),
            Self::Push { transfer, .. }
            | Self::Receipt { transfer, .. }
            | Self::Activate { transfer, .. }
            | Self::Decline { transfer, .. }
            | Self::Withdraw { transfer, .. }
            | Self::Renew { transfer, .. }
            | Self::Checkpoint { transfer, .. }
            | Self::Rest { transfer, .. }
            | Self::ReportUsage { transfer, .. }
            | Self::RecordSpend { transfer, .. }
            | Self::RaiseBudget { transfer, .. }
            | Self::Reassign { transfer, .. }
            | Self::Terminate { transfer, .. }
            | Self::Expire { transfer }
            | Self::Observe { transfer, .. }
            | Self::WriteOff { transfer, .. } => Some(*transfer),
            Self::Wake { .. } | Self::Return { .. } | Self::AbandonSource { .. } => None,
        }
    }

    /// The session it names, where it names one.
    pub fn session(&self) -> Option<SessionId> {
        match self {
            Self::Stage(stage) => Some(stage.session),
            Self::Wake { session } | Self::Return { session, .. } | Self::AbandonSource { session } => {
                Some(*session)
            }
            Self::Refresh(_)
            | Self::Provision(_)
            | Self::Claim(_)
            | Self::Reclaim(_)
            | Self::Push { .. }
            | Self::Receipt { .. }
            | Self::Activate { .. }
            | Self::Decline { .. }
            | Self::Withdraw { .. }
            | Self::Renew { .. }
            | Self::Checkpoint { .. }
            | Self::Rest { .. }
            | Self::ReportUsage { .. }
            | Self::RecordSpend { .. }
            | Self::RaiseBudget { .. }
            | Self::Reassign { .. }
            | Self::Terminate { .. }
            | Self::Expire { .. }
            | Self::Observe { .. }
            | Self::WriteOff { .. } => None,
        }
    }

    /// Its row in the grid.
    pub const fn kind(&self) -> crate::grid::CommandKind {
        use crate::grid::CommandKind as Kind;
        match self {
            Self::Stage(_) => Kind::Stage,
            Self::Refresh(_) => Kind::Refresh,
            Self::Provision(_) => Kind::Provision,
            Self::Push { .. } => Kind::Push,
            Self::Receipt { .. } => Kind::Receipt,
            Self::Activate { .. } => Kind::Activate,
            Self::Decline { .. } => Kind::Decline,
            Self::Withdraw { .. } => Kind::Withdraw,
            Self::Claim(_) => Kind::Claim,
            Self::Reclaim(_) => Kind::Reclaim,
            Self::Renew { .. } => Kind::Renew,
            Self::Checkpoint { .. } => Kind::Checkpoint,
            Self::Rest { .. } => Kind::Rest,
            Self::Wake { .. } => Kind::Wake,
            Self::ReportUsage { .. } => Kind::ReportUsage,
            Self::RecordSpend { .. } => Kind::RecordSpend,
            Self::RaiseBudget { .. } => Kind::RaiseBudget,
            Self::Reassign { .. } => Kind::Reassign,
            Self::Terminate { .. } => Kind::Terminate,
            Self::Expire { .. } => Kind::Expire,
            Self::Return { .. } => Kind::Return,
            Self::AbandonSource { .. } => Kind::AbandonSource,
            Self::Observe { .. } => Kind::Observe,
            Self::WriteOff { .. } => Kind::WriteOff,
        }
    }
}
