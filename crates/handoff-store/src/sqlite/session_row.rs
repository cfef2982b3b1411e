//! `sessions`: who holds which session, and which transfers it arbitrates between.

use handoff_core::state::{Accepted, Epoch, Generation, Holder, LastReturn, Session};
use handoff_protocol::{ProjectId, SessionId, Timestamp};
use rusqlite::types::ToSql;
use rusqlite::{Connection, params};

use super::cells::{self, Cells, bits, json};
use crate::changes::SessionChange;
use crate::failure::Failure;
use crate::words::Word;

const SELECT: &str = "SELECT project_id, session_id, version, labels, epoch,
        holder, holder_principal, holder_incarnation, holder_transfer, holder_node, holder_generation,
        pending_transfer, live_transfer, lease_until_ms, holder_gone,
        last_digest, last_epoch, last_standing, return_nonce, return_epoch
    FROM sessions WHERE project_id = ?1 AND session_id = ?2";

const SELECT_PAGE: &str = "SELECT session_id FROM sessions
    WHERE project_id = ?1 AND (?2 IS NULL OR session_id < ?2) ORDER BY session_id DESC LIMIT ?3";

pub(super) const INSERT: &str = "INSERT INTO sessions (project_id, session_id, version, labels, epoch,
        holder, holder_principal, holder_incarnation, holder_transfer, holder_node, holder_generation,
        pending_transfer, live_transfer, lease_until_ms, holder_gone,
        last_digest, last_epoch, last_standing, return_nonce, return_epoch, changed_at_ms)
    VALUES (?1, ?2, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22)";

pub(super) const UPDATE: &str = "UPDATE sessions SET version = ?4, labels = ?5, epoch = ?6,
        holder = ?7, holder_principal = ?8, holder_incarnation = ?9, holder_transfer = ?10, holder_node = ?11,
        holder_generation = ?12, pending_transfer = ?13, live_transfer = ?14, lease_until_ms = ?15,
        holder_gone = ?16, last_digest = ?17, last_epoch = ?18, last_standing = ?19, return_nonce = ?20,
        return_epoch = ?21, changed_at_ms = ?22
    WHERE project_id = ?1 AND session_id = ?2 AND version = ?3";

pub(super) fn load(
    connection: &Connection,
    project: ProjectId,
    session: SessionId,
) -> Result<Option<Session>, Failure> {
    cells::one(connection, SELECT, [project.to_string(), session.to_string()], read)
}

/// Ids of sessions, newest first, before the cursor.
pub(super) fn page(
    connection: &Connection,
    project: ProjectId,
    before: Option<SessionId>,
    limit: i64,
) -> Result<Vec<SessionId>, Failure> {
    let before = before.map(|before| before.to_string());
    cells::all(connection, SELECT_PAGE, params![project.to_string(), before, limit], |cells| cells.id())
}

fn read(cells: &mut Cells<'_>) -> Result<Session, Failure> {
    Ok(Session {
        project: cells.id()?,
        id: cells.id()?,
        version: cells.count()?,
        labels: cells.json()?,
        epoch: Epoch(cells.count()?),
        holder: holder(cells)?,
        pending: cells.maybe_id()?,
        live: cells.maybe_id()?,
        lease_until: cells.maybe_time()?,
        holder_gone: cells.flag()?,
        last_snapshot: accepted(cells)?,
        last_return: last_return(cells)?,
    })
}

fn holder(cells: &mut Cells<'_>) -> Result<Holder, Failure> {
    let kind: String = cells.take()?;
    let principal: Option<String> = cells.take()?;
    let incarnation = cells.maybe_id()?;
    let (transfer, node) = (cells.maybe_id()?, cells.maybe_id()?);
    let generation = cells.maybe_count()?.map(Generation);
    let holder = match kind.as_str() {
        "source" => principal.map(|principal| Holder::Source { principal }),
        "none" => Some(Holder::None),
        "incarnation" => match (incarnation, transfer, node, generation) {
            (Some(incarnation), Some(transfer), Some(node), Some(generation)) => {
                Some(Holder::Incarnation { incarnation, transfer, node, generation })
            }
            _ => None,
        },
        _ => None,
    };
    holder.ok_or_else(|| Failure::Broken("column sessions.holder".to_owned()))
}

fn accepted(cells: &mut Cells<'_>) -> Result<Option<Accepted>, Failure> {
    match (cells.maybe_digest()?, cells.maybe_count()?, cells.maybe_word()?) {
        (Some(digest), Some(epoch), Some(standing)) => {
            Ok(Some(Accepted { digest, epoch: Epoch(epoch), standing }))
        }
        (None, None, None) => Ok(None),
        _ => Err(Failure::Broken("column sessions.last_digest".to_owned())),
    }
}

fn last_return(cells: &mut Cells<'_>) -> Result<Option<LastReturn>, Failure> {
    match (cells.maybe_id()?, cells.maybe_count()?) {
        (Some(nonce), Some(epoch)) => Ok(Some(LastReturn { nonce, epoch: Epoch(epoch) })),
        (None, None) => Ok(None),
        _ => Err(Failure::Broken("column sessions.return_nonce".to_owned())),
    }
}

/// Writes the session as it is now: a new one, or the next version of the one that was decided on.
pub(super) fn write(connection: &Connection, change: &SessionChange, at: Timestamp) -> Result<(), Failure> {
    let sql = if change.before.is_some() { UPDATE } else { INSERT };
    let session = &change.after;
    let (kind, principal) = match &session.holder {
        Holder::Source { principal } => ("source", Some(principal.as_str())),
        Holder::Incarnation { .. } => ("incarnation", None),
        Holder::None => ("none", None),
    };
    let held = match session.holder {
        Holder::Incarnation { incarnation, transfer, node, generation } => {
            Some((incarnation.to_string(), transfer.to_string(), node.to_string(), bits(generation.0)))
        }
        Holder::Source { .. } | Holder::None => None,
    };
    let last = session.last_snapshot;
    let values: [&dyn ToSql; 22] = [
        &session.project.to_string(),
        &session.id.to_string(),
        &change.before.map(bits),
        &bits(session.version),
        &json(&session.labels),
        &bits(session.epoch.0),
        &kind,
        &principal,
        &held.as_ref().map(|held| &held.0),
        &held.as_ref().map(|held| &held.1),
        &held.as_ref().map(|held| &held.2),
        &held.as_ref().map(|held| held.3),
        &session.pending.map(|pending| pending.to_string()),
        &session.live.map(|live| live.to_string()),
        &session.lease_until.map(Timestamp::unix_ms),
        &i64::from(session.holder_gone),
        &last.map(|last| *last.digest.as_bytes()),
        &last.map(|last| bits(last.epoch.0)),
        &last.map(|last| last.standing.word()),
        &session.last_return.map(|last| last.nonce.to_string()),
        &session.last_return.map(|last| bits(last.epoch.0)),
        &at.unix_ms(),
    ];
    cells::exactly_one(connection, "session", sql, &values[..])
}
