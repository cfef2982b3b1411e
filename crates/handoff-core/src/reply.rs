//! What an accepted command is answered with. Small, so that a request record can keep it.

use handoff_protocol::node::{LeaseCommand, UsageCommand};
use handoff_protocol::{AuthorizationId, NanoUsd, NodeId, TransferId};
use serde::{Deserialize, Serialize};

use crate::state::{Epoch, Generation};

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "reply", rename_all = "snake_case")]
pub enum Reply {
    /// It counts; the transfer's present state says the rest.
    Done,
    /// A transfer was staged or refreshed.
    Staged {
        /// Which.
        transfer: TransferId,
    },
    /// A destination was assigned.
    Provisioned {
        /// To this node.
        node: NodeId,
        /// As this assignment.
        generation: Generation,
    },
    /// The destination may claim.
    Authorized {
        /// By this authorisation.
        authorization: AuthorizationId,
    },
    /// The incarnation holds the session.
    Claimed {
        /// In this epoch.
        epoch: Epoch,
        /// Spend plus holds of the epoch never pass it.
        limit: NanoUsd,
    },
    /// The holder may go on.
    Renewed {
        /// What to do.
        command: LeaseCommand,
        /// The successor that a quiesce is for.
        for_transfer: Option<TransferId>,
    },
    /// A report was looked at.
    Usage {
        /// The highest report that counts.
        accepted_seq: u64,
        /// What the epoch may spend.
        limit: NanoUsd,
        /// What to do.
        command: UsageCommand,
    },
    /// The source holds the session again.
    Returned {
        /// In this epoch.
        epoch: Epoch,
    },
}
