//! `usage_events` and `audit_log`: what happened, in hash chains over both.

use handoff_core::ledger::{AuditRow, Chain};
use handoff_protocol::request::EventView;
use handoff_protocol::{ProjectId, TransferId};
use rusqlite::types::ToSql;
use rusqlite::{Connection, params};

use super::cells::{self, Cells, bits};
use crate::chain::{ChainKey, Columns, Head, Verifier, chain_name};
use crate::failure::Failure;
use crate::rows::{Book, Linked};
use crate::words::Word;

const INSERT_EVENT: &str = "INSERT INTO usage_events
        (project_id, transfer_id, seq, event_id, link, type, at_ms, actor, role, detail, hash)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)";

const INSERT_AUDIT: &str = "INSERT INTO audit_log
        (project_id, chain, link, session_id, kind, at_ms, actor, role, detail, hash)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)";

const EVENTS: &str = "SELECT event_id, seq, type, at_ms, actor, detail FROM usage_events
    WHERE project_id = ?1 AND transfer_id = ?2 AND seq > ?3 ORDER BY seq LIMIT ?4";

const AUDIT: &str = "SELECT link, kind, at_ms, actor, detail, hash FROM audit_log
    WHERE project_id = ?1 AND chain = ?2 AND link > ?3 ORDER BY link LIMIT ?4";

const HEAD: &str = "SELECT link, hash FROM (
        SELECT * FROM (SELECT link, hash FROM usage_events WHERE project_id = ?1 AND transfer_id = ?2
            ORDER BY seq DESC LIMIT 1)
        UNION ALL
        SELECT * FROM (SELECT link, hash FROM audit_log WHERE project_id = ?1 AND chain = ?2
            ORDER BY link DESC LIMIT 1)
    ) ORDER BY link DESC LIMIT 1";

const CHAIN: &str = "SELECT link, hash, 'usage_events', project_id, transfer_id, CAST(link AS TEXT),
        CAST(seq AS TEXT), event_id, type, CAST(at_ms AS TEXT), actor, role, detail
    FROM usage_events WHERE project_id = ?1 AND transfer_id = ?2
    UNION ALL
    SELECT link, hash, 'audit_log', project_id, chain, CAST(link AS TEXT),
        coalesce(session_id, ''), '', kind, CAST(at_ms AS TEXT), actor, role, detail
    FROM audit_log WHERE project_id = ?1 AND chain = ?2
    ORDER BY 1";

pub(super) fn write(connection: &Connection, linked: &Linked) -> Result<(), Failure> {
    let row = &linked.row;
    let role = row.actor.role.word();
    match &row.book {
        Book::Event { transfer, id, seq, kind } => {
            let values: [&dyn ToSql; 11] = [
                &row.project.to_string(),
                &transfer.to_string(),
                &bits(*seq),
                &id.to_string(),
                &bits(linked.link),
                &kind.word(),
                &row.at.unix_ms(),
                &row.actor.principal,
                &role,
                &row.detail,
                linked.hash.as_bytes(),
            ];
            cells::exactly_one(connection, "usage event", INSERT_EVENT, &values[..])
        }
        Book::Audit { kind } => {
            let values: [&dyn ToSql; 10] = [
                &row.project.to_string(),
                &chain_name(row.transfer),
                &bits(linked.link),
                &row.session.map(|session| session.to_string()),
                kind,
                &row.at.unix_ms(),
                &row.actor.principal,
                &role,
                &row.detail,
                linked.hash.as_bytes(),
            ];
            cells::exactly_one(connection, "audit row", INSERT_AUDIT, &values[..])
        }
    }
}

/// The last row of a chain.
pub(super) fn head(connection: &Connection, (project, transfer): ChainKey) -> Result<Head, Failure> {
    let key = [project.to_string(), chain_name(transfer)];
    let read = |cells: &mut Cells<'_>| Ok(Head { link: cells.count()?, hash: cells.digest()? });
    Ok(cells::one(connection, HEAD, key, read)?.unwrap_or(Head::NONE))
}

/// Computes a chain anew.
pub(super) fn verify(connection: &Connection, (project, transfer): ChainKey) -> Result<Chain, Failure> {
    let mut verifier = Verifier::new();
    let key = [project.to_string(), chain_name(transfer)];
    cells::all(connection, CHAIN, key, |cells| {
        let (link, hash) = (cells.count()?, cells.digest()?);
        let mut columns: [String; 11] = Default::default();
        for column in &mut columns {
            *column = cells.take()?;
        }
        verifier.next(link, hash, &Columns(columns));
        Ok(())
    })?;
    Ok(verifier.verdict())
}

pub(super) fn events(
    connection: &Connection,
    (project, transfer): (ProjectId, TransferId),
    after: u64,
    limit: i64,
) -> Result<Vec<EventView>, Failure> {
    let read = |cells: &mut Cells<'_>| {
        Ok(EventView {
            event_id: cells.id()?,
            seq: cells.count()?,
            kind: cells.word()?,
            at: cells.time()?,
            actor: cells.take()?,
            detail: cells.json()?,
        })
    };
    let key = (project.to_string(), transfer.to_string());
    cells::all(connection, EVENTS, params![key.0, key.1, clamp(after), limit], read)
}

pub(super) fn audit(
    connection: &Connection,
    (project, transfer): (ProjectId, TransferId),
    after: u64,
    limit: i64,
) -> Result<Vec<AuditRow>, Failure> {
    let read = |cells: &mut Cells<'_>| {
        Ok(AuditRow {
            link: cells.count()?,
            kind: cells.take()?,
            at: cells.time()?,
            actor: cells.take()?,
            detail: cells.json()?,
            hash: cells.digest()?,
        })
    };
    let key = (project.to_string(), transfer.to_string());
    cells::all(connection, AUDIT, params![key.0, key.1, clamp(after), limit], read)
}

/// A cursor that a caller chose: beyond the largest there is nothing.
fn clamp(after: u64) -> i64 {
    i64::try_from(after).unwrap_or(i64::MAX)
}
