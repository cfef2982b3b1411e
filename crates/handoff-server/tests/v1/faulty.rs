//! A ledger that fails when a test says so, in front of one that does not.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use handoff_core::ledger::{
    Applied, AuditEntry, AuditRow, Chain, Envelope, Filter, Found, LedgerError, Listed, NodeRecord,
    SnapshotRecord,
};
use handoff_core::placement::Room;
use handoff_core::{Command, Session};
use handoff_protocol::request::EventView;
use handoff_protocol::{Digest, NodeId, ProjectId, SessionId, Timestamp, TransferId};
use handoff_service::Ledger;

/// The ledger.
pub(crate) struct Faulty {
    inner: Arc<dyn Ledger>,
    full: AtomicBool,
    unreadable: Mutex<Option<TransferId>>,
    unlisted: Mutex<Option<TransferId>>,
}

impl Faulty {
    pub(crate) fn over(inner: Arc<dyn Ledger>) -> Self {
        Self { inner, full: AtomicBool::default(), unreadable: Mutex::default(), unlisted: Mutex::default() }
    }

    /// Whether nothing can be written.
    pub(crate) fn set_full(&self, full: bool) {
        self.full.store(full, Ordering::Relaxed);
    }

    /// This transfer cannot expire any more, because of what is stored of it.
    pub(crate) fn spoil(&self, transfer: TransferId) {
        *self.unreadable.lock().unwrap_or_else(PoisonError::into_inner) = Some(transfer);
    }

    /// This transfer does not read, as far as lists go.
    pub(crate) fn unlist(&self, transfer: TransferId) {
        *self.unlisted.lock().unwrap_or_else(PoisonError::into_inner) = Some(transfer);
    }

    fn fault(&self, command: &Command) -> Option<LedgerError> {
        let unreadable = *self.unreadable.lock().unwrap_or_else(PoisonError::into_inner);
        if self.full.load(Ordering::Relaxed) {
            return Some(LedgerError::Full);
        }
        match command {
            Command::Expire { transfer } if Some(*transfer) == unreadable => {
                Some(LedgerError::Broken { what: "a row of a test".to_owned() })
            }
            _ => None,
        }
    }
}

type Answer<T> = Result<T, LedgerError>;

#[async_trait]
impl Ledger for Faulty {
    async fn apply(&self, commands: Vec<Envelope>) -> Vec<Answer<Applied>> {
        match commands.iter().find_map(|envelope| self.fault(&envelope.command)) {
            Some(LedgerError::Full) => commands.iter().map(|_| Err(LedgerError::Full)).collect(),
            Some(_) => commands.iter().map(|_| Err(LedgerError::Broken { what: "it".to_owned() })).collect(),
            None => self.inner.apply(commands).await,
        }
    }

    async fn now(&self) -> Answer<Timestamp> {
        self.inner.now().await
    }

    async fn transfer(&self, project: ProjectId, transfer: TransferId) -> Answer<Option<Found>> {
        self.inner.transfer(project, transfer).await
    }

    async fn session(&self, project: ProjectId, session: SessionId) -> Answer<Option<Session>> {
        self.inner.session(project, session).await
    }

    async fn sessions(
        &self,
        project: ProjectId,
        before: Option<SessionId>,
        limit: usize,
    ) -> Answer<Vec<Session>> {
        self.inner.sessions(project, before, limit).await
    }

    async fn transfers(&self, project: ProjectId, filter: &Filter) -> Answer<Listed> {
        let mut listed = self.inner.transfers(project, filter).await?;
        let unlisted = *self.unlisted.lock().unwrap_or_else(PoisonError::into_inner);
        let left_out = listed.found.extract_if(.., |found| Some(found.transfer.id) == unlisted);
        listed.unreadable += left_out.count() as u64;
        Ok(listed)
    }

    async fn events(
        &self,
        project: ProjectId,
        transfer: TransferId,
        after: u64,
        limit: usize,
    ) -> Answer<Vec<EventView>> {
        self.inner.events(project, transfer, after, limit).await
    }

    async fn audit(
        &self,
        project: ProjectId,
        transfer: TransferId,
        after: u64,
        limit: usize,
    ) -> Answer<Vec<AuditRow>> {
        self.inner.audit(project, transfer, after, limit).await
    }

    async fn verify_chain(&self, project: ProjectId, transfer: Option<TransferId>) -> Answer<Chain> {
        self.inner.verify_chain(project, transfer).await
    }

    async fn record(&self, entry: AuditEntry) -> Answer<()> {
        self.inner.record(entry).await
    }

    async fn register_node(&self, node: NodeRecord) -> Answer<()> {
        self.inner.register_node(node).await
    }

    async fn see_node(&self, node: NodeId) -> Answer<()> {
        self.inner.see_node(node).await
    }

    async fn nodes(&self, project: ProjectId) -> Answer<Vec<NodeRecord>> {
        self.inner.nodes(project).await
    }

    async fn rooms(&self, project: ProjectId) -> Answer<BTreeMap<NodeId, Room>> {
        self.inner.rooms(project).await
    }

    async fn keep_snapshot(&self, project: ProjectId, snapshot: SnapshotRecord) -> Answer<()> {
        self.inner.keep_snapshot(project, snapshot).await
    }

    async fn snapshot(&self, project: ProjectId, digest: Digest) -> Answer<Option<SnapshotRecord>> {
        self.inner.snapshot(project, digest).await
    }

    fn revision(&self) -> u64 {
        self.inner.revision()
    }

    async fn changed(&self, after: u64) -> u64 {
        self.inner.changed(after).await
    }
}
