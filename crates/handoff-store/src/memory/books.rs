//! The registry's tables as maps.

use std::collections::{BTreeMap, BTreeSet};

use handoff_core::ledger::{Filter, Found, NodeRecord, SnapshotRecord};
use handoff_core::placement::Room;
use handoff_core::state::{Session, State};
use handoff_core::transfer::Transfer;
use handoff_protocol::{Digest, NodeId, ProjectId, TokenId, TransferId};

use crate::chain::{self, ChainKey, Head};
use crate::changes::{Changes, Remembered, RequestKey};
use crate::fold::{Loaded, SessionKey, TransferKey, Wanted, places};
use crate::rows::{Linked, Row};

/// All tables.
#[derive(Default)]
pub(super) struct Books {
    pub(super) sessions: BTreeMap<SessionKey, Session>,
    pub(super) transfers: BTreeMap<TransferKey, Transfer>,
    pub(super) chains: BTreeMap<ChainKey, Vec<Linked>>,
    pub(super) nodes: BTreeMap<NodeId, NodeRecord>,
    pub(super) snapshots: BTreeMap<(ProjectId, Digest), SnapshotRecord>,
    requests: BTreeMap<RequestKey, Remembered>,
    tokens: BTreeSet<(ProjectId, TokenId)>,
}

impl Books {
    pub(super) fn load(&self, wanted: &Wanted) -> Loaded {
        let mut loaded = Loaded::default();
        let mut sessions: BTreeMap<SessionKey, Vec<TransferId>> =
            wanted.sessions.iter().map(|key| (*key, Vec::new())).collect();
        for (project, transfer) in &wanted.transfers {
            if let Some(found) = self.transfers.get(&(*project, *transfer)) {
                sessions.entry((*project, found.session)).or_default().push(*transfer);
            }
        }
        for (key, named) in sessions {
            loaded.states.extend(self.state(key, named).map(|state| (key, state)));
        }
        let known = |key: &RequestKey| Some((key.clone(), self.requests.get(key)?.clone()));
        loaded.requests = wanted.requests.iter().filter_map(known).collect();
        loaded.tokens = wanted.tokens.intersection(&self.tokens).copied().collect();
        loaded.rooms = wanted.rooms.iter().map(|project| (*project, self.rooms(*project))).collect();
        loaded
    }

    fn state(&self, key: SessionKey, named: Vec<TransferId>) -> Option<State> {
        let session = self.sessions.get(&key)?.clone();
        let unclosed = self.of_project(key.0).filter(|found| found.session == key.1 && !found.ledger_closed);
        let mut left = named;
        left.extend(unclosed.map(|found| found.id).chain(session.pending).chain(session.live));
        let mut transfers = BTreeMap::new();
        while let Some(id) = left.pop() {
            let Some(found) = self.transfers.get(&(key.0, id)) else { continue };
            if transfers.insert(id, found.clone()).is_none() {
                left.extend(found.budget.and_then(|budget| budget.carved).map(|carved| carved.from));
            }
        }
        Some(State { session: Some(session), transfers, rooms: BTreeMap::new() })
    }

    fn of_project(&self, project: ProjectId) -> impl DoubleEndedIterator<Item = &Transfer> {
        let (first, last) = (TransferId::from_u128(0), TransferId::from_u128(u128::MAX));
        self.transfers.range((project, first)..=(project, last)).map(|(_, found)| found)
    }

    pub(super) fn rooms(&self, project: ProjectId) -> BTreeMap<NodeId, Room> {
        let of_project = self.nodes.values().filter(|node| node.project == project);
        let whole = |node: &NodeRecord| Room {
            cpu_millis: node.capacity.cpu_millis,
            memory_bytes: node.capacity.memory_bytes,
            seen_at: node.seen_at,
        };
        let mut rooms: BTreeMap<NodeId, Room> = of_project.map(|node| (node.id, whole(node))).collect();
        for found in self.of_project(project) {
            let Some(tier) = &found.tier else { continue };
            for (_, node) in places::generations(found) {
                if let Some(room) = rooms.get_mut(&node) {
                    places::occupy(room, tier);
                }
            }
        }
        rooms
    }

    pub(super) fn found(&self, key: TransferKey) -> Option<Found> {
        let transfer = self.transfers.get(&key)?.clone();
        let session = self.sessions.get(&(key.0, transfer.session))?.clone();
        Some(Found { session, transfer })
    }

    pub(super) fn list(&self, project: ProjectId, filter: &Filter, limit: usize) -> Vec<Found> {
        let fits = |found: &&Transfer| {
            (filter.statuses.is_empty() || filter.statuses.contains(&found.status))
                && filter.session.is_none_or(|session| session == found.session)
                && filter.node.is_none_or(|node| is_on(found, node))
                && (!filter.unclosed || !found.ledger_closed)
                && filter.before.is_none_or(|before| found.id < before)
        };
        let found = self.of_project(project).rev().filter(fits).take(limit);
        found.filter_map(|found| self.found((project, found.id))).collect()
    }

    /// Writes what changed.
    pub(super) fn write(&mut self, changes: &Changes) {
        for change in &changes.sessions {
            self.sessions.insert((change.after.project, change.after.id), change.after.clone());
        }
        for change in &changes.transfers {
            self.transfers.insert((change.project, change.after.id), change.after.clone());
        }
        self.tokens.extend(changes.tokens.iter().map(|spent| (spent.project, spent.token)));
        self.requests.extend(changes.requests.iter().cloned());
        self.record(&changes.rows);
    }

    /// Appends rows to their chains.
    pub(super) fn record(&mut self, rows: &[Row]) {
        let head = |row: &Row| {
            let key = (row.project, row.transfer);
            let last = self.chains.get(&key).and_then(|chain| chain.last());
            (key, last.map_or(Head::NONE, |last| Head { link: last.link, hash: last.hash }))
        };
        let mut heads = rows.iter().map(head).collect();
        for linked in chain::link(rows, &mut heads) {
            self.chains.entry((linked.row.project, linked.row.transfer)).or_default().push(linked);
        }
    }
}

/// Whether it is assigned to the node, now or in an earlier generation that is not proved absent.
fn is_on(transfer: &Transfer, node: NodeId) -> bool {
    let present = transfer.assignment.is_some_and(|present| present.node == node);
    present || transfer.former_assignments.values().any(|former| *former == node)
}
