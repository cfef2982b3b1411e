//! Every statement that changes a session, transfer, budget or lease, and what it is conditional on.

use std::path::{Path, PathBuf};

use handoff_core::transfer::Transfer;
use handoff_protocol::NanoUsd;
use rusqlite::Connection;

use super::round_trip::{self, AT, PROJECT};
use super::{budget_row, epoch_row, load, session_row, transfer_row};
use crate::changes::{SessionChange, TransferChange};
use crate::failure::Failure;

/// All of them, with their conditions.
const STATEMENTS: &[(&str, &str)] = &[
    (session_row::UPDATE, "WHERE project_id = ?1 AND session_id = ?2 AND version = ?3"),
    (transfer_row::UPDATE, "WHERE project_id = ?1 AND transfer_id = ?2 AND version = ?3"),
    (transfer_row::UPDATE_STANDING, "WHERE project_id = ?1 AND transfer_id = ?2 AND version = ?3"),
    (budget_row::UPDATE, "WHERE project_id = ?1 AND transfer_id = ?2 AND version <= ?3"),
    (
        epoch_row::UPDATE_LEASE,
        "WHERE project_id = ?1 AND transfer_id = ?2 AND epoch = ?3 AND version <= ?4 AND limit_nano <= ?8",
    ),
];

const GUARDED: &[&str] = &["sessions", "transfers", "budgets", "budget_leases"];

/// H-9
#[test]
fn each_statement_has_its_condition() {
    for (statement, condition) in STATEMENTS {
        assert!(statement.ends_with(condition), "{statement}");
    }
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).expect("the sources are there");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    paths.flat_map(|path| if path.is_dir() { sources(&path) } else { vec![path] }).collect()
}

#[test]
fn there_are_no_others() {
    let mut found = Vec::new();
    for path in sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src")) {
        if path.ends_with("sqlite/guards.rs") {
            continue;
        }
        let text = std::fs::read_to_string(&path).expect("a source reads");
        let words: Vec<&str> = text.split_whitespace().map(|word| word.trim_matches('"')).collect();
        for pair in words.windows(2) {
            if ["UPDATE", "FROM", "INTO"].contains(&pair[0]) && GUARDED.contains(&pair[1]) {
                found.push(format!("{} {}", pair[0], pair[1]));
            }
        }
        let replaces = text.contains("OR REPLACE") || text.contains("REPLACE INTO");
        assert!(!replaces, "{} replaces rows without a condition", path.display());
        let deletes = GUARDED.iter().any(|table| text.contains(&format!("DELETE FROM {table}")));
        assert!(!deletes, "{} deletes what is only ever changed", path.display());
    }
    found.retain(|statement| statement.starts_with("UPDATE"));
    found.sort();
    let expected = ["UPDATE budget_leases", "UPDATE budgets", "UPDATE sessions", "UPDATE transfers"];
    assert_eq!(found, [&expected[..], &["UPDATE transfers"]].concat(), "one is missing in the list above");
    assert_eq!(found.len(), STATEMENTS.len());
}

fn conflict(result: Result<(), Failure>) {
    assert!(matches!(result, Err(Failure::Conflict(_))), "{result:?}");
}

/// A session and a transfer with a budget and a lease, as they are stored, at version 5.
fn stored() -> (Connection, Transfer) {
    let connection = round_trip::database();
    let session = round_trip::session();
    session_row::write(&connection, &SessionChange { before: None, after: session.clone() }, AT)
        .expect("it is written");
    let mut transfer = round_trip::transfer(&session);
    transfer.version = 5;
    round_trip::write(&connection, None, &transfer);
    (connection, transfer)
}

/// A change of it that was decided on this version.
fn decided_on(transfer: &Transfer, version: u64) -> TransferChange {
    let mut before = transfer.clone();
    before.version = version;
    let mut after = transfer.clone();
    after.version = version + 1;
    let budget = after.budget.as_mut().expect("it has one");
    budget.allocated = budget.allocated.plus(NanoUsd::from_nano(1));
    let account = after.epochs.values_mut().next().expect("it has one");
    account.limit = account.limit.plus(NanoUsd::from_nano(1));
    TransferChange { project: PROJECT, before: Some(before), after }
}

#[test]
fn a_session_decided_on_another_version_is_not_written() {
    let (connection, _) = stored();
    let session = round_trip::session();
    for version in [0, session.version - 1, session.version + 1] {
        let mut after = session.clone();
        after.version = version + 1;
        conflict(session_row::write(&connection, &SessionChange { before: Some(version), after }, AT));
    }
    let found = session_row::load(&connection, PROJECT, session.id).expect("it reads");
    assert_eq!(found, Some(session));
}

/// H-9
#[test]
fn a_transfer_its_budget_and_its_leases_decided_on_an_older_version_are_not_written() {
    let (connection, transfer) = stored();
    let stale = decided_on(&transfer, 4);
    conflict(transfer_row::write(&connection, &stale, AT));
    conflict(budget_row::write(&connection, &stale));
    conflict(epoch_row::write(&connection, &stale, AT));
    let ahead = decided_on(&transfer, 6);
    conflict(transfer_row::write(&connection, &ahead, AT));
    let found = load::transfer(&connection, PROJECT, transfer.id).expect("it reads");
    assert_eq!(found, Some(transfer));
}

#[test]
fn a_lease_is_never_lowered() {
    let (connection, transfer) = stored();
    let mut lower = decided_on(&transfer, 5);
    for account in lower.after.epochs.values_mut() {
        account.limit = NanoUsd::ZERO;
    }
    conflict(epoch_row::write(&connection, &lower, AT));
}
