//! The registry in memory: the same commands, answers and rows, and nothing left when it is dropped. For tests.

mod books;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use handoff_core::Policy;
use handoff_core::ledger::{
    Applied, AuditEntry, AuditRow, Chain, Envelope, Filter, Found, Ledger, LedgerError, Listed, NodeRecord,
    SnapshotRecord,
};
use handoff_core::placement::Room;
use handoff_core::state::Session;
use handoff_protocol::request::EventView;
use handoff_protocol::{Digest, NodeId, ProjectId, SessionId, Timestamp, TransferId};

use self::books::Books;
use crate::chain::Verifier;
use crate::clock::{StoreClock, StoreTime};
use crate::fold::{self, Wanted};
use crate::refusals::Refusals;
use crate::revision::Revision;
use crate::rows::{Linked, Row};

/// How many are listed where the caller names no number.
const LIMIT: usize = 1000;

/// The registry in memory.
pub struct MemoryLedger {
    policy: Policy,
    time: StoreTime,
    revision: Revision,
    desk: Mutex<Desk>,
}

#[derive(Default)]
struct Desk {
    books: Books,
    refusals: Refusals,
}

impl MemoryLedger {
    /// An empty registry.
    pub fn new(policy: Policy, clock: Arc<dyn StoreClock>) -> Self {
        let time = StoreTime::new(clock, None, None);
        let revision = Revision::starting_at(time.now());
        Self { policy, time, revision, desk: Mutex::default() }
    }

    /// A panic in a decision happens before anything is written, so what is behind the lock is whole.
    fn desk(&self) -> MutexGuard<'_, Desk> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn batch(&self, envelopes: &[Envelope]) -> Vec<Result<Applied, LedgerError>> {
        let mut desk = self.desk();
        let loaded = desk.books.load(&Wanted::of(envelopes));
        let now = self.time.now();
        let folded = fold::fold(&self.policy, now, loaded, envelopes);
        if folded.changes.is_seen() {
            self.revision.raise();
        }
        desk.books.write(&folded.changes);
        for (envelope, answer) in envelopes.iter().zip(&folded.answers) {
            if let Err(error) = answer {
                let row = desk.refusals.row(envelope, error, folded.named(envelope), now);
                desk.books.record(row.as_slice());
            }
        }
        folded.answers
    }
}

fn limited(wanted: usize) -> usize {
    if wanted == 0 { LIMIT } else { wanted }
}

#[async_trait]
impl Ledger for MemoryLedger {
    async fn apply(&self, commands: Vec<Envelope>) -> Vec<Result<Applied, LedgerError>> {
        self.batch(&commands)
    }

    async fn now(&self) -> Result<Timestamp, LedgerError> {
        Ok(self.time.now())
    }

    async fn transfer(&self, project: ProjectId, transfer: TransferId) -> Result<Option<Found>, LedgerError> {
        Ok(self.desk().books.found((project, transfer)))
    }

    async fn session(&self, project: ProjectId, session: SessionId) -> Result<Option<Session>, LedgerError> {
        Ok(self.desk().books.sessions.get(&(project, session)).cloned())
    }

    async fn sessions(
        &self,
        project: ProjectId,
        before: Option<SessionId>,
        limit: usize,
    ) -> Result<Vec<Session>, LedgerError> {
        let desk = self.desk();
        let fits = |session: &&Session| {
            session.project == project && before.is_none_or(|before| session.id < before)
        };
        Ok(desk.books.sessions.values().rev().filter(fits).take(limited(limit)).cloned().collect())
    }

    async fn transfers(&self, project: ProjectId, filter: &Filter) -> Result<Listed, LedgerError> {
        let found = self.desk().books.list(project, filter, limited(filter.limit));
        Ok(Listed { found, unreadable: 0 })
    }

    async fn events(
        &self,
        project: ProjectId,
        transfer: TransferId,
        after: u64,
        limit: usize,
    ) -> Result<Vec<EventView>, LedgerError> {
        let desk = self.desk();
        let chain = desk.books.chains.get(&(project, Some(transfer)));
        let events = chain.into_iter().flatten().filter_map(Linked::event);
        Ok(events.filter(|event| event.seq > after).take(limited(limit)).collect())
    }

    async fn audit(
        &self,
        project: ProjectId,
        transfer: TransferId,
        after: u64,
        limit: usize,
    ) -> Result<Vec<AuditRow>, LedgerError> {
        let desk = self.desk();
        let chain = desk.books.chains.get(&(project, Some(transfer)));
        let rows = chain.into_iter().flatten().filter_map(Linked::audit);
        Ok(rows.filter(|row| row.link > after).take(limited(limit)).collect())
    }

    async fn verify_chain(
        &self,
        project: ProjectId,
        transfer: Option<TransferId>,
    ) -> Result<Chain, LedgerError> {
        let desk = self.desk();
        let mut verifier = Verifier::new();
        let chain = desk.books.chains.get(&(project, transfer));
        chain.into_iter().flatten().for_each(|linked| verifier.next_linked(linked));
        Ok(verifier.verdict())
    }

    async fn record(&self, entry: AuditEntry) -> Result<(), LedgerError> {
        let row = Row::of_entry(entry, self.time.now());
        self.desk().books.record(&[row]);
        Ok(())
    }

    async fn register_node(&self, node: NodeRecord) -> Result<(), LedgerError> {
        let mut desk = self.desk();
        let known = desk.books.nodes.get(&node.id);
        let other = |known: &NodeRecord| known.public_key != node.public_key || known.project != node.project;
        if known.is_some_and(other) {
            return Err(LedgerError::RequestConflict);
        }
        let seen_at = self.time.now();
        desk.books.nodes.insert(node.id, NodeRecord { seen_at, ..node });
        Ok(())
    }

    async fn see_node(&self, node: NodeId) -> Result<(), LedgerError> {
        let seen_at = self.time.now();
        if let Some(node) = self.desk().books.nodes.get_mut(&node) {
            node.seen_at = seen_at;
        }
        Ok(())
    }

    async fn nodes(&self, project: ProjectId) -> Result<Vec<NodeRecord>, LedgerError> {
        let desk = self.desk();
        Ok(desk.books.nodes.values().filter(|node| node.project == project).cloned().collect())
    }

    async fn rooms(&self, project: ProjectId) -> Result<BTreeMap<NodeId, Room>, LedgerError> {
        Ok(self.desk().books.rooms(project))
    }

    async fn keep_snapshot(&self, project: ProjectId, snapshot: SnapshotRecord) -> Result<(), LedgerError> {
        self.desk().books.snapshots.entry((project, snapshot.digest)).or_insert(snapshot);
        Ok(())
    }

    async fn snapshot(
        &self,
        project: ProjectId,
        digest: Digest,
    ) -> Result<Option<SnapshotRecord>, LedgerError> {
        Ok(self.desk().books.snapshots.get(&(project, digest)).cloned())
    }

    fn revision(&self) -> u64 {
        self.revision.present()
    }

    async fn changed(&self, after: u64) -> u64 {
        self.revision.after(after).await
    }
}
