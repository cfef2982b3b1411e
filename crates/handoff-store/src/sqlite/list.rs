//! Finding transfers by what is known of them.

use handoff_core::ledger::{Filter, Found, Listed};
use handoff_protocol::ProjectId;
use rusqlite::Connection;
use rusqlite::types::ToSql;

use super::cells::{self, bits};
use super::{load, session_row};
use crate::failure::Failure;
use crate::words::Word;

/// How many are listed where the caller names no number.
pub(super) const LIMIT: usize = 1000;

/// The number of rows that a caller wants: 0 means the store's own limit.
pub(super) fn limit(wanted: usize) -> i64 {
    i64::try_from(if wanted == 0 { LIMIT } else { wanted }).unwrap_or(i64::MAX)
}

const OF_NODE: &str = " AND EXISTS (SELECT 1 FROM assignments AS a
        WHERE a.project_id = t.project_id AND a.transfer_id = t.transfer_id AND a.node_id = ?4
            AND (a.observed IS NOT 'absent' OR a.generation = (SELECT max(b.generation) FROM assignments AS b
                WHERE b.project_id = a.project_id AND b.transfer_id = a.transfer_id)))";

/// Transfers with their sessions, newest first.
pub(super) fn transfers(
    connection: &Connection,
    project: ProjectId,
    filter: &Filter,
) -> Result<Listed, Failure> {
    let limit = limit(filter.limit).unsigned_abs();
    let mut listed = Listed::default();
    let mut before = filter.before.map(|before| before.to_string());
    loop {
        // Again where some did not read: a page that is not full says that there is no more.
        let left = limit - listed.found.len() as u64;
        let ids = ids(connection, project, filter, before.as_deref(), left)?;
        for id in &ids {
            let broken = || Failure::Broken(format!("id {id}"));
            let read = id.parse().map_err(|_| broken()).and_then(|id| found(connection, project, id));
            match read {
                Ok(found) => listed.found.extend(found),
                Err(Failure::Broken(what)) => {
                    tracing::error!(
                        transfer = id,
                        what,
                        "a transfer does not read: it is left out of a list"
                    );
                    listed.unreadable += 1;
                }
                Err(failure) => return Err(failure),
            }
        }
        if (ids.len() as u64) < left || listed.found.len() as u64 == limit {
            return Ok(listed);
        }
        before = ids.into_iter().next_back();
    }
}

/// As texts, so that one that is none can be told apart and gone past.
fn ids(
    connection: &Connection,
    project: ProjectId,
    filter: &Filter,
    before: Option<&str>,
    limit: u64,
) -> Result<Vec<String>, Failure> {
    let mut sql = "SELECT t.transfer_id FROM transfers AS t WHERE t.project_id = ?1".to_owned();
    let session = filter.session.map(|session| session.to_string());
    let node = filter.node.map(|node| node.to_string());
    let statuses = cells::json(&filter.statuses.iter().map(|status| status.word()).collect::<Vec<_>>());
    let parts = [
        (before.is_some(), " AND t.transfer_id < ?2"),
        (session.is_some(), " AND t.session_id = ?3"),
        (node.is_some(), OF_NODE),
        (!filter.statuses.is_empty(), " AND t.status IN (SELECT value FROM json_each(?5))"),
        (filter.unclosed, " AND t.ledger_closed = 0"),
    ];
    parts.iter().filter(|(wanted, _)| *wanted).for_each(|(_, part)| sql.push_str(part));
    sql.push_str(" ORDER BY t.transfer_id DESC LIMIT ?6");
    let (project_id, limit) = (project.to_string(), bits(limit));
    let values: [&dyn ToSql; 6] = [&project_id, &before, &session, &node, &statuses, &limit];
    cells::all(connection, &sql, &values[..], |cells| cells.take())
}

/// A transfer with its session.
pub(super) fn found(
    connection: &Connection,
    project: ProjectId,
    transfer: handoff_protocol::TransferId,
) -> Result<Option<Found>, Failure> {
    let Some(transfer) = load::transfer(connection, project, transfer)? else { return Ok(None) };
    let session = session_row::load(connection, project, transfer.session)?;
    let session = session.ok_or_else(|| Failure::Broken(format!("session of transfer {}", transfer.id)))?;
    Ok(Some(Found { session, transfer }))
}
