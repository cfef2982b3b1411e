//! Why the machine says no: a closed list, each with a stable code and what explains it.

mod problem;

use handoff_protocol::{Digest, NanoUsd, NodeId, SessionId, Status, TierName, Timestamp, TransferId};

use crate::grid::CommandKind;
use crate::least::Least;
use crate::state::{Epoch, Session};

/// A refusal changes nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// There is no such transfer.
    #[error("there is no transfer {transfer}")]
    NoTransfer {
        /// The one that was named.
        transfer: TransferId,
    },
    /// The id of a new transfer is taken.
    #[error("there is a transfer {transfer} already")]
    TransferExists {
        /// The one that was named.
        transfer: TransferId,
    },
    /// There is no such session.
    #[error("there is no session {session}")]
    NoSession {
        /// The one that was named.
        session: SessionId,
    },
    /// The status does not allow it.
    #[error("transfer {transfer} is {found}; {command} needs {}", words(.command.legal_from()))]
    WrongStatus {
        /// Which transfer.
        transfer: TransferId,
        /// Where it stands.
        found: Status,
        /// What was asked.
        command: CommandKind,
    },
    /// Something stands in the way.
    #[error("session {session}: {why}{}", .transfer.map_or(String::new(), |transfer| format!(" ({transfer})")))]
    SessionBusy {
        /// Which session.
        session: SessionId,
        /// Its pending transfer, else its live one.
        transfer: Option<TransferId>,
        /// What stands in the way.
        why: &'static str,
    },
    /// An authorisation is open.
    #[error("transfer {transfer} has an open authorisation until {deadline}")]
    AlreadyAuthorized {
        /// Which transfer.
        transfer: TransferId,
        /// Until when.
        deadline: Timestamp,
    },
    /// The authorisation is not, or no longer, the open one.
    #[error("transfer {transfer}: the authorisation is over")]
    AuthorizationOver {
        /// Which transfer.
        transfer: TransferId,
    },
    /// The session moved on.
    #[error("the session is in epoch {present}, not {named}")]
    StaleEpoch {
        /// The session's.
        present: Epoch,
        /// The one that was named.
        named: Epoch,
    },
    /// A known session's epoch must be named.
    #[error("session {session} exists: name its epoch, which is {present}")]
    EpochMissing {
        /// Which session.
        session: SessionId,
        /// Its epoch.
        present: Epoch,
    },
    /// The transfer was assigned anew.
    #[error("transfer {transfer}: this is not its present assignment")]
    StaleGeneration {
        /// Which transfer.
        transfer: TransferId,
    },
    /// The incarnation is not the holder.
    #[error("transfer {transfer}: another incarnation holds the session")]
    StaleIncarnation {
        /// Which transfer.
        transfer: TransferId,
    },
    /// Another snapshot took its place.
    #[error("transfer {transfer} carries {present}")]
    StaleSnapshot {
        /// Which transfer.
        transfer: TransferId,
        /// What it carries.
        present: Digest,
    },
    /// The bytes that were named are not the staged ones.
    #[error("transfer {transfer} carries {present}, not {named}")]
    ChecksumMismatch {
        /// Which transfer.
        transfer: TransferId,
        /// What it carries.
        present: Digest,
        /// What was named.
        named: Digest,
    },
    /// The snapshot is a draft.
    #[error("transfer {transfer} carries a draft: its holder has not stopped for it")]
    NotFinal {
        /// Which transfer.
        transfer: TransferId,
    },
    /// The receipt for the present assignment is missing.
    #[error("transfer {transfer} was assigned anew; its node has not verified the snapshot yet")]
    NoReceipt {
        /// Which transfer.
        transfer: TransferId,
    },
    /// The lease ran out, or was given up.
    #[error("the lease is over")]
    LeaseOver,
    /// The former holder may still run.
    #[error("the former holder may run until {until}")]
    FormerHolderMayRun {
        /// Until when.
        until: Timestamp,
    },
    /// Another node's business.
    #[error("transfer {transfer} is not assigned to node {node}")]
    WrongNode {
        /// Which transfer.
        transfer: TransferId,
        /// Who asked.
        node: NodeId,
    },
    /// Another source's business.
    #[error("session {session} is held by another source")]
    WrongSource {
        /// Which session.
        session: SessionId,
    },
    /// The token is for another transfer.
    #[error("the token is not for transfer {transfer}")]
    TokenTransfer {
        /// The one that was asked for.
        transfer: TransferId,
    },
    /// The token does not allow this.
    #[error("the token does not allow this on transfer {transfer}: {why}")]
    TokenScope {
        /// Which transfer.
        transfer: TransferId,
        /// In what it falls short.
        why: &'static str,
    },
    /// The token's time is over or has not come.
    #[error("the token for transfer {transfer} is good until {expires_at} only")]
    TokenExpired {
        /// Which transfer.
        transfer: TransferId,
        /// Its expiry.
        expires_at: Timestamp,
    },
    /// The token was spent.
    #[error("the token for transfer {transfer} has been spent")]
    TokenUsed {
        /// Which transfer.
        transfer: TransferId,
    },
    /// The budget is too small.
    #[error("{} is {budget} USD; {} is {least} USD", of.there_is(), of.is_needed())]
    BudgetTooSmall {
        /// What there is.
        budget: NanoUsd,
        /// What is needed.
        least: NanoUsd,
        /// What for.
        of: Least,
    },
    /// A budget is raised, never lowered.
    #[error("the budget is {present} USD, and is never lowered")]
    NotARaise {
        /// What it is.
        present: NanoUsd,
    },
    /// There is nothing to carve from.
    #[error("session {session} has no live transfer with a budget to carve from")]
    NothingToCarve {
        /// Which session.
        session: SessionId,
    },
    /// No such tier.
    #[error("there is no tier '{tier}'")]
    TierUnknown {
        /// What was named.
        tier: TierName,
    },
    /// No room.
    #[error("no node has room for tier '{tier}'")]
    NoNode {
        /// The size.
        tier: TierName,
        /// The node that was wanted.
        node: Option<NodeId>,
    },
    /// The same seq with another body.
    #[error("report {seq} of epoch {epoch} was accepted with another body")]
    ReportConflict {
        /// Which epoch.
        epoch: Epoch,
        /// Which report.
        seq: u64,
    },
    /// Totals fell.
    #[error(
        "report {seq} of epoch {epoch} has lower totals than the one before it, or comes after the closing one"
    )]
    ReportFell {
        /// Which epoch.
        epoch: Epoch,
        /// Which report.
        seq: u64,
    },
    /// No such epoch.
    #[error("transfer {transfer} has no epoch {epoch}")]
    NoEpoch {
        /// Which transfer.
        transfer: TransferId,
        /// What was named.
        epoch: Epoch,
    },
    /// The epoch's books are not closed.
    #[error("epoch {epoch} of transfer {transfer} is not closed")]
    EpochOpen {
        /// Which transfer.
        transfer: TransferId,
        /// Which epoch.
        epoch: Epoch,
    },
    /// It is not time yet.
    #[error("transfer {transfer}: not before {at}")]
    TooEarly {
        /// Which transfer.
        transfer: TransferId,
        /// When.
        at: Timestamp,
    },
}

fn words(statuses: &[Status]) -> String {
    let words: Vec<&str> = statuses.iter().map(|status| status.as_str()).collect();
    words.join(", ")
}

impl Refusal {
    /// Something stands in this session's way: its pending transfer, else its live one.
    pub(crate) fn busy(session: &Session, why: &'static str) -> Self {
        Self::SessionBusy { session: session.id, transfer: session.pending.or(session.live), why }
    }
}
