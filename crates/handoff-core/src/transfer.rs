//! One attempt to move a session, as the machine knows it.

use std::collections::{BTreeMap, BTreeSet};

use handoff_protocol::node::ObservedState;
use handoff_protocol::{
    AuthorizationId, Digest, IncarnationId, NanoUsd, NodeId, SessionId, Status, Tier, Timestamp, TokenId,
    Totals, TransferId,
};

use crate::state::{Epoch, Generation};

/// One transfer.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Transfer {
    /// Its id.
    pub id: TransferId,
    /// The session it moves.
    pub session: SessionId,
    /// Where it stands.
    pub status: Status,
    /// Rises with every change (ETag).
    pub version: u64,
    /// The seq of its last usage event.
    pub event_seq: u64,
    /// When it was staged.
    pub staged_at: Timestamp,
    /// When the reaper expires it unless it is activated.
    pub expires_at: Timestamp,
    /// The snapshot it carries.
    pub snapshot: Digest,
    /// The final mark of that snapshot.
    pub mark: Option<FinalMark>,
    /// The live holder has been asked for its final.
    pub final_requested: bool,
    /// The size of its destination.
    pub tier: Option<Tier>,
    /// Its money.
    pub budget: Option<Budget>,
    /// Its present assignment.
    pub assignment: Option<Assignment>,
    /// Earlier assignments that are not proved absent yet, by generation.
    pub former_assignments: BTreeMap<Generation, NodeId>,
    /// The push that was asked for.
    pub push: Option<Push>,
    /// The node's receipt for the present generation and digest.
    pub receipt: bool,
    /// The last authorisation.
    pub authorization: Option<Authorization>,
    /// Tokens that were spent on it.
    pub spent_tokens: BTreeSet<TokenId>,
    /// What each of its epochs may spend and has spent.
    pub epochs: BTreeMap<Epoch, EpochAccount>,
    /// Active without a sandbox, until woken.
    pub resting: bool,
    /// Since when the meter waits for an older epoch to close.
    pub waiting_since: Option<Timestamp>,
    /// When grace ends.
    pub grace_until: Option<Timestamp>,
    /// Why and when it ended.
    pub ended: Option<Ended>,
    /// Everything is reported and proved: no open epoch, nothing left on a node.
    pub ledger_closed: bool,
}

/// Why push, receipt, activate and claim may rely on a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FinalMark {
    /// The session's epoch when it was given; a mark of an older epoch is no mark.
    pub epoch: Epoch,
    /// Who stands behind it.
    pub ground: Ground,
}

/// Who stands behind a final mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Ground {
    /// The holder stopped at a step boundary for this transfer.
    Quiesced,
    /// It is the last accepted snapshot of a holder whose transfer is over, or of an abandoned source.
    LastAccepted,
}

impl Ground {
    /// The word in columns.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Quiesced => "quiesced",
            Self::LastAccepted => "last_accepted",
        }
    }
}

/// A transfer's money at the control plane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Budget {
    /// What it may spend in all.
    pub allocated: NanoUsd,
    /// Kept for grace and the final snapshot.
    pub reserve: NanoUsd,
    /// Reported in the tool form, outside any epoch.
    pub recorded: NanoUsd,
    /// The transfer that the amount was carved out of, and how much.
    pub carved: Option<Carved>,
}

/// Money that moved between two transfers of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Carved {
    /// From which transfer.
    pub from: TransferId,
    /// How much.
    pub amount: NanoUsd,
}

/// A place on a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Assignment {
    /// The node.
    pub node: NodeId,
    /// Which assignment of the transfer it is.
    pub generation: Generation,
    /// What the node reported last.
    pub observed: Option<ObservedState>,
    /// When the node last proved it alive.
    pub last_alive: Option<Timestamp>,
}

/// A push.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Push {
    /// The node is to verify and restore this digest.
    Requested {
        /// The manifest's digest.
        digest: Digest,
    },
    /// The node cannot resolve some credential references.
    Failed {
        /// Which.
        missing: Vec<String>,
    },
}

/// What activate leaves for the destination's claim.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Authorization {
    /// The spent token's id.
    pub id: AuthorizationId,
    /// A claim at or after it is refused.
    pub deadline: Timestamp,
    /// What became of it.
    pub outcome: Outcome,
}

