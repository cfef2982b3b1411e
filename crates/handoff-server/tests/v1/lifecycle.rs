//! One transfer from its snapshot to its end, on the SQLite store, over a restart.

use std::sync::Arc;

use handoff_protocol::listing::{EventQuery, SessionQuery, TransferQuery};
use handoff_protocol::node::{Observed, ObservedState, Usage, UsageCommand, Want};
use handoff_protocol::request::{EventType, Raise, Refresh, ReportUsage, Terminate, WriteOff};
use handoff_protocol::{ErrorCode, Status, Totals, TransferId};
use handoff_testkit::clock::ManualClock;

use crate::world::{Node, World, amount, incarnation, minimal, refused};

/// H-58
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transfer_is_staged_and_read_back() {
    let world = World::new().await;
    let staged = world.stage(false).await;
    let view = world.client.transfer(staged.transfer_id, Default::default()).await.expect("there");
    assert_eq!((view.status, view.epoch, view.version), (Status::Staged, 1, 1));
    assert_eq!((view.session, view.snapshot), (staged.session_id, staged.snapshot));
    assert!(view.source_must_keep_running && !view.is_final && view.budget.is_none());
    assert_eq!(view.events.iter().map(|event| event.kind).collect::<Vec<_>>(), [EventType::SnapshotCreated]);
    let manifest = world.client.blob(staged.snapshot, 0).await.expect("stored");
    assert_eq!(handoff_protocol::Digest::of(&manifest), staged.snapshot);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transfer_walks_through_its_statuses_and_its_ledger_balances() {
    let home = Arc::new(tempfile::tempdir().expect("a directory"));
    let clock = ManualClock::default();
    let world = World::on_disk(Arc::clone(&home), clock.clone()).await;
    let node = world.node(1).await;
    let (view, claimed) = world.active(&node).await;
    let transfer = view.transfer;
    assert_eq!((view.status, view.epoch, claimed.epoch), (Status::Active, 2, 2));
    assert!(!view.source_must_keep_running);
    assert_eq!(view.lease.expect("it is live").incarnation, incarnation());
    let answer = node.report(transfer, 2, 1, "0.10").await;
    assert_eq!((answer.accepted_seq, answer.command), (1, UsageCommand::Continue));
    let spent =
        ReportUsage { request_id: None, cost_usd: amount("0.05"), detail: Some("a search".to_owned()) };
    let view = world.client.report_usage(transfer, spent).await.expect("recorded");
    assert_eq!(view.budget.expect("provisioned").spent_usd, amount("0.15"));

    // A control plane that starts again knows everything, and the node's revision goes on.
    let revision = node.desired().await.revision;
    world.stop().await;
    clock.advance(1_000);
    let world = World::on_disk(home, clock).await;
    let node = world.node(1).await;
    let desired = node.desired().await;
    assert!(desired.revision > revision && desired.destinations[0].want == Want::Running);
    assert_eq!(desired.destinations[0].holder, Some(incarnation()));

    let raised = world.client.raise(transfer, Raise { request_id: None, budget_usd: amount("2") }).await;
    assert_eq!(raised.expect("raised").budget.expect("provisioned").allocated_usd, amount("2"));
    end_and_remove(&world, &node, transfer).await;
    let view = world.client.transfer(transfer, Default::default()).await.expect("there");
    let budget = view.budget.expect("provisioned");
    assert!(budget.closed && budget.leased_usd == amount("0") && budget.spent_usd == amount("0.15"));
    let kinds: Vec<EventType> = view.events.iter().map(|event| event.kind).collect();
    assert_eq!(
        kinds,
        [
            EventType::SnapshotCreated,
            EventType::RuntimeProvisioned,
            EventType::StatePushed,
            EventType::Activated,
            EventType::UsageReported,
            EventType::UsageReported,
            EventType::Terminated,
            EventType::UsageReported,
        ]
    );
    assert!(view.events.iter().zip(1..).all(|(event, seq)| event.seq == seq), "gap-free");
    world.stop().await;
}

/// Ends a transfer, and does what its node does then.
async fn end_and_remove(world: &World, node: &Node, transfer: TransferId) {
    let reason = "the task is done".to_owned();
    let view = world.client.terminate(transfer, Terminate { request_id: None, reason }).await.expect("ended");
    assert_eq!((view.status, view.reason.as_deref()), (Status::Terminated, Some("the task is done")));
    let totals = Totals { model_usd: amount("0.10"), ..Totals::default() };
    let last =
        Usage { epoch: 2, seq: 2, totals, closing: true, exhausted: false, limit_usd: None, prev_hash: None };
    node.client.usage(transfer, &last).await.expect("late reports count");
    let gone = node.wait_for(transfer, |entry| entry.want == Want::Gone).await;
    let absent = Observed {
        generation: gone.generation,
        state: ObservedState::Absent,
        reason: None,
        last_alive_at: None,
        incarnation: None,
    };
    node.client.observed(transfer, &absent).await.expect("believed");
    assert!(node.desired().await.destinations.is_empty(), "absence was reported, so it is listed no more");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_end_where_the_rows_end() {
    let world = World::new().await;
    let mut staged = Vec::new();
    for _ in 0..3 {
        staged.push(world.stage(false).await);
    }
    let first = TransferQuery { limit: Some(2), ..TransferQuery::default() };
    let page = world.client.transfers(&first).await.expect("a page");
    let rest = TransferQuery { before: page.next_cursor, ..first };
    let rest = world.client.transfers(&rest).await.expect("a page");
    assert_eq!((page.transfers.len(), rest.transfers.len(), rest.next_cursor), (2, 1, None));
    assert_eq!(rest.transfers[0].transfer, staged[0].transfer_id, "newest first");
    let none = TransferQuery::default().in_status(&[Status::Active]);
    assert!(world.client.transfers(&none).await.expect("a page").transfers.is_empty());
    let sessions =
        world.client.sessions(SessionQuery { before: None, limit: Some(2) }).await.expect("a page");
    assert!(sessions.sessions.len() == 2 && sessions.next_cursor.is_some());
    let session = world.client.session(staged[0].session_id).await.expect("there");
    assert_eq!((session.holder.as_str(), session.pending), ("source", Some(staged[0].transfer_id)));
    let after = EventQuery { after: Some(1), ..EventQuery::default() };
    assert!(world.client.events(staged[0].transfer_id, after).await.expect("a page").events.is_empty());
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_is_refreshed_by_its_holder_at_its_epoch() {
    let world = World::new().await;
    let draft = world.stage(false).await;
    let refresh = |epoch, is_final| Refresh {
        request_id: None,
        expected_epoch: epoch,
        snapshot: None,
        input: minimal().input,
        is_final,
        incarnation: None,
    };
    let last = world.client.refresh(draft.transfer_id, refresh(Some(1), true)).await.expect("refreshed");
    assert!(last.is_final && last.transfer_id == draft.transfer_id);
    let stale = world.client.refresh(draft.transfer_id, refresh(Some(2), true)).await;
    assert_eq!(refused(stale), ErrorCode::StaleEpoch);
    let unnamed = world.client.refresh(draft.transfer_id, refresh(None, true)).await;
    assert_eq!(refused(unnamed), ErrorCode::StaleEpoch);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_off_that_is_repeated_is_on_record_once() {
    let world = World::new().await;
    let node = world.node(1).await;
    let (view, claimed) = world.active(&node).await;
    world.clock.advance(world.policy.lease_ms + 1);
    let body = WriteOff {
        request_id: Some("write-it-off".parse().expect("an id")),
        epoch: claimed.epoch,
        reason: "the host burned down".to_owned(),
    };
    for _ in 0..3 {
        world.client.write_off(view.transfer, body.clone()).await.expect("written off");
    }
    let project = handoff_service::DEFAULT_PROJECT;
    let rows = world.ledger.audit(project, view.transfer, 0, 100).await.expect("rows");
    assert_eq!(rows.iter().filter(|row| row.kind == "reason_given").count(), 1);
    world.stop().await;
}
