//! Snapshot bytes in the `blobs` table: whole, as they came, and never more than leaves the ledger room to write.

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use handoff_core::ledger::LedgerError;
use handoff_protocol::port::{BlobError, BlobStore};
use handoff_protocol::{Digest, ProjectId, limits};
use rusqlite::{Connection, params};

use super::cells::{self, bits};
use super::engine::Engine;
use super::project_row;
use crate::failure::Failure;

const INSERT: &str = "INSERT INTO blobs (project_id, digest, size, stored_at_ms, bytes)
    VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT (project_id, digest) DO NOTHING";

const SELECT: &str = "SELECT bytes FROM blobs WHERE project_id = ?1 AND digest = ?2";

const SELECT_SIZE: &str = "SELECT size FROM blobs WHERE project_id = ?1 AND digest = ?2";

const DELETE: &str = "DELETE FROM blobs WHERE project_id = ?1 AND digest = ?2";

/// How much the blobs may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlobLimits {
    /// Bytes of one blob.
    pub blob_bytes: u64,
    /// Bytes that must stay free on the disk: the ledger's, which has to go on when snapshots cannot.
    pub keep_free_bytes: u64,
}

impl Default for BlobLimits {
    fn default() -> Self {
        Self { blob_bytes: limits::BLOB_BYTES, keep_free_bytes: 256 << 20 }
    }
}

/// The blobs of one project in the registry's file.
pub struct SqliteBlobs {
    engine: Arc<Engine>,
    project: ProjectId,
    limits: BlobLimits,
}

impl SqliteBlobs {
    pub(super) fn new(engine: Arc<Engine>, project: ProjectId, limits: BlobLimits) -> Self {
        Self { engine, project, limits }
    }

    async fn room_for(&self, bytes: u64) -> Result<(), BlobError> {
        let folder = self.engine.path.parent().map(Path::to_owned).unwrap_or_default();
        let free = tokio::task::spawn_blocking(move || free_bytes(&folder)).await.map_err(unavailable)?;
        let free = free.map_err(unavailable)?;
        if free < self.limits.keep_free_bytes.saturating_add(bytes) {
            tracing::warn!(free, bytes, "the fill mark is reached: a blob was refused");
            return Err(BlobError::Full);
        }
        Ok(())
    }
}

/// Bytes that are left for us on the disk that holds this folder.
fn free_bytes(folder: &Path) -> std::io::Result<u64> {
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let disk = rustix::fs::statvfs(folder)?;
    Ok(disk.f_bavail.saturating_mul(disk.f_frsize))
}

/// Whether the bytes are what the name says. Off the async threads: a large blob takes its time.
async fn verified(digest: Digest, bytes: Vec<u8>) -> Result<Vec<u8>, BlobError> {
    let check = move || (Digest::of(&bytes) == digest).then_some(bytes);
    let checked = tokio::task::spawn_blocking(check).await.map_err(unavailable)?;
    checked.ok_or(BlobError::Mismatch(digest))
}

#[async_trait]
impl BlobStore for SqliteBlobs {
    async fn put(&self, digest: Digest, bytes: Vec<u8>) -> Result<(), BlobError> {
        let size = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        if size > self.limits.blob_bytes {
            return Err(BlobError::Full);
        }
        let bytes = verified(digest, bytes).await?;
        if self.size(digest).await?.is_some() {
            return Ok(());
        }
        self.room_for(size).await?;
        let (project, time) = (self.project, Arc::clone(&self.engine.time));
        let insert = move |connection: &Connection| -> Result<(), Failure> {
            let now = time.now();
            project_row::touch(connection, project, now)?;
            let values = params![project.to_string(), digest.as_bytes(), bits(size), now.unix_ms(), bytes];
            connection.prepare_cached(INSERT)?.execute(values)?;
            Ok(())
        };
        self.engine.write(insert).await.map_err(failed)
    }

    async fn get(&self, digest: Digest) -> Result<Vec<u8>, BlobError> {
        let project = self.project;
        let read = move |connection: &Connection| {
            let key = params![project.to_string(), digest.as_bytes()];
            cells::one(connection, SELECT, key, |cells| cells.take::<Vec<u8>>())
        };
        let found = self.engine.readers.read(read).await.map_err(failed)?;
        verified(digest, found.ok_or(BlobError::NotFound(digest))?).await
    }

    async fn size(&self, digest: Digest) -> Result<Option<u64>, BlobError> {
        let project = self.project;
        let read = move |connection: &Connection| {
            let key = params![project.to_string(), digest.as_bytes()];
            cells::one(connection, SELECT_SIZE, key, |cells| cells.count())
        };
        self.engine.readers.read(read).await.map_err(failed)
    }

    async fn delete(&self, digest: Digest) -> Result<(), BlobError> {
        let project = self.project;
        let delete = move |connection: &Connection| -> Result<(), Failure> {
            connection.prepare_cached(DELETE)?.execute(params![project.to_string(), digest.as_bytes()])?;
            Ok(())
        };
        self.engine.write(delete).await.map_err(failed)
    }
}

fn failed(error: LedgerError) -> BlobError {
    match error {
        LedgerError::Full => BlobError::Full,
        error @ (LedgerError::Refused(_)
        | LedgerError::RequestConflict
        | LedgerError::VersionMismatch { .. }
        | LedgerError::Unavailable(_)
        | LedgerError::Broken { .. }) => unavailable(error),
    }
}

fn unavailable(error: impl std::error::Error + Send + Sync + 'static) -> BlobError {
    BlobError::Unavailable(Box::new(error))
}
