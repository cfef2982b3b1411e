//! `requests`: accepted requests with their answers, so that asking again is answered again.

use handoff_protocol::Timestamp;
use rusqlite::Connection;
use rusqlite::types::ToSql;

use super::cells::{self, Cells, json};
use crate::changes::{Remembered, RequestKey};
use crate::failure::Failure;

const SELECT: &str = "SELECT body, transfer_id, reply FROM requests
    WHERE project_id = ?1 AND principal = ?2 AND command = ?3 AND request_id = ?4";

const INSERT: &str = "INSERT INTO requests
        (project_id, principal, command, request_id, body, transfer_id, reply, at_ms)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
    ON CONFLICT (project_id, principal, command, request_id) DO NOTHING";

pub(super) fn load(connection: &Connection, key: &RequestKey) -> Result<Option<Remembered>, Failure> {
    let (project, command) = (key.project.to_string(), key.command.as_str());
    let values = [project.as_str(), key.principal.as_str(), command, key.id.as_str()];
    cells::one(connection, SELECT, values, read)
}

fn read(cells: &mut Cells<'_>) -> Result<Remembered, Failure> {
    Ok(Remembered { body: cells.digest()?, transfer: cells.maybe_id()?, reply: cells.json()? })
}

pub(super) fn write(
    connection: &Connection,
    (key, remembered): &(RequestKey, Remembered),
    at: Timestamp,
) -> Result<(), Failure> {
    let values: [&dyn ToSql; 8] = [
        &key.project.to_string(),
        &key.principal,
        &key.command.as_str(),
        &key.id.as_str(),
        &remembered.body.as_bytes(),
        &remembered.transfer.map(|transfer| transfer.to_string()),
        &json(&remembered.reply),
        &at.unix_ms(),
    ];
    cells::exactly_one(connection, "request", INSERT, &values[..])
}
