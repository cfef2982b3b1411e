//! Rows of `usage_events` and `audit_log`: what happened, in the order in which it did.

use handoff_core::command::Actor;
use handoff_core::fact::{Fact, Record};
use handoff_core::ledger::{AuditEntry, AuditRow};
use handoff_protocol::document::Facts;
use handoff_protocol::request::{EventType, EventView};
use handoff_protocol::{Digest, EventId, ProjectId, SessionId, Timestamp, TransferId};

/// A row before it has its place in a chain.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    pub(crate) project: ProjectId,
    /// Whose chain it belongs to; none for rows about no transfer.
    pub(crate) transfer: Option<TransferId>,
    pub(crate) session: Option<SessionId>,
    pub(crate) book: Book,
    pub(crate) at: Timestamp,
    pub(crate) actor: Actor,
    /// The JSON text that is stored and hashed.
    pub(crate) detail: String,
}

/// Which table a row is in.
#[derive(Debug, Clone)]
pub(crate) enum Book {
    /// `usage_events`.
    Event { transfer: TransferId, id: EventId, seq: u64, kind: EventType },
    /// `audit_log`.
    Audit { kind: String },
}

/// A row in its place.
#[derive(Debug, Clone)]
pub(crate) struct Linked {
    pub(crate) row: Row,
    pub(crate) link: u64,
    pub(crate) hash: Digest,
}

/// Who did what when, for the rows of one accepted command.
pub(crate) struct Occasion<'a> {
    pub(crate) project: ProjectId,
    pub(crate) session: Option<SessionId>,
    /// The transfer that the command names: facts about the session alone go into its chain.
    pub(crate) transfer: Option<TransferId>,
    pub(crate) actor: &'a Actor,
    pub(crate) at: Timestamp,
}

impl Row {
    /// The row that a fact leaves, if it leaves one. `seq` is its transfer's event seq after it.
    pub(crate) fn of_fact(occasion: &Occasion<'_>, fact: &Fact, seq: u64) -> Option<Self> {
        let book = match (fact.record(), fact.transfer()) {
            (Record::Event(kind), Some(transfer)) => {
                Book::Event { transfer, id: EventId::from(uuid::Uuid::now_v7()), seq, kind }
            }
            (Record::Audit(kind), _) => Book::Audit { kind: kind.to_owned() },
            (Record::Event(_), None) | (Record::Bookkeeping, _) => return None,
        };
        Some(Self {
            project: occasion.project,
            transfer: fact.transfer().or(occasion.transfer),
            session: occasion.session,
            book,
            at: occasion.at,
            actor: occasion.actor.clone(),
            detail: detail_text(&fact.detail()),
        })
    }

    /// The row that somebody asked for.
    pub(crate) fn of_entry(entry: AuditEntry, at: Timestamp) -> Self {
        Self {
            project: entry.project,
            transfer: entry.transfer,
            session: None,
            book: Book::Audit { kind: entry.kind.to_owned() },
            at,
            actor: entry.actor,
            detail: detail_text(&entry.detail),
        }
    }
}

/// The one JSON text of a detail.
pub(crate) fn detail_text(detail: &Facts) -> String {
    serde_json::to_string(detail).expect("a map of texts is always JSON")
}

impl Linked {
    /// As an event, if it is one.
    pub(crate) fn event(&self) -> Option<EventView> {
        let Book::Event { id, seq, kind, .. } = self.row.book else { return None };
        Some(EventView {
            event_id: id,
            seq,
            kind,
            at: self.row.at,
            actor: self.row.actor.principal.clone(),
            detail: self.detail(),
        })
    }

    /// As an audit row, if it is one.
    pub(crate) fn audit(&self) -> Option<AuditRow> {
        let Book::Audit { kind } = &self.row.book else { return None };
        Some(AuditRow {
            link: self.link,
            kind: kind.clone(),
            at: self.row.at,
            actor: self.row.actor.principal.clone(),
            detail: self.detail(),
            hash: self.hash,
        })
    }

    fn detail(&self) -> Facts {
        serde_json::from_str(&self.row.detail).expect("the text was made from a map of texts")
    }
}
