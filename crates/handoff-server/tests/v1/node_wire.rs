//! What nodes report: signatures, assignments, epochs, and what is never believed.

use std::sync::Arc;

use handoff_protocol::node::{
    Checkpoint, LeaseCommand, Observed, ObservedState, Renew, Rest, UsageCommand, Want,
};
use handoff_protocol::request::{Reasoned, Stage, Terminate};
use handoff_protocol::{Digest, ErrorCode, IncarnationId, Status};
use handoff_snapshot::{SealContext, seal};
use handoff_testkit::clock::ManualClock;

use crate::world::{Node, World, hex, incarnation, minimal, refused, usage};

fn observed(generation: u64, state: ObservedState) -> Observed {
    // That nothing is left of a place is said of the place, not of whoever was there.
    let incarnation = (state != ObservedState::Absent).then(incarnation);
    Observed { generation, state, reason: None, last_alive_at: None, incarnation }
}

fn end() -> Terminate {
    Terminate { request_id: None, reason: "done".to_owned() }
}

/// H-51
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receipt_counts_only_with_the_nodes_own_signature_over_it() {
    let world = World::new().await;
    let (node, other) = (world.node(1).await, world.node(2).await);
    let transfer = world.stage(true).await.transfer_id;
    world.provision(transfer, "1").await;
    let (assigned, stranger): (&Node, &Node) =
        if node.desired().await.destinations.is_empty() { (&other, &node) } else { (&node, &other) };
    let push = handoff_protocol::request::Push { wait_ms: Some(1), ..Default::default() };
    world.client.push(transfer, push).await.expect("recorded");
    let entry = assigned.wait_for(transfer, |entry| entry.push).await;
    let good = assigned.receipt(&entry);
    let mut unsigned = good.clone();
    unsigned.signature = hex(&[0; 64]);
    assert_eq!(refused(assigned.client.receipt(transfer, &unsigned).await), ErrorCode::SignatureRefused);
    let mut altered = good.clone();
    altered.generation += 1;
    assert_eq!(refused(assigned.client.receipt(transfer, &altered).await), ErrorCode::SignatureRefused);
    assert_eq!(refused(stranger.client.receipt(transfer, &good).await), ErrorCode::Forbidden);
    let own = stranger.receipt(&entry);
    assert_eq!(refused(stranger.client.receipt(transfer, &own).await), ErrorCode::Forbidden);
    assert_eq!(world.status(transfer).await, Status::Provisioned);
    for _ in 0..2 {
        assigned.client.receipt(transfer, &good).await.expect("counts, and again");
    }
    assert_eq!(world.status(transfer).await, Status::Pushed);
    world.stop().await;
}

