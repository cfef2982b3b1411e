//! `budgets`: a transfer's money at the control plane.
//!
//! The row carries the version of its transfer at its last change, which only rises: a row with a higher one
//! than the version that was decided on has been changed by somebody else.

use handoff_core::transfer::{Budget, Carved, Transfer};
use handoff_protocol::{ProjectId, TransferId};
use rusqlite::Connection;
use rusqlite::types::ToSql;

use super::cells::{self, Cells, bits};
use crate::changes::TransferChange;
use crate::failure::Failure;

const SELECT: &str = "SELECT allocated_nano, reserve_nano, recorded_nano, carved_from, carved_nano
    FROM budgets WHERE project_id = ?1 AND transfer_id = ?2";

pub(super) const INSERT: &str = "INSERT INTO budgets
        (project_id, transfer_id, version, allocated_nano, reserve_nano, recorded_nano, carved_from, carved_nano)
    VALUES (?1, ?2, ?4, ?5, ?6, ?7, ?8, ?9)";

pub(super) const UPDATE: &str = "UPDATE budgets SET version = ?4, allocated_nano = ?5, reserve_nano = ?6,
        recorded_nano = ?7, carved_from = ?8, carved_nano = ?9
    WHERE project_id = ?1 AND transfer_id = ?2 AND version <= ?3";

pub(super) fn load(
    connection: &Connection,
    project: ProjectId,
    transfer: TransferId,
) -> Result<Option<Budget>, Failure> {
    cells::one(connection, SELECT, [project.to_string(), transfer.to_string()], read)
}

fn read(cells: &mut Cells<'_>) -> Result<Budget, Failure> {
    Ok(Budget {
        allocated: cells.nano()?,
        reserve: cells.nano()?,
        recorded: cells.nano()?,
        carved: match (cells.maybe_id()?, cells.take::<Option<i64>>()?) {
            (Some(from), Some(amount)) => {
                Some(Carved { from, amount: handoff_protocol::NanoUsd::from_nano(amount) })
            }
            (None, None) => None,
            _ => return Err(Failure::Broken("column budgets.carved_from".to_owned())),
        },
    })
}

/// Writes the budget if it changed.
pub(super) fn write(connection: &Connection, change: &TransferChange) -> Result<(), Failure> {
    let was = change.before.as_ref().and_then(budget_of);
    let Some(budget) = change.after.budget.filter(|budget| was != Some(*budget)) else { return Ok(()) };
    let sql = if was.is_some() { UPDATE } else { INSERT };
    let values: [&dyn ToSql; 9] = [
        &change.project.to_string(),
        &change.after.id.to_string(),
        &change.before.as_ref().map(|before| bits(before.version)),
        &bits(change.after.version),
        &budget.allocated.nano(),
        &budget.reserve.nano(),
        &budget.recorded.nano(),
        &budget.carved.map(|carved| carved.from.to_string()),
        &budget.carved.map(|carved| carved.amount.nano()),
    ];
    cells::exactly_one(connection, "budget", sql, &values[..])
}

const fn budget_of(transfer: &Transfer) -> Option<Budget> {
    transfer.budget
}
