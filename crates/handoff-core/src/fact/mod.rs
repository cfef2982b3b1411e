//! Facts: what a decision makes true. Folding them with [`crate::State::apply`] gives the state; each one says
//! whether it is a usage event, an audit row, or bookkeeping that leaves no row of its own.

mod detail;

use handoff_protocol::node::ObservedState;
use handoff_protocol::request::{EventType, Labels, Operation};
use handoff_protocol::{
    AuthorizationId, Digest, IncarnationId, NanoUsd, NodeId, ProjectId, SessionId, Tier, Timestamp, TokenId,
    Totals, TransferId,
};

use crate::state::{Epoch, Generation};
use crate::transfer::{Budget, EndReason, FinalMark, Outcome};

/// Which incarnation took a session, and on what terms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Taken {
    /// The epoch that began with it.
    pub epoch: Epoch,
    /// Which start.
    pub incarnation: IncarnationId,
    /// On which node.
    pub node: NodeId,
    /// In which assignment.
    pub generation: Generation,
    /// Until when it may run.
    pub lease_until: Timestamp,
    /// What it may spend.
    pub limit: NanoUsd,
}

/// Something that became true.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[allow(
    missing_docs,
    reason = "fields are named after the columns they end in; each variant says what happened"
)]
pub enum Fact {
    /// A session began, held by its source.
    SessionOpened { session: SessionId, project: ProjectId, principal: String, labels: Labels },
    /// A transfer was staged.
    Staged {
        transfer: TransferId,
        snapshot: Digest,
        mark: Option<FinalMark>,
        by_holder: bool,
        at: Timestamp,
        expires_at: Timestamp,
    },
    /// A pending transfer carries another snapshot; an open push is void.
    Refreshed { transfer: TransferId, snapshot: Digest, mark: Option<FinalMark>, by_holder: bool },
    /// The live holder has been asked for its final.
    FinalRequested { transfer: TransferId },
    /// A token was spent.
    TokenSpent { transfer: TransferId, token: TokenId, operation: Operation, expires_at: Timestamp },
    /// A destination was sized, budgeted and assigned.
    Provisioned { transfer: TransferId, tier: Tier, budget: Budget, node: NodeId },
    /// Money moved from a live transfer to its successor.
    BudgetCarved { transfer: TransferId, allocated: NanoUsd },
    /// It went back, because the successor ended unclaimed.
    BudgetRestored { transfer: TransferId, allocated: NanoUsd },
    /// The node is to verify and restore.
    PushRequested { transfer: TransferId, digest: Digest },
    /// The node cannot resolve credential references.
    PushFailed { transfer: TransferId, missing: Vec<String> },
    /// The node holds and verified the snapshot.
    Pushed { transfer: TransferId, generation: Generation, digest: Digest, again: bool },
    /// The destination may claim.
    Authorized { transfer: TransferId, authorization: AuthorizationId, deadline: Timestamp },
    /// An authorisation ended without a claim.
    AuthorizationEnded { transfer: TransferId, authorization: AuthorizationId, outcome: Outcome },
    /// The destination took the session.
    Claimed { transfer: TransferId, taken: Taken },
    /// A new incarnation took the session again.
    Reclaimed { transfer: TransferId, taken: Taken },
    /// The holder may go on.
    Renewed { transfer: TransferId, lease_until: Timestamp },
    /// A live destination stored a snapshot.
    Checkpointed { transfer: TransferId, epoch: Epoch, digest: Digest },
    /// The holder went to rest.
    Rested { transfer: TransferId, at: Timestamp },
    /// A resting session is to run again.
    Woken { transfer: TransferId, at: Timestamp },
    /// A report counts.
    UsageReported {
        transfer: TransferId,
        epoch: Epoch,
        seq: u64,
        totals: Totals,
        closing: bool,
        body: Digest,
        limit: NanoUsd,
    },
    /// An increment counts.
    SpendRecorded { transfer: TransferId, cost: NanoUsd, detail: String },
    /// The meter waits for an older epoch to close.
    WaitStarted { transfer: TransferId, at: Timestamp },
    /// The budget is used up; grace runs.
    BecameInsolvent { transfer: TransferId, grace_until: Timestamp },
    /// The budget is higher.
    BudgetRaised { transfer: TransferId, allocated: NanoUsd, active_again: bool },
    /// The transfer has another assignment.
    Reassigned { transfer: TransferId, node: NodeId, generation: Generation },
    /// A transfer is over.
    Terminated { transfer: TransferId, reason: EndReason, at: Timestamp },
    /// A transfer was not activated in time.
    Expired { transfer: TransferId, at: Timestamp },
    /// A source took its session back.
    Returned { nonce: IncarnationId, epoch: Epoch, principal: String },
    /// A source was given up.
    SourceAbandoned { epoch: Epoch },
    /// A node found something.
    Observed {
        transfer: TransferId,
        generation: Generation,
        state: ObservedState,
        last_alive: Option<Timestamp>,
    },
    /// The holder is proved gone: its lease is over now.
    HolderGone { transfer: TransferId, at: Timestamp },
    /// An epoch was closed at its full limit.
    WrittenOff { transfer: TransferId, epoch: Epoch },
    /// Everything is reported and proved.
    LedgerClosed { transfer: TransferId },
}

