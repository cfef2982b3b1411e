//! A damaged or altered file: what does not read is an answer, and what was altered is found.

use std::path::Path;

use handoff_core::ledger::{Chain, Filter, LedgerError};
use handoff_protocol::TransferId;
use handoff_testkit::contract::{Move, World};
use rusqlite::Connection;

use crate::stores::SqliteStore;

/// Does something to the file behind the store's back.
fn alter(path: &Path, sql: &str, key: &str) {
    let raw = Connection::open(path).expect("the file opens");
    let changed = raw.execute(sql, [key]).expect("the statement runs");
    assert_eq!(changed, 1, "{sql}");
}

async fn world() -> (World, std::path::PathBuf) {
    let store = SqliteStore::default();
    let path = store.path();
    (World::start(Box::new(store)).await, path)
}

#[tokio::test]
async fn a_row_that_does_not_read_fails_its_own_session_alone() {
    let (world, path) = world().await;
    let (good, bad) = (world.staged().await, world.staged().await);
    let damage = "UPDATE sessions SET labels = '[1]' WHERE session_id = ?1";
    alter(&path, damage, &bad.session.to_string());
    world.reopen().await;
    let ends = [world.envelope(bad.terminate()), world.envelope(good.terminate())];
    let answers = world.apply_all(ends.into()).await;
    let broken =
        |error: &LedgerError| matches!(error, LedgerError::Broken { what } if what.contains("labels"));
    assert!(answers[0].as_ref().is_err_and(broken), "{answers:?}");
    assert!(answers[1].is_ok(), "{answers:?}");
    let found = world.ledger().transfer(world.project, bad.transfer).await;
    assert!(found.as_ref().is_err_and(broken), "{found:?}");
}

#[tokio::test]
async fn a_word_that_nobody_knows_is_unreadable() {
    let (world, path) = world().await;
    let moved = world.active().await;
    let damage = "UPDATE assignments SET observed = 'dancing' WHERE transfer_id = ?1";
    alter(&path, damage, &moved.transfer.to_string());
    world.reopen().await;
    let found = world.ledger().transfer(world.project, moved.transfer).await;
    assert!(matches!(found, Err(LedgerError::Broken { .. })), "{found:?}");
    let answer = world.apply(world.envelope(moved.terminate())).await;
    assert!(matches!(answer, Err(LedgerError::Broken { .. })), "{answer:?}");
    world.staged().await;
}

async fn listed(world: &World, filter: Filter) -> (Vec<TransferId>, u64) {
    let listed = world.ledger().transfers(world.project, &filter).await.expect("the store answers");
    (listed.found.iter().map(|found| found.transfer.id).collect(), listed.unreadable)
}

#[tokio::test]
async fn a_list_leaves_out_what_does_not_read_and_counts_it() {
    let (world, path) = world().await;
    let mut moves = Vec::new();
    for _ in 0..5 {
        moves.push(world.active().await);
    }
    moves.reverse();
    let unclosed = |limit| Filter { unclosed: true, limit, ..Filter::default() };
    alter(&path, "UPDATE sessions SET labels = '[1]' WHERE session_id = ?1", &moves[1].session.to_string());
    let damage = "UPDATE assignments SET observed = 'dancing' WHERE transfer_id = ?1";
    alter(&path, damage, &moves[4].transfer.to_string());
    let readable = [0, 2, 3].map(|at: usize| moves[at].transfer);
    assert_eq!(listed(&world, unclosed(0)).await, (readable.to_vec(), 2));
    assert_eq!(listed(&world, unclosed(2)).await, (readable[..2].to_vec(), 1), "a page is full");
    let rest = Filter { before: Some(readable[1]), ..unclosed(2) };
    assert_eq!(listed(&world, rest).await, (readable[2..].to_vec(), 1));
    let none = Filter { before: Some(readable[2]), ..unclosed(2) };
    assert_eq!(listed(&world, none).await, (Vec::new(), 1), "and that is not nothing");
}

async fn verdict(world: &World, moved: &Move) -> Chain {
    world.ledger().verify_chain(world.project, Some(moved.transfer)).await.expect("the store answers")
}

#[tokio::test]
async fn whatever_is_altered_in_a_chain_is_found_at_its_link() {
    for (sql, link) in [
        ("UPDATE usage_events SET detail = '{}' WHERE transfer_id = ?1 AND type = 'activated'", Some(9)),
        ("UPDATE usage_events SET at_ms = at_ms + 1 WHERE transfer_id = ?1 AND link = 2", Some(2)),
        ("UPDATE usage_events SET actor = 'x' WHERE transfer_id = ?1 AND link = 2", Some(2)),
        ("UPDATE audit_log SET kind = 'token_used' WHERE chain = ?1 AND link = 3", Some(3)),
        ("UPDATE audit_log SET role = 'admin' WHERE chain = ?1 AND link = 1", Some(1)),
        ("UPDATE audit_log SET session_id = NULL WHERE chain = ?1 AND link = 1", Some(1)),
        ("DELETE FROM audit_log WHERE chain = ?1 AND link = 3", Some(3)),
        ("DELETE FROM usage_events WHERE transfer_id = ?1 AND link = 2", Some(2)),
        ("DELETE FROM usage_events WHERE transfer_id = ?1 AND type = 'activated'", None),
    ] {
        let (world, path) = world().await;
        let moved = world.active().await;
        let Chain::Whole { links, head } = verdict(&world, &moved).await else { panic!("it is whole") };
        alter(&path, sql, &moved.transfer.to_string());
        match (verdict(&world, &moved).await, link) {
            (Chain::Broken { link: found }, Some(link)) => assert_eq!(found, link, "{sql}"),
            // The last row: only the head that was kept shows it.
            (Chain::Whole { links: left, head: now }, None) => {
                assert_eq!(left, links - 1, "{sql}");
                assert_ne!(now, head);
            }
            other => panic!("{sql}: {other:?}"),
        }
    }
}

#[tokio::test]
async fn money_in_the_tables_adds_up_without_the_program() {
    let (world, path) = world().await;
    let moved = world.active().await;
    world.accept(moved.report(1, 100).send()).await;
    world.accept(moved.report(2, 150).send()).await;
    world.accept(moved.record_spend(7)).await;
    world.accept(moved.record_spend(9)).await;
    let raw = Connection::open(&path).expect("the file opens");
    let sum = "SELECT sum(model_nano + compute_nano + egress_nano + wind_down_nano + recorded_nano)
        FROM usage_reports WHERE transfer_id = ?1";
    let sum: i64 = raw.query_row(sum, [moved.transfer.to_string()], |row| row.get(0)).expect("a sum");
    assert_eq!(sum, 166);
    assert_eq!(world.found(moved.transfer).await.transfer.spent().nano(), sum);
    drop(raw);
    world.finish().await;
}
