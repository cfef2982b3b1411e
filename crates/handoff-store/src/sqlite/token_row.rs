//! `used_transfer_tokens`: a token is spent by the insert of its id, in the transaction of what it was spent for.

use std::collections::BTreeSet;

use handoff_protocol::{ProjectId, Timestamp, TokenId, TransferId};
use rusqlite::Connection;
use rusqlite::types::ToSql;

use super::cells;
use crate::changes::SpentToken;
use crate::failure::Failure;
use crate::words::Word;

const SELECT_OF_TRANSFER: &str =
    "SELECT token_id FROM used_transfer_tokens WHERE project_id = ?1 AND transfer_id = ?2";

const SELECT: &str = "SELECT token_id FROM used_transfer_tokens WHERE project_id = ?1 AND token_id = ?2";

const INSERT: &str = "INSERT INTO used_transfer_tokens
        (project_id, token_id, transfer_id, operation, expires_at_ms, used_at_ms)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT (project_id, token_id) DO NOTHING";

/// The tokens that were spent on a transfer.
pub(super) fn of_transfer(
    connection: &Connection,
    project: ProjectId,
    transfer: TransferId,
) -> Result<BTreeSet<TokenId>, Failure> {
    let key = [project.to_string(), transfer.to_string()];
    Ok(cells::all(connection, SELECT_OF_TRANSFER, key, |cells| cells.id())?.into_iter().collect())
}

/// Whether a token was spent, on whatever.
pub(super) fn is_spent(connection: &Connection, project: ProjectId, token: TokenId) -> Result<bool, Failure> {
    let key = [project.to_string(), token.to_string()];
    Ok(cells::one(connection, SELECT, key, |cells| cells.id::<TokenId>())?.is_some())
}

/// Spends a token. A second time finds the key taken.
pub(super) fn write(connection: &Connection, spent: &SpentToken, at: Timestamp) -> Result<(), Failure> {
    let values: [&dyn ToSql; 6] = [
        &spent.project.to_string(),
        &spent.token.to_string(),
        &spent.transfer.to_string(),
        &spent.operation.word(),
        &spent.expires_at.unix_ms(),
        &at.unix_ms(),
    ];
    match connection.prepare_cached(INSERT)?.execute(&values[..])? {
        1 => Ok(()),
        _ => Err(Failure::TokenUsed(spent.transfer)),
    }
}
