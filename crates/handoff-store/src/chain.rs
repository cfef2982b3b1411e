//! Hash chains: one per transfer over its rows of both tables, and one per project and server instance for rows
//! about no transfer.
//!
//! ```text
//! hash(n) = SHA-256( hash(n-1) ‖ for each column: length in 8 bytes ‖ its stored bytes as text )
//! ```
//!
//! The columns are: table, project, chain, link, session or event seq, event id, type or kind, time in
//! milliseconds, actor, role, detail. Before the first row stand 32 zeros. Whoever changes, removes or inserts
//! a row breaks every hash after it; rows taken off the end show only against a head that was kept elsewhere.

use std::collections::BTreeMap;

use handoff_core::ledger::Chain;
use handoff_protocol::{Digest, ProjectId, TransferId};
use sha2::{Digest as _, Sha256};

use crate::rows::{Book, Linked, Row};
use crate::words::Word;

/// The name of the chain for rows about no transfer. An embedded store has one server, so one such chain.
pub(crate) const INSTANCE: &str = "instance";

/// Which chain.
pub(crate) type ChainKey = (ProjectId, Option<TransferId>);

/// A chain's last row.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Head {
    pub(crate) link: u64,
    pub(crate) hash: Digest,
}

impl Head {
    /// Before the first row.
    pub(crate) const NONE: Self = Self { link: 0, hash: Digest::from_bytes([0; 32]) };
}

/// The columns of a row as they are stored, in the order in which they are hashed.
pub(crate) struct Columns(pub(crate) [String; 11]);

impl Columns {
    fn of(row: &Row, link: u64) -> Self {
        let (table, own, id, kind) = match &row.book {
            Book::Event { id, seq, kind, .. } => {
                ("usage_events", seq.to_string(), id.to_string(), kind.word().to_owned())
            }
            Book::Audit { kind } => {
                let session = row.session.map(|session| session.to_string()).unwrap_or_default();
                ("audit_log", session, String::new(), kind.clone())
            }
        };
        Self([
            table.to_owned(),
            row.project.to_string(),
            chain_name(row.transfer),
            link.to_string(),
            own,
            id,
            kind,
            row.at.unix_ms().to_string(),
            row.actor.principal.clone(),
            row.actor.role.word().to_owned(),
            row.detail.clone(),
        ])
    }

    fn hash(&self, previous: &Digest) -> Digest {
        let mut sha = Sha256::new();
        sha.update(previous.as_bytes());
        for column in &self.0 {
            sha.update(u64::try_from(column.len()).unwrap_or(u64::MAX).to_be_bytes());
            sha.update(column.as_bytes());
        }
        Digest::from_bytes(sha.finalize().into())
    }
}

/// The chain's name in `audit_log`.
pub(crate) fn chain_name(transfer: Option<TransferId>) -> String {
    transfer.map_or_else(|| INSTANCE.to_owned(), |transfer| transfer.to_string())
}

/// Gives rows their places behind the heads of their chains, and moves the heads on.
pub(crate) fn link(rows: &[Row], heads: &mut BTreeMap<ChainKey, Head>) -> Vec<Linked> {
    let mut linked = Vec::with_capacity(rows.len());
    for row in rows {
        let head = heads.entry((row.project, row.transfer)).or_insert(Head::NONE);
        let link = head.link + 1;
        let hash = Columns::of(row, link).hash(&head.hash);
        *head = Head { link, hash };
        linked.push(Linked { row: row.clone(), link, hash });
    }
    linked
}

/// Computes a chain anew, row by row in the order of their links.
pub(crate) struct Verifier {
    head: Head,
    broken: Option<u64>,
}

impl Verifier {
    pub(crate) const fn new() -> Self {
        Self { head: Head::NONE, broken: None }
    }

    /// The next row: its link, its stored hash, its columns.
    pub(crate) fn next(&mut self, link: u64, hash: Digest, columns: &Columns) {
        let expected = self.head.link + 1;
        if self.broken.is_none() && (link != expected || columns.hash(&self.head.hash) != hash) {
            self.broken = Some(expected);
        }
        self.head = Head { link: expected, hash };
    }

    /// The next row of a store that keeps them as they were linked.
    pub(crate) fn next_linked(&mut self, linked: &Linked) {
        self.next(linked.link, linked.hash, &Columns::of(&linked.row, linked.link));
    }

    pub(crate) fn verdict(&self) -> Chain {
        match self.broken {
            Some(link) => Chain::Broken { link },
            None => Chain::Whole { links: self.head.link, head: self.head.hash },
        }
    }
}

#[cfg(test)]
mod tests {
    use handoff_core::command::{Actor, Role};
    use handoff_protocol::Timestamp;

    use super::*;

    fn row(kind: &str, detail: &str) -> Row {
        Row {
            project: ProjectId::from_u128(1),
            transfer: Some(TransferId::from_u128(2)),
            session: None,
            book: Book::Audit { kind: kind.to_owned() },
            at: Timestamp::from_unix_ms(3),
            actor: Actor { principal: "p".to_owned(), role: Role::Caller },
            detail: detail.to_owned(),
        }
    }

    fn verdict(rows: &[Linked]) -> Chain {
        let mut verifier = Verifier::new();
        rows.iter().for_each(|row| verifier.next_linked(row));
        verifier.verdict()
    }

    #[test]
    fn a_change_a_gap_and_a_swap_break_the_chain_where_they_are() {
        let linked = link(&[row("a", "{}"), row("b", "{}"), row("c", "{}")], &mut BTreeMap::new());
        assert!(matches!(verdict(&linked), Chain::Whole { links: 3, .. }));
        let mut changed = linked.clone();
        changed[1].row.detail = "{ }".to_owned();
        assert_eq!(verdict(&changed), Chain::Broken { link: 2 });
        let mut gap = linked.clone();
        gap.remove(1);
        assert_eq!(verdict(&gap), Chain::Broken { link: 2 });
        let mut swapped = linked.clone();
        swapped.swap(0, 1);
        assert_eq!(verdict(&swapped), Chain::Broken { link: 1 });
        let shorter = &linked[..2];
        assert!(matches!(verdict(shorter), Chain::Whole { links: 2, .. }), "only a kept head shows this");
    }

    #[test]
    fn text_does_not_move_between_columns() {
        let one = link(&[row("ab", "c")], &mut BTreeMap::new());
        let two = link(&[row("a", "bc")], &mut BTreeMap::new());
        assert_ne!(one[0].hash, two[0].hash);
    }
}