/// H-69, H-92
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reports_renewals_and_checkpoints_are_held_against_the_epoch() {
    let world = World::new().await;
    let node = world.node(1).await;
    let (view, claimed) = world.active(&node).await;
    let transfer = view.transfer;
    let renew = Renew { epoch: claimed.epoch, generation: 1, incarnation: incarnation() };
    let renewed = node.client.renew(transfer, &renew).await.expect("renewed");
    assert_eq!((renewed.command, renewed.lease_ms), (LeaseCommand::Run, world.policy.lease_ms));
    let stale = node.client.renew(transfer, &Renew { epoch: 1, ..renew }).await;
    assert_eq!(refused(stale), ErrorCode::StaleEpoch);
    let other =
        node.client.renew(transfer, &Renew { incarnation: IncarnationId::from_u128(9), ..renew }).await;
    assert_eq!(refused(other), ErrorCode::StaleEpoch);
    let old = node.client.renew(transfer, &Renew { generation: 2, ..renew }).await;
    assert_eq!(refused(old), ErrorCode::StaleGeneration);

    let first = usage(claimed.epoch, 1, "0.01");
    for _ in 0..2 {
        let answer = node.client.usage(transfer, &first).await.expect("counts once");
        assert_eq!((answer.accepted_seq, answer.command), (1, UsageCommand::Continue));
    }
    let conflict = node.client.usage(transfer, &usage(claimed.epoch, 1, "0.02")).await;
    assert_eq!(refused(conflict), ErrorCode::IdempotencyConflict);
    let fell = node.client.usage(transfer, &usage(claimed.epoch, 2, "0.001")).await;
    assert_eq!(refused(fell), ErrorCode::InvalidArgument);
    let unknown = node.client.usage(transfer, &usage(7, 1, "0.01")).await;
    assert_eq!(refused(unknown), ErrorCode::NotFound);

    let checkpoint = |digest| Checkpoint {
        epoch: claimed.epoch,
        incarnation: incarnation(),
        digest,
        follows: Some(view.snapshot),
    };
    let missing = node.client.checkpoint(transfer, &checkpoint(Digest::of(b"nowhere"))).await;
    assert_eq!(refused(missing), ErrorCode::SnapshotInvalid);
    let input = serde_json::from_str(r#"{"source_host":"box","message_history":[]}"#).expect("an input");
    let sealed = seal(&input, &SealContext::default()).expect("sealed");
    let blobs = handoff_client::ClientBlobs::new(node.client.clone());
    let digest = sealed.store(&blobs).await.expect("uploaded");
    node.client.checkpoint(transfer, &checkpoint(digest)).await.expect("accepted");
    let session = world.client.session(view.session).await.expect("there");
    assert_eq!(session.last_snapshot, Some(digest));

    // To rest: the books of the epoch are closed first.
    let rest = Rest { epoch: claimed.epoch };
    assert_eq!(refused(node.client.rest(transfer, &rest).await), ErrorCode::WrongStatus);
    let closing = handoff_protocol::node::Usage { closing: true, ..usage(claimed.epoch, 2, "0.01") };
    node.client.usage(transfer, &closing).await.expect("closed");
    node.client.rest(transfer, &rest).await.expect("rests");
    assert_eq!(node.wait_for(transfer, |entry| entry.want == Want::Resting).await.epoch, Some(claimed.epoch));
    world.client.wake(view.session, Reasoned::default()).await.expect("woken");
    let entry = node.wait_for(transfer, |entry| entry.want == Want::Running && entry.lease_over).await;
    assert_eq!(entry.snapshot, digest);
    assert_eq!(refused(node.try_claim(&entry).await), ErrorCode::LeaseOver, "it went to rest");
    let again = node.try_claim_as(&entry, IncarnationId::from_u128(2)).await.expect("re-claimed");
    assert_eq!(again.epoch, claimed.epoch + 1);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_s35_terminated_is_gone_at_the_next_reconcile_also_after_a_restart() {
    let home = Arc::new(tempfile::tempdir().expect("a directory"));
    let clock = ManualClock::default();
    let world = World::on_disk(Arc::clone(&home), clock.clone()).await;
    let node = world.node(1).await;
    let transfer = world.stage(true).await.transfer_id;
    world.provision(transfer, "1").await;
    let entry = node.wait_for(transfer, |entry| entry.want == Want::Warm).await;
    node.client.observed(transfer, &observed(entry.generation, ObservedState::Warm)).await.expect("noted");
    world.client.terminate(transfer, end()).await.expect("ended while it was being provisioned");
    // The control plane goes away between that commit and anything the node could do about it.
    world.stop().await;
    clock.advance(1_000);
    let world = World::on_disk(home, clock).await;
    let node = world.node(1).await;
    let gone = node.wait_for(transfer, |entry| entry.want == Want::Gone).await;
    let failed = Observed {
        reason: Some("a mount is busy".to_owned()),
        ..observed(gone.generation, ObservedState::Failed)
    };
    node.client.observed(transfer, &failed).await.expect("noted");
    let still = node.wait_for(transfer, |entry| entry.want == Want::Gone).await;
    assert_eq!(still.generation, gone.generation, "an orphan is listed until it is proved absent");
    node.client
        .observed(transfer, &observed(gone.generation, ObservedState::Absent))
        .await
        .expect("believed");
    assert!(node.desired().await.destinations.is_empty());
    let view = world.client.transfer(transfer, Default::default()).await.expect("there");
    assert!(view.budget.expect("provisioned").closed);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_goes_back_to_its_source_only_while_nobody_else_had_it() {
    let world = World::new().await;
    let node = world.node(1).await;
    let back =
        |nonce| handoff_protocol::request::Return { nonce: IncarnationId::from_u128(nonce), frozen_epoch: 1 };
    let pushed = world.pushed(&node).await;
    let source = world.client.clone().in_role("source");
    assert_eq!(refused(source.return_source(pushed.session, back(7)).await), ErrorCode::SessionBusy);
    world.client.terminate(pushed.transfer, end()).await.expect("ended");
    for _ in 0..2 {
        let returned = source.return_source(pushed.session, back(7)).await.expect("returned");
        assert_eq!(returned.epoch, 2, "the same nonce gets the same answer");
    }
    assert_eq!(refused(source.return_source(pushed.session, back(8)).await), ErrorCode::StaleEpoch);

    let (view, _) = world.active(&node).await;
    world.client.terminate(view.transfer, end()).await.expect("ended");
    assert_eq!(refused(source.return_source(view.session, back(9)).await), ErrorCode::SessionBusy);
    let resume = Stage { input: None, session_id: Some(view.session), expected_epoch: Some(2), ..minimal() };
    let resumed = world.client.stage(resume).await.expect("every session with a snapshot can be resumed");
    assert!(resumed.is_final && resumed.snapshot == view.snapshot);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_source_that_cannot_be_stopped_is_given_up_only_on_request() {
    let world = World::new().await;
    let draft = world.stage(false).await;
    world.client.terminate(draft.transfer_id, end()).await.expect("ended");
    let resume = |abandon_source, epoch| Stage {
        request_id: Some("resume".parse().expect("an id")),
        input: None,
        session_id: Some(draft.session_id),
        expected_epoch: Some(epoch),
        abandon_source,
        ..minimal()
    };
    assert_eq!(refused(world.client.stage(resume(false, 1)).await), ErrorCode::SessionBusy);
    let caller = world.client.clone().in_role("caller");
    assert_eq!(refused(caller.stage(resume(true, 1)).await), ErrorCode::Forbidden);
    assert_eq!(refused(world.client.stage(resume(true, 9)).await), ErrorCode::StaleEpoch);
    let unnamed = Stage { expected_epoch: None, ..resume(true, 1) };
    assert_eq!(refused(world.client.stage(unnamed).await), ErrorCode::StaleEpoch);
    let other = Stage { request_id: Some("other".parse().expect("an id")), ..minimal() };
    world.client.stage(other.clone()).await.expect("another session");
    let used = Stage { request_id: other.request_id, ..resume(true, 1) };
    assert_eq!(refused(world.client.stage(used).await), ErrorCode::IdempotencyConflict);
    let session = world.client.session(draft.session_id).await.expect("there");
    assert_eq!((session.holder.as_str(), session.epoch), ("source", 1), "nothing was given up so far");
    for _ in 0..2 {
        let resumed = world.client.stage(resume(true, 1)).await.expect("resumed, and answered again");
        assert!(resumed.is_final && resumed.epoch == 2 && resumed.snapshot == draft.snapshot);
    }
    world.stop().await;
}
