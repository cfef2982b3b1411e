//! Facts: what a decision makes true. Folding them with [`crate::State::apply`] gives the state; each one says
//! whether it is a usage event, an audit row, or bookkeeping that leaves no row of its own.

use handoff_protocol::document::Facts;
use handoff_protocol::node::ObservedState;
use handoff_protocol::request::{EventType, Labels, Operation};
use handoff_protocol::{
    AuthorizationId, Digest, IncarnationId, NanoUsd, NodeId, ProjectId, SessionId, Tier, Timestamp, TokenId,
    Totals, TransferId,
};

use crate::state::{Epoch, Generation};
use crate::transfer::{Carved, EndReason, FinalMark, Outcome};

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
    Provisioned {
        transfer: TransferId,
        tier: Tier,
        allocated: NanoUsd,
        reserve: NanoUsd,
        carved: Option<Carved>,
        node: NodeId,
    },
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
    Claimed {
        transfer: TransferId,
        epoch: Epoch,
        incarnation: IncarnationId,
        node: NodeId,
        generation: Generation,
        lease_until: Timestamp,
        limit: NanoUsd,
    },
    /// A new incarnation took the session again.
    Reclaimed {
        transfer: TransferId,
        epoch: Epoch,
        incarnation: IncarnationId,
        node: NodeId,
        generation: Generation,
        lease_until: Timestamp,
        limit: NanoUsd,
    },
    /// The holder may go on.
    Renewed { transfer: TransferId, lease_until: Timestamp },
    /// A live destination stored a snapshot.
    Checkpointed { transfer: TransferId, epoch: Epoch, digest: Digest },
    /// The holder went to rest.
    Rested { transfer: TransferId, at: Timestamp },
    /// A resting session is to run again.
    Woken { transfer: TransferId },
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
    HolderGone { at: Timestamp },
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
            | Self::Woken { transfer }
            | Self::UsageReported { transfer, .. }
            | Self::SpendRecorded { transfer, .. }
            | Self::WaitStarted { transfer, .. }
            | Self::BecameInsolvent { transfer, .. }
            | Self::BudgetRaised { transfer, .. }
            | Self::Reassigned { transfer, .. }
            | Self::Terminated { transfer, .. }
            | Self::Expired { transfer, .. }
            | Self::Observed { transfer, .. }
            | Self::WrittenOff { transfer, .. }
            | Self::LedgerClosed { transfer } => Some(*transfer),
            Self::SessionOpened { .. }
            | Self::Returned { .. }
            | Self::SourceAbandoned { .. }
            | Self::HolderGone { .. } => None,
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

    /// What the row says besides its type: figures and names, never content and never a token's text.
    pub fn detail(&self) -> Facts {
        let pairs = self.money_words().or_else(|| self.state_words()).unwrap_or_default();
        pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
    }

    fn money_words(&self) -> Option<Vec<(&'static str, String)>> {
        let words = match self {
            Self::Provisioned { tier, allocated, reserve, node, .. } => vec![
                ("tier", tier.name.to_string()),
                ("budget_usd", allocated.to_string()),
                ("reserve_usd", reserve.to_string()),
                ("node_id", node.to_string()),
            ],
            Self::BudgetCarved { allocated, .. } | Self::BudgetRestored { allocated, .. } => {
                vec![("budget_usd", allocated.to_string())]
            }
            Self::BudgetRaised { allocated, .. } => {
                vec![("budget_usd", allocated.to_string()), ("cause", "budget_raised".to_owned())]
            }
            Self::UsageReported { epoch, seq, totals, closing, body, .. } => vec![
                ("epoch", epoch.to_string()),
                ("seq", seq.to_string()),
                ("spent_usd", totals.spent().to_string()),
                ("closing", closing.to_string()),
                ("report", body.to_string()),
            ],
            Self::SpendRecorded { cost, detail, .. } => {
                vec![("cost_usd", cost.to_string()), ("detail", detail.clone())]
            }
            Self::BecameInsolvent { grace_until, .. } => vec![("grace_until", grace_until.to_string())],
            _ => return None,
        };
        Some(words)
    }

    fn state_words(&self) -> Option<Vec<(&'static str, String)>> {
        let words = match self {
            Self::SessionOpened { session, principal, .. } => {
                vec![("session_id", session.to_string()), ("holder", principal.clone())]
            }
            Self::Staged { snapshot, mark, .. } | Self::Refreshed { snapshot, mark, .. } => {
                vec![("snapshot", snapshot.to_string()), ("final", mark.is_some().to_string())]
            }
            Self::TokenSpent { token, operation, .. } => {
                vec![("token_id", token.to_string()), ("operation", operation.as_str().to_owned())]
            }
            Self::PushRequested { digest, .. } => vec![("digest", digest.to_string())],
            Self::PushFailed { missing, .. } => vec![("missing_references", missing.join(" "))],
            Self::Pushed { generation, digest, .. } => {
                vec![("generation", generation.to_string()), ("digest", digest.to_string())]
            }
            Self::Authorized { authorization, deadline, .. } => {
                vec![("authorization", authorization.to_string()), ("deadline", deadline.to_string())]
            }
            Self::AuthorizationEnded { authorization, outcome, .. } => {
                authorization_words(*authorization, outcome)
            }
            Self::Claimed { epoch, incarnation, node, limit, .. }
            | Self::Reclaimed { epoch, incarnation, node, limit, .. } => vec![
                ("epoch", epoch.to_string()),
                ("incarnation", incarnation.to_string()),
                ("node_id", node.to_string()),
                ("limit_usd", limit.to_string()),
            ],
            Self::Checkpointed { epoch, digest, .. } => {
                vec![("epoch", epoch.to_string()), ("digest", digest.to_string())]
            }
            Self::Reassigned { node, generation, .. } => {
                vec![("node_id", node.to_string()), ("generation", generation.to_string())]
            }
            Self::Terminated { reason, .. } => vec![("reason", reason.as_str().to_owned())],
            Self::Expired { .. } => vec![("reason", EndReason::TimeToLive.as_str().to_owned())],
            Self::Returned { epoch, .. }
            | Self::SourceAbandoned { epoch }
            | Self::WrittenOff { epoch, .. } => {
                vec![("epoch", epoch.to_string())]
            }
            _ => return None,
        };
        Some(words)
    }
}

fn authorization_words(id: AuthorizationId, outcome: &Outcome) -> Vec<(&'static str, String)> {
    let (word, reason) = match outcome {
        Outcome::Open => ("open", None),
        Outcome::Claimed => ("claimed", None),
        Outcome::Withdrawn => ("withdrawn", None),
        Outcome::Declined { reason } => ("declined", Some(reason.clone())),
    };
    let mut words = vec![("authorization", id.to_string()), ("outcome", word.to_owned())];
    words.extend(reason.map(|reason| ("reason", reason)));
    words
}
