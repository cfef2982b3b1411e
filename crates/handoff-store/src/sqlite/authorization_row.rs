//! `authorizations`: what activate left for a claim, and what became of it.

use handoff_core::transfer::{Authorization, Outcome};
use handoff_protocol::{AuthorizationId, ProjectId};
use rusqlite::Connection;
use rusqlite::types::ToSql;

use super::cells::{self, Cells};
use crate::changes::AuthorizationChange;
use crate::failure::Failure;

const SELECT: &str = "SELECT authorization_id, deadline_ms, outcome, reason
    FROM authorizations WHERE project_id = ?1 AND authorization_id = ?2";

const PUT: &str = "INSERT INTO authorizations
        (project_id, authorization_id, transfer_id, deadline_ms, outcome, reason)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6)
    ON CONFLICT (project_id, authorization_id) DO UPDATE SET outcome = excluded.outcome, reason = excluded.reason
    WHERE authorizations.transfer_id = excluded.transfer_id
        AND authorizations.outcome IN ('open', excluded.outcome)";

pub(super) fn load(
    connection: &Connection,
    project: ProjectId,
    id: AuthorizationId,
) -> Result<Option<Authorization>, Failure> {
    cells::one(connection, SELECT, [project.to_string(), id.to_string()], read)
}

fn read(cells: &mut Cells<'_>) -> Result<Authorization, Failure> {
    Ok(Authorization { id: cells.id()?, deadline: cells.time()?, outcome: outcome(cells)? })
}

fn outcome(cells: &mut Cells<'_>) -> Result<Outcome, Failure> {
    let (kind, reason): (String, Option<String>) = (cells.take()?, cells.take()?);
    match (kind.as_str(), reason) {
        ("open", None) => Ok(Outcome::Open),
        ("claimed", None) => Ok(Outcome::Claimed),
        ("withdrawn", None) => Ok(Outcome::Withdrawn),
        ("declined", Some(reason)) => Ok(Outcome::Declined { reason }),
        _ => Err(Failure::Broken("column authorizations.outcome".to_owned())),
    }
}

/// Writes an authorisation as it is now. One that has come to its end keeps it.
pub(super) fn write(connection: &Connection, change: &AuthorizationChange) -> Result<(), Failure> {
    let (outcome, reason) = match &change.authorization.outcome {
        Outcome::Open => ("open", None),
        Outcome::Claimed => ("claimed", None),
        Outcome::Withdrawn => ("withdrawn", None),
        Outcome::Declined { reason } => ("declined", Some(reason)),
    };
    let values: [&dyn ToSql; 6] = [
        &change.project.to_string(),
        &change.authorization.id.to_string(),
        &change.transfer.to_string(),
        &change.authorization.deadline.unix_ms(),
        &outcome,
        &reason,
    ];
    cells::exactly_one(connection, "authorization", PUT, &values[..])
}
