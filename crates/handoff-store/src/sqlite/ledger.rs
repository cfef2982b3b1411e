//! The port, on SQLite.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

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

use super::blobs::{BlobLimits, SqliteBlobs};
use super::engine::Engine;
use super::open::OpenOptions;
use super::{assignment_row, list, node_row, project_row, record_row, session_row, snapshot_row};
use crate::failure::{Failure, OpenError};

/// The registry in one SQLite file, which one process has open at a time.
///
/// Dropping it finishes what was asked, closes the file and lets its lock go; it may block for that long.
pub struct SqliteLedger {
    engine: Arc<Engine>,
}

impl SqliteLedger {
    /// Opens the file, makes it if it is not there, and brings its schema up to date.
    ///
    /// # Errors
    /// [`OpenError::StoreLocked`] when another process has it open, [`OpenError::VersionUnsupported`] when a
    /// newer program made it, [`OpenError::NotAStore`] when it is something else, [`OpenError::Policy`] when
    /// nobody can decide by the policy; then no file is made.
    pub fn open(path: impl AsRef<Path>, policy: Policy, options: OpenOptions) -> Result<Self, OpenError> {
        policy.check()?;
        Ok(Self { engine: Arc::new(Engine::open(path.as_ref(), policy, &options)?) })
    }

    /// The blobs that are kept in the same file for one project. They keep the file open.
    pub fn blobs(&self, project: ProjectId, limits: BlobLimits) -> SqliteBlobs {
        SqliteBlobs::new(Arc::clone(&self.engine), project, limits)
    }
}

#[async_trait]
impl Ledger for SqliteLedger {
    async fn apply(&self, commands: Vec<Envelope>) -> Vec<Result<Applied, LedgerError>> {
        self.engine.apply(commands).await
    }

    async fn now(&self) -> Result<Timestamp, LedgerError> {
        Ok(self.engine.time.now())
    }

    async fn transfer(&self, project: ProjectId, transfer: TransferId) -> Result<Option<Found>, LedgerError> {
        self.engine.readers.read(move |connection| list::found(connection, project, transfer)).await
    }

    async fn session(&self, project: ProjectId, session: SessionId) -> Result<Option<Session>, LedgerError> {
        self.engine.readers.read(move |connection| session_row::load(connection, project, session)).await
    }

    async fn sessions(
        &self,
        project: ProjectId,
        before: Option<SessionId>,
        limit: usize,
    ) -> Result<Vec<Session>, LedgerError> {
        let read = move |connection: &rusqlite::Connection| {
            let ids = session_row::page(connection, project, before, list::limit(limit))?;
            let load = |id| session_row::load(connection, project, id).transpose();
            ids.into_iter().filter_map(load).collect()
        };
        self.engine.readers.read(read).await
    }

    async fn transfers(&self, project: ProjectId, filter: &Filter) -> Result<Listed, LedgerError> {
        let filter = filter.clone();
        self.engine.readers.read(move |connection| list::transfers(connection, project, &filter)).await
    }

    async fn events(
        &self,
        project: ProjectId,
        transfer: TransferId,
        after: u64,
        limit: usize,
    ) -> Result<Vec<EventView>, LedgerError> {
        let limit = list::limit(limit);
        let key = (project, transfer);
        self.engine.readers.read(move |connection| record_row::events(connection, key, after, limit)).await
    }

    async fn audit(
        &self,
        project: ProjectId,
        transfer: TransferId,
        after: u64,
        limit: usize,
    ) -> Result<Vec<AuditRow>, LedgerError> {
        let limit = list::limit(limit);
        let key = (project, transfer);
        self.engine.readers.read(move |connection| record_row::audit(connection, key, after, limit)).await
    }

    async fn verify_chain(
        &self,
        project: ProjectId,
        transfer: Option<TransferId>,
    ) -> Result<Chain, LedgerError> {
        self.engine.readers.read(move |connection| record_row::verify(connection, (project, transfer))).await
    }

    async fn record(&self, entry: AuditEntry) -> Result<(), LedgerError> {
        self.engine.record(entry).await
    }

    async fn register_node(&self, node: NodeRecord) -> Result<(), LedgerError> {
        let time = Arc::clone(&self.engine.time);
        let put = move |connection: &rusqlite::Connection| {
            let now = time.now();
            project_row::touch(connection, node.project, now)?;
            node_row::put(connection, &node, now)
        };
        if self.engine.write(put).await? { Ok(()) } else { Err(LedgerError::RequestConflict) }
    }

    async fn see_node(&self, node: NodeId) -> Result<(), LedgerError> {
        let time = Arc::clone(&self.engine.time);
        self.engine.write(move |connection| node_row::see(connection, node, time.now())).await
    }

    async fn nodes(&self, project: ProjectId) -> Result<Vec<NodeRecord>, LedgerError> {
        self.engine.readers.read(move |connection| node_row::all(connection, project)).await
    }

    async fn rooms(&self, project: ProjectId) -> Result<BTreeMap<NodeId, Room>, LedgerError> {
        self.engine.readers.read(move |connection| assignment_row::rooms(connection, project)).await
    }

    async fn keep_snapshot(&self, project: ProjectId, snapshot: SnapshotRecord) -> Result<(), LedgerError> {
        let time = Arc::clone(&self.engine.time);
        let keep = move |connection: &rusqlite::Connection| -> Result<(), Failure> {
            let now = time.now();
            project_row::touch(connection, project, now)?;
            snapshot_row::write(connection, project, &snapshot, now)
        };
        self.engine.write(keep).await
    }

    async fn snapshot(
        &self,
        project: ProjectId,
        digest: Digest,
    ) -> Result<Option<SnapshotRecord>, LedgerError> {
        self.engine.readers.read(move |connection| snapshot_row::load(connection, project, digest)).await
    }

    fn revision(&self) -> u64 {
        self.engine.revision.present()
    }

    async fn changed(&self, after: u64) -> u64 {
        self.engine.revision.after(after).await
    }
}