/// What became of an authorisation.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// Nothing yet.
    Open,
    /// The destination claimed; it runs.
    Claimed,
    /// The destination cannot use it.
    Declined {
        /// Why.
        reason: String,
    },
    /// Nobody claimed in time.
    Withdrawn,
}

/// The budget lease and the reports of one epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct EpochAccount {
    /// The node that meters it.
    pub node: NodeId,
    /// The assignment it ran in: its journal is there.
    pub generation: Generation,
    /// The incarnation that ran in it.
    pub incarnation: IncarnationId,
    /// What it may spend; never lowered.
    pub limit: NanoUsd,
    /// What it has used, by its last report.
    pub totals: Totals,
    /// The seq of that report; 0 before the first.
    pub seq: u64,
    /// Digest of that report's body.
    pub body: Option<Digest>,
    /// How it was closed, if it was.
    pub closed: Option<Closing>,
}

/// How an epoch's books were closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Closing {
    /// By its closing report: stopped, no hold open. The rest of its lease came back.
    Reported,
    /// By an orchestrator, at its full limit.
    WrittenOff,
}

/// The end of a transfer.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Ended {
    /// Why.
    pub reason: EndReason,
    /// When.
    pub at: Timestamp,
}

/// Why a transfer ended.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum EndReason {
    /// Its successor was claimed.
    Moved,
    /// The budget was used up and nobody raised it in time.
    GracePeriodExpired,
    /// Never activated in time.
    TimeToLive,
    /// An orchestrator ended it, in its words.
    Requested(String),
}

impl EndReason {
    /// The word or words in events and columns.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Moved => "moved",
            Self::GracePeriodExpired => "grace_period_expired",
            Self::TimeToLive => "ttl_expired",
            Self::Requested(words) => words,
        }
    }

    /// The reason with these words.
    pub fn from_words(words: &str) -> Self {
        match words {
            "moved" => Self::Moved,
            "grace_period_expired" => Self::GracePeriodExpired,
            "ttl_expired" => Self::TimeToLive,
            words => Self::Requested(words.to_owned()),
        }
    }
}

impl Transfer {
    /// A transfer that was just staged.
    pub fn staged(
        id: TransferId,
        session: SessionId,
        snapshot: Digest,
        mark: Option<FinalMark>,
        staged_at: Timestamp,
        expires_at: Timestamp,
    ) -> Self {
        Self {
            id,
            session,
            status: Status::Staged,
            version: 1,
            event_seq: 0,
            staged_at,
            expires_at,
            snapshot,
            mark,
            final_requested: false,
            tier: None,
            budget: None,
            assignment: None,
            former_assignments: BTreeMap::new(),
            push: None,
            receipt: false,
            authorization: None,
            spent_tokens: BTreeSet::new(),
            epochs: BTreeMap::new(),
            resting: false,
            waiting_since: None,
            grace_until: None,
            ended: None,
            ledger_closed: false,
        }
    }

    /// The authorisation that a claim could still use, or that must be withdrawn first.
    pub fn open_authorization(&self) -> Option<&Authorization> {
        self.authorization.as_ref().filter(|authorization| authorization.outcome == Outcome::Open)
    }

    /// Whether the snapshot carries the final mark of this epoch.
    pub fn is_final(&self, epoch: Epoch) -> bool {
        self.mark.is_some_and(|mark| mark.epoch == epoch)
    }

    /// The generation of the present assignment.
    pub fn generation(&self) -> Option<Generation> {
        self.assignment.map(|assignment| assignment.generation)
    }

    /// Nothing of it is left on any node.
    pub fn is_absent(&self) -> bool {
        let present = self.assignment.is_none_or(|found| found.observed == Some(ObservedState::Absent));
        present && self.former_assignments.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_reads_back_from_its_words() {
        for reason in [
            EndReason::Moved,
            EndReason::GracePeriodExpired,
            EndReason::TimeToLive,
            EndReason::Requested("the host is drained".to_owned()),
        ] {
            assert_eq!(EndReason::from_words(reason.as_str()), reason);
        }
    }
}
