//! What the commands with many parts carry.

use handoff_protocol::request::Labels;
use handoff_protocol::{
    AuthorizationId, Digest, IncarnationId, NanoUsd, NodeId, ProjectId, SessionId, TierName, TransferId,
};

use crate::state::{Epoch, Generation};
use crate::token::TokenClaims;

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
    /// Give up the source that holds the session, and go on from its last snapshot.
    pub abandon_source: bool,
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
