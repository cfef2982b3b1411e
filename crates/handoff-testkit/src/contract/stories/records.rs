//! The audit log, nodes and snapshots: what is kept beside the sessions.

use handoff_core::command::{Actor, Role};
use handoff_core::ledger::{AuditEntry, Chain, LedgerError, SnapshotRecord};
use handoff_protocol::node::{Capacity, ObservedState};
use handoff_protocol::{Digest, ErrorCode};

use crate::contract::World;
use crate::contract::world::fresh;

/// An entry joins its transfer's chain; one about no transfer joins the project's.
/// H-12
pub async fn an_audit_entry_joins_its_chain(world: &World) {
    let moved = world.active().await;
    let ledger = world.ledger();
    let links = async |transfer| match ledger.verify_chain(world.project, transfer).await {
        Ok(Chain::Whole { links, head }) => (links, head),
        other => panic!("{other:?}"),
    };
    let entry = |transfer| AuditEntry {
        project: world.project,
        transfer,
        kind: "token_minted",
        actor: Actor { principal: "ops".to_owned(), role: Role::Orchestrator },
        detail: [("token_id".to_owned(), "tok_1 \"é\\\u{0}".to_owned())].into(),
    };
    let (before, head) = links(Some(moved.transfer)).await;
    ledger.record(entry(Some(moved.transfer))).await.expect("it is recorded");
    let (after, new_head) = links(Some(moved.transfer)).await;
    assert_eq!(after, before + 1);
    assert_ne!(head, new_head);
    let rows = ledger.audit(world.project, moved.transfer, before, 0).await.expect("the store answers");
    assert_eq!((rows.len(), rows[0].link, rows[0].hash), (1, after, new_head));
    assert_eq!((rows[0].kind.as_str(), rows[0].actor.as_str()), ("token_minted", "ops"));
    assert_eq!(rows[0].detail, entry(None).detail);
    let (before, _) = links(None).await;
    ledger.record(entry(None)).await.expect("it is recorded");
    assert_eq!(links(None).await.0, before + 1);
}

/// A refusal leaves who, which command and the code; so many a minute, and no word of what was in it.
/// H-14
pub async fn refusals_are_recorded_within_bounds(world: &World) {
    let moved = world.active().await;
    for _ in 0..25 {
        assert_eq!(world.code(moved.push()).await, ErrorCode::WrongStatus);
    }
    let refused = async || {
        let ledger = world.ledger();
        let rows = ledger.audit(world.project, moved.transfer, 0, 0).await.expect("the store answers");
        rows.into_iter().filter(|row| row.kind == "refused").collect::<Vec<_>>()
    };
    let rows = refused().await;
    assert_eq!(rows.len(), 10);
    let expected = [("code", "wrong_status"), ("command", "push")];
    let detail = |pairs: &[(&str, &str)]| {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    };
    assert!(rows.iter().all(|row| row.detail == detail(&expected) && row.actor == "laptop"), "{rows:?}");
    world.clock.advance(60_000);
    world.refuse(moved.push()).await;
    let rows = refused().await;
    let last = &rows.last().expect("there is one").detail;
    assert_eq!((rows.len(), last.get("left_out").map(String::as_str)), (11, Some("15")));
}

/// A node says who it is at every start; nobody else takes its id.
pub async fn a_node_keeps_its_key(world: &World) {
    let ledger = world.ledger();
    let capacity = Capacity { cpu_millis: 4000, memory_bytes: 8 << 30 };
    let node = world.node_record(fresh(), capacity);
    ledger.register_node(node.clone()).await.expect("it is new");
    world.clock.advance(1000);
    let renewed = handoff_core::ledger::NodeRecord { name: "renamed".to_owned(), ..node.clone() };
    ledger.register_node(renewed.clone()).await.expect("it is the same node");
    let other_key = handoff_core::ledger::NodeRecord { public_key: [7; 32], ..node.clone() };
    assert!(matches!(ledger.register_node(other_key).await, Err(LedgerError::RequestConflict)));
    let other_project = handoff_core::ledger::NodeRecord { project: fresh(), ..node.clone() };
    assert!(matches!(ledger.register_node(other_project).await, Err(LedgerError::RequestConflict)));
    world.clock.advance(1000);
    ledger.see_node(node.id).await.expect("the store answers");
    ledger.see_node(fresh()).await.expect("an unknown one stays unknown");
    drop(ledger);
    world.reopen().await;
    let nodes = world.ledger().nodes(world.project).await.expect("the store answers");
    let found = nodes.iter().find(|found| found.id == node.id).expect("it is registered");
    let seen_at = world.clock.now();
    assert_eq!(*found, handoff_core::ledger::NodeRecord { seen_at, ..renewed });
    assert_eq!(nodes.len(), 2);
}

/// A place is taken from provisioning until its absence is proved.
pub async fn a_place_is_given_back_when_it_is_proved_absent(world: &World) {
    let rooms = async || world.ledger().rooms(world.project).await.expect("the store answers")[&world.node];
    let whole = rooms().await;
    let moved = world.active().await;
    let taken = rooms().await;
    assert_eq!(whole.memory_bytes - taken.memory_bytes, world.policy.tiers[0].memory_bytes);
    assert!(taken.cpu_millis < whole.cpu_millis);
    world.accept(moved.observe(ObservedState::Absent)).await;
    world.accept(moved.place_gone()).await;
    assert_eq!(rooms().await, taken, "a dead holder is followed by another one at the same place");
    world.accept(moved.terminate()).await;
    assert_eq!(rooms().await, taken, "its sandbox may still be there");
    world.accept(moved.place_gone()).await;
    assert_eq!(rooms().await, whole);
}

/// A snapshot is kept with its blobs in order, and stays as it was kept first.
pub async fn a_snapshot_is_kept_once(world: &World) {
    let blobs = |names: &[&str]| -> Vec<(Digest, u64)> {
        names.iter().zip(1..).map(|(name, size)| (Digest::of(name.as_bytes()), size)).collect()
    };
    let record = SnapshotRecord {
        digest: Digest::of(b"manifest"),
        blobs: blobs(&["manifest", "z", "a", "m", "a"]),
        references: vec!["env://local/KEY".to_owned(), "vault://v/m/p#f".to_owned()],
        labels: [("team".to_owned(), "forecasting".to_owned())].into(),
    };
    let ledger = world.ledger();
    ledger.keep_snapshot(world.project, record.clone()).await.expect("it is kept");
    let other = SnapshotRecord { blobs: blobs(&["other"]), ..record.clone() };
    ledger.keep_snapshot(world.project, other).await.expect("it is known");
    drop(ledger);
    world.reopen().await;
    let found = world.ledger().snapshot(world.project, record.digest).await.expect("the store answers");
    assert_eq!(found, Some(record));
}
