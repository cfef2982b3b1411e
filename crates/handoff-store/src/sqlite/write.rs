//! Writes what a batch changed, one statement per row.

use std::collections::{BTreeMap, BTreeSet};

use handoff_core::ledger::LedgerError;
use rusqlite::Connection;

use super::cache::Cache;
use super::{
    assignment_row, authorization_row, budget_row, epoch_row, load, project_row, record_row, request_row,
    session_row, token_row, transfer_row,
};
use crate::chain::{self, ChainKey, Head};
use crate::changes::{Changes, TransferChange};
use crate::failure::Failure;
use crate::rows::Row;

/// The last rows of the chains that were written to.
pub(super) type Heads = BTreeMap<ChainKey, Head>;

/// Writes all of it, or fails and leaves the transaction to be rolled back.
pub(super) fn write(connection: &Connection, changes: &Changes, cache: &Cache) -> Result<Heads, Failure> {
    let at = changes.at;
    for project in changes.projects() {
        project_row::touch(connection, project, at)?;
    }
    for session in &changes.sessions {
        session_row::write(connection, session, at)?;
    }
    for transfer in in_order(&changes.transfers) {
        transfer_row::write(connection, transfer, at)?;
    }
    for transfer in &changes.transfers {
        budget_row::write(connection, transfer)?;
        epoch_row::write(connection, transfer, at)?;
        assignment_row::write(connection, transfer)?;
    }
    for authorization in &changes.authorizations {
        authorization_row::write(connection, authorization)?;
    }
    for increment in &changes.increments {
        epoch_row::write_increment(connection, increment, at)?;
    }
    for token in &changes.tokens {
        token_row::write(connection, token, at)?;
    }
    for request in &changes.requests {
        request_row::write(connection, request, at)?;
    }
    chained(connection, &changes.rows, cache)
}

/// Appends rows about things that no command did.
pub(super) fn record(connection: &Connection, rows: &[Row], cache: &Cache) -> Result<Heads, Failure> {
    for row in rows {
        project_row::touch(connection, row.project, row.at)?;
    }
    chained(connection, rows, cache)
}

/// Appends rows to their chains.
fn chained(connection: &Connection, rows: &[Row], cache: &Cache) -> Result<Heads, Failure> {
    let chains: BTreeSet<ChainKey> = rows.iter().map(|row| (row.project, row.transfer)).collect();
    let mut heads = load::heads(connection, chains, cache)?;
    for linked in chain::link(rows, &mut heads) {
        record_row::write(connection, &linked)?;
    }
    Ok(heads)
}

/// The order in which the keys "one pending" and "one live" hold after every statement: whoever is over first,
/// then those that were there, then new ones.
fn in_order(transfers: &[TransferChange]) -> Vec<&TransferChange> {
    let mut ordered: Vec<&TransferChange> = transfers.iter().collect();
    ordered.sort_by_key(|change| (!change.after.status.is_terminal(), change.before.is_none()));
    ordered
}

/// The answer of a batch of one that failed.
pub(super) fn answer(failure: Failure) -> LedgerError {
    match &failure {
        Failure::Full => tracing::error!("the disk is full: the command was not applied"),
        Failure::TokenUsed(_) => {}
        Failure::Broken(what) => tracing::error!(what, "the store holds something unreadable"),
        Failure::Conflict(_) | Failure::Database(_) | Failure::Closed => {
            tracing::error!(error = %failure, "the command was not applied");
        }
    }
    failure.into()
}
