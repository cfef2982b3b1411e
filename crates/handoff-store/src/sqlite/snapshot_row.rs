//! `snapshots` and `snapshot_blobs`: which blobs a snapshot needs, so that nothing collects them.

use handoff_core::ledger::SnapshotRecord;
use handoff_protocol::{Digest, ProjectId, Timestamp};
use rusqlite::types::ToSql;
use rusqlite::{Connection, params};

use super::cells::{self, Cells, bits, json};
use crate::failure::Failure;

const SELECT: &str =
    "SELECT digest, credential_refs, labels FROM snapshots WHERE project_id = ?1 AND digest = ?2";

const SELECT_BLOBS: &str = "SELECT blob, size FROM snapshot_blobs
    WHERE project_id = ?1 AND snapshot = ?2 ORDER BY position";

const INSERT: &str = "INSERT INTO snapshots (project_id, digest, credential_refs, labels, kept_at_ms)
    VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT (project_id, digest) DO NOTHING";

const INSERT_BLOB: &str = "INSERT INTO snapshot_blobs (project_id, snapshot, position, blob, size)
    VALUES (?1, ?2, ?3, ?4, ?5)";

pub(super) fn load(
    connection: &Connection,
    project: ProjectId,
    digest: Digest,
) -> Result<Option<SnapshotRecord>, Failure> {
    let project = project.to_string();
    let read = |cells: &mut Cells<'_>| {
        Ok(SnapshotRecord {
            digest: cells.digest()?,
            references: cells.json()?,
            labels: cells.json()?,
            blobs: Vec::new(),
        })
    };
    let Some(record) = cells::one(connection, SELECT, params![project, digest.as_bytes()], read)? else {
        return Ok(None);
    };
    let blob = |cells: &mut Cells<'_>| Ok((cells.digest()?, cells.count()?));
    let blobs = cells::all(connection, SELECT_BLOBS, params![project, digest.as_bytes()], blob)?;
    Ok(Some(SnapshotRecord { blobs, ..record }))
}

/// Remembers a snapshot. One that is known stays as it is: its digest says all of it.
pub(super) fn write(
    connection: &Connection,
    project: ProjectId,
    record: &SnapshotRecord,
    at: Timestamp,
) -> Result<(), Failure> {
    let project = project.to_string();
    let values: [&dyn ToSql; 5] =
        [&project, record.digest.as_bytes(), &json(&record.references), &json(&record.labels), &at.unix_ms()];
    if connection.prepare_cached(INSERT)?.execute(&values[..])? == 0 {
        return Ok(());
    }
    for (position, (blob, size)) in (0i64..).zip(&record.blobs) {
        let values: [&dyn ToSql; 5] =
            [&project, record.digest.as_bytes(), &position, blob.as_bytes(), &bits(*size)];
        cells::exactly_one(connection, "snapshot blob", INSERT_BLOB, &values[..])?;
    }
    Ok(())
}