/// Where a fact is recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Record {
    /// As a usage event: one of the eight types.
    Event(EventType),
    /// As an audit row of this kind.
    Audit(&'static str),
    /// In the rows it changes, and nowhere else: it happens every few seconds.
    Bookkeeping,
}

impl Fact {
    /// The transfer it is about; none for facts about the session alone.
    pub const fn transfer(&self) -> Option<TransferId> {
        match self {
            Self::Staged { transfer, .. }
            | Self::Refreshed { transfer, .. }
            | Self::FinalRequested { transfer }
            | Self::TokenSpent { transfer, .. }
            | Self::Provisioned { transfer, .. }
            | Self::BudgetCarved { transfer, .. }
            | Self::BudgetRestored { transfer, .. }
            | Self::PushRequested { transfer, .. }
            | Self::PushFailed { transfer, .. }
            | Self::Pushed { transfer, .. }
            | Self::Authorized { transfer, .. }
            | Self::AuthorizationEnded { transfer, .. }
            | Self::Claimed { transfer, .. }
            | Self::Reclaimed { transfer, .. }
            | Self::Renewed { transfer, .. }
            | Self::Checkpointed { transfer, .. }
            | Self::Rested { transfer, .. }
            | Self::Woken { transfer, .. }
            | Self::UsageReported { transfer, .. }
            | Self::SpendRecorded { transfer, .. }
            | Self::WaitStarted { transfer, .. }
            | Self::BecameInsolvent { transfer, .. }
            | Self::BudgetRaised { transfer, .. }
            | Self::Reassigned { transfer, .. }
            | Self::Terminated { transfer, .. }
            | Self::Expired { transfer, .. }
            | Self::Observed { transfer, .. }
            | Self::HolderGone { transfer, .. }
            | Self::WrittenOff { transfer, .. }
            | Self::LedgerClosed { transfer } => Some(*transfer),
            Self::SessionOpened { .. } | Self::Returned { .. } | Self::SourceAbandoned { .. } => None,
        }
    }

    /// Where it is recorded.
    pub const fn record(&self) -> Record {
        match self {
            Self::Staged { .. } => Record::Event(EventType::SnapshotCreated),
            Self::Provisioned { .. } => Record::Event(EventType::RuntimeProvisioned),
            Self::Pushed { again: false, .. } => Record::Event(EventType::StatePushed),
            Self::Claimed { .. } | Self::BudgetRaised { active_again: true, .. } => {
                Record::Event(EventType::Activated)
            }
            Self::UsageReported { .. } | Self::SpendRecorded { .. } => {
                Record::Event(EventType::UsageReported)
            }
            Self::BecameInsolvent { .. } => Record::Event(EventType::Insolvent),
            Self::Terminated { .. } => Record::Event(EventType::Terminated),
            Self::Expired { .. } => Record::Event(EventType::Expired),
            Self::SessionOpened { .. } => Record::Audit("session_opened"),
            Self::Refreshed { .. } => Record::Audit("snapshot_refreshed"),
            Self::FinalRequested { .. } => Record::Audit("final_requested"),
            Self::TokenSpent { .. } => Record::Audit("token_spent"),
            Self::BudgetCarved { .. } => Record::Audit("budget_carved"),
            Self::BudgetRestored { .. } => Record::Audit("budget_restored"),
            Self::PushRequested { .. } => Record::Audit("push_requested"),
            Self::PushFailed { .. } => Record::Audit("push_failed"),
            Self::Pushed { again: true, .. } => Record::Audit("receipt_renewed"),
            Self::Authorized { .. } => Record::Audit("authorized"),
            Self::AuthorizationEnded { .. } => Record::Audit("authorization_ended"),
            Self::Reclaimed { .. } => Record::Audit("reclaimed"),
            Self::Checkpointed { .. } => Record::Audit("checkpointed"),
            Self::Rested { .. } => Record::Audit("rested"),
            Self::Woken { .. } => Record::Audit("woken"),
            Self::BudgetRaised { active_again: false, .. } => Record::Audit("budget_raised"),
            Self::Reassigned { .. } => Record::Audit("reassigned"),
            Self::Returned { .. } => Record::Audit("source_returned"),
            Self::SourceAbandoned { .. } => Record::Audit("source_abandoned"),
            Self::HolderGone { .. } => Record::Audit("holder_gone"),
            Self::WrittenOff { .. } => Record::Audit("epoch_written_off"),
            Self::LedgerClosed { .. } => Record::Audit("ledger_closed"),
            Self::Renewed { .. } | Self::WaitStarted { .. } | Self::Observed { .. } => Record::Bookkeeping,
        }
    }
}
