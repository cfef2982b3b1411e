//! What the machine knows of one session: the session itself, which arbitrates, and its transfers.

use std::collections::BTreeMap;

use handoff_protocol::request::Labels;
use handoff_protocol::{Digest, IncarnationId, NodeId, ProjectId, SessionId, Timestamp, TransferId};
use serde::{Deserialize, Serialize};

use crate::placement::Room;
use crate::transfer::Transfer;

/// The fencing number of a session. State changes with an older one are refused; reports of money are not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Epoch(pub u64);

impl Epoch {
    /// Where every session starts, held by its source.
    pub const FIRST: Self = Self(1);

    /// The one after it.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl std::fmt::Display for Epoch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// The number of a transfer's assignment to a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Generation(pub u64);

impl Generation {
    /// The first assignment.
    pub const FIRST: Self = Self(1);

    /// The one after it.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl std::fmt::Display for Generation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// Everything that one decision may look at. A store loads it, and writes back what [`State::apply`] changed.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct State {
    /// The session, once there is one.
    pub session: Option<Session>,
    /// Its transfers: the pending and the live one, the one that a command names, whatever is not closed yet.
    pub transfers: BTreeMap<TransferId, Transfer>,
    /// Nodes and the room they have left. Loaded for the commands that choose one.
    pub rooms: BTreeMap<NodeId, Room>,
}

/// The durable identity of one agent loop, and the arbiter between its transfers.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Session {
    /// Its id.
    pub id: SessionId,
    /// Whose it is.
    pub project: ProjectId,
    /// What its cost is attributed to.
    pub labels: Labels,
    /// Its epoch: rises with every claim, re-claim, return and abandonment.
    pub epoch: Epoch,
    /// Who runs it, or ran it last.
    pub holder: Holder,
    /// The one transfer that is staged, provisioned or pushed.
    pub pending: Option<TransferId>,
    /// The one transfer that is active or insolvent.
    pub live: Option<TransferId>,
    /// Until when the last incarnation may run. It outlives that incarnation's transfer: whoever comes next
    /// waits for it.
    pub lease_until: Option<Timestamp>,
    /// The last incarnation is proved gone, or went to rest: it may not renew.
    pub holder_gone: bool,
    /// The last snapshot that was accepted from a holder.
    pub last_snapshot: Option<Accepted>,
    /// The last return, so that the same nonce gets the same answer.
    pub last_return: Option<LastReturn>,
    /// Rises with every change.
    pub version: u64,
}

/// Who holds a session.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Holder {
    /// The loop that the session was staged from. It has no lease: only its own final mark stops it.
    Source {
        /// Who staged it.
        principal: String,
    },
    /// A destination's agent.
    Incarnation {
        /// Which start.
        incarnation: IncarnationId,
        /// In which transfer.
        transfer: TransferId,
        /// On which node.
        node: NodeId,
        /// In which assignment.
        generation: Generation,
    },
    /// Nobody: the source was abandoned.
    None,
}

/// A snapshot that a holder gave.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Accepted {
    /// Its name.
    pub digest: Digest,
    /// The session's epoch at that moment.
    pub epoch: Epoch,
    /// What may be done with it.
    pub standing: Standing,
}

/// What a snapshot may be used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Standing {
    /// The source goes on working: nothing may resume from it while the source holds the session.
    Draft,
    /// The holder stopped for it.
    Final,
    /// A live destination stored it, or resumed from it.
    Checkpoint,
}

impl Standing {
    /// The word in columns.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Draft => "draft",
            Self::Final => "final",
            Self::Checkpoint => "checkpoint",
        }
    }
}

/// The last return of a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LastReturn {
    /// The nonce it came with.
    pub nonce: IncarnationId,
    /// The epoch it was answered with.
    pub epoch: Epoch,
}
