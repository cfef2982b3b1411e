//! Waiting: for receipts, for claims, for news; and what is true when the wait ends otherwise.

use std::time::{Duration, Instant};

use handoff_protocol::listing::{EventQuery, ViewQuery};
use handoff_protocol::node::{Decline, Want};
use handoff_protocol::request::{Activate, Operation, Push, Refresh, ReportUsage, Terminate};
use handoff_protocol::{ErrorCode, Status, TransferId};
use handoff_testkit::wait;
use tokio::io::AsyncWriteExt as _;
use tokio::net::UnixStream;

use crate::world::{Node, PATIENCE, World, amount, keys, minimal, refused};

async fn activation(world: &World, transfer: TransferId, wait_ms: u64) -> Activate {
    let token = Some(world.token(transfer, Operation::Activate).await);
    Activate { request_id: Some("activate".parse().expect("an id")), token, wait_ms: Some(wait_ms) }
}

fn end(reason: &str) -> Terminate {
    Terminate { request_id: None, reason: reason.to_owned() }
}

/// H-57
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_claims_and_the_authorisation_is_withdrawn() {
    let world = World::new().await;
    let node = world.node(1).await;
    let transfer = world.pushed(&node).await.transfer;
    let error = world.client.activate(transfer, activation(&world, transfer, 50).await).await;
    let problem = error.expect_err("nobody came").problem();
    assert_eq!((problem.code, problem.status), (ErrorCode::NotResumed, Some(Status::Pushed)));
    assert!(problem.message.contains("source stays frozen"), "{}", problem.message);
    let entry = node.wait_for(transfer, |entry| entry.want == Want::Prepared).await;
    assert_eq!(entry.authorization, None);
    // The same request again: the state of its own authorisation, without waiting.
    let started = Instant::now();
    let again = world
        .client
        .activate(transfer, Activate { token: None, ..activation(&world, transfer, 60_000).await });
    assert_eq!(refused(again.await), ErrorCode::NotResumed);
    assert!(started.elapsed() < Duration::from_secs(5));
    // A new request with a new token goes through.
    let token = Some(world.token(transfer, Operation::Activate).await);
    let activate = world.client.activate(transfer, Activate { token, ..Activate::default() });
    let (view, _) = tokio::join!(activate, node.claim(transfer));
    assert_eq!(view.expect("active").status, Status::Active);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_destination_declines_and_the_reason_is_passed_on() {
    let world = World::new().await;
    let node = world.node(1).await;
    let transfer = world.pushed(&node).await.transfer;
    let activate = world.client.activate(transfer, activation(&world, transfer, 20_000).await);
    let decline = async {
        let entry = node.wait_for(transfer, |entry| entry.authorization.is_some()).await;
        let body = Decline {
            generation: entry.generation,
            authorization: entry.authorization.expect("offered").id,
            reason: "vault://main is sealed".to_owned(),
        };
        node.client.decline(transfer, &body).await.expect("counts");
    };
    let (answer, ()) = tokio::join!(activate, decline);
    let problem = answer.expect_err("declined").problem();
    assert_eq!(problem.code, ErrorCode::NotResumed);
    assert!(problem.message.contains("vault://main is sealed"), "{}", problem.message);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_while_a_repetition_waits_answers_both() {
    let world = World::new().await;
    let node = world.node(1).await;
    let transfer = world.pushed(&node).await.transfer;
    let body = activation(&world, transfer, 20_000).await;
    let first = tokio::spawn({
        let (client, body) = (world.client.clone(), body.clone());
        async move { client.activate(transfer, body).await }
    });
    let entry = node.wait_for(transfer, |entry| entry.authorization.is_some()).await;
    // A repetition that does not want to wait learns that it is open, and withdraws nothing.
    let impatient = Activate { wait_ms: Some(1), ..body.clone() };
    assert_eq!(refused(world.client.activate(transfer, impatient).await), ErrorCode::AlreadyAuthorized);
    let other = Activate {
        request_id: None,
        token: Some(world.token(transfer, Operation::Activate).await),
        wait_ms: Some(1),
    };
    assert_eq!(refused(world.client.activate(transfer, other).await), ErrorCode::AlreadyAuthorized);
    node.try_claim(&entry).await.expect("claimed");
    assert_eq!(first.await.expect("no panic").expect("active").status, Status::Active);
    let again = world.client.activate(transfer, body).await.expect("the same answer");
    assert_eq!((again.status, again.epoch), (Status::Active, 2));
    world.stop().await;
}

/// H-19
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_that_disconnects_cancels_nothing() {
    let world = World::new().await;
    let node = world.node(1).await;
    let transfer = world.pushed(&node).await.transfer;
    let body = serde_json::to_string(&activation(&world, transfer, 300).await).expect("plain data");
    let request = format!(
        "POST /v1/transfers/{transfer}/activate HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut stream = UnixStream::connect(world.socket()).await.expect("connects");
    stream.write_all(request.as_bytes()).await.expect("sent");
    node.wait_for(transfer, |entry| entry.authorization.is_some()).await;
    drop(stream);
    // The use-case goes on to its end, which is to withdraw what nobody claimed.
    node.wait_for(transfer, |entry| entry.authorization.is_none()).await;
    let again = Activate { request_id: Some("activate".parse().expect("an id")), token: None, wait_ms: None };
    assert_eq!(refused(world.client.activate(transfer, again).await), ErrorCode::NotResumed);
    world.stop().await;
}

/// H-19
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_waits_for_a_receipt_on_behalf_of_a_caller_that_is_gone() {
    let world = World::new().await;
    let node = world.node(1).await;
    let transfer = world.stage(true).await.transfer_id;
    world.provision(transfer, "1").await;
    let body = r#"{"wait_ms":600000}"#;
    let request = format!(
        "POST /v1/transfers/{transfer}/push HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut stream = UnixStream::connect(world.socket()).await.expect("connects");
    stream.write_all(request.as_bytes()).await.expect("sent");
    node.wait_for(transfer, |entry| entry.push).await;
    drop(stream);
    tokio::time::timeout(PATIENCE, world.service.drained()).await.expect("nothing waits any more");
    world.push(transfer, &node).await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_that_disconnect_lose_nothing_and_are_billed_once() {
    let world = World::new().await;
    let node = world.node(1).await;
    let (view, _) = world.active(&node).await;
    let spend = |number: u32| ReportUsage {
        request_id: Some(format!("spend-{number}").parse().expect("an id")),
        cost_usd: amount("0.001"),
        detail: None,
    };
    for number in 0..60 {
        let body = serde_json::to_string(&spend(number)).expect("plain data");
        let request = format!(
            "POST /v1/transfers/{}/report-usage HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n{body}",
            view.transfer,
            body.len()
        );
        let mut stream = UnixStream::connect(world.socket()).await.expect("connects");
        stream.write_all(request.as_bytes()).await.expect("sent");
        drop(stream);
    }
    for number in 0..60 {
        world.client.report_usage(view.transfer, spend(number)).await.expect("answered");
    }
    let after = world.client.transfer(view.transfer, Default::default()).await.expect("there");
    assert_eq!(after.budget.expect("provisioned").spent_usd, amount("0.06"));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_use_case_that_panics_is_an_internal_error_and_the_next_one_works() {
    let world = World::new().await;
    let blobs = handoff_snapshot::DirectoryBlobs::open(world.home.path().join("b"), 0).expect("opens");
    let config = handoff_service::ServiceConfig::new("cp", world.policy.clone(), keys());
    let ledger = std::sync::Arc::clone(&world.ledger);
    let stopping = tokio_util::sync::CancellationToken::new();
    let service = handoff_service::Service::new(ledger, std::sync::Arc::new(blobs), config, stopping);
    let service = service.await.expect("a service");
    let failed = service.detached(async { Err::<(), _>(panic_in_a_use_case()) }).await;
    assert_eq!(failed.expect_err("it panicked").code(), ErrorCode::Internal);
    assert_eq!(service.detached(async { Ok(7) }).await.expect("fine"), 7);
    drop(service);
    world.stop().await;
}

fn panic_in_a_use_case() -> handoff_service::ServiceError {
    panic!("on purpose")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_push_that_takes_long_goes_on_and_the_same_call_waits_again() {
    let world = World::new().await;
    let node = world.node(1).await;
    let transfer = world.stage(true).await.transfer_id;
    world.provision(transfer, "1").await;
    let push =
        || Push { request_id: Some("push".parse().expect("an id")), checksum: None, wait_ms: Some(20) };
    let view = world.client.push(transfer, push()).await.expect("accepted");
    assert_eq!(view.status, Status::Provisioned);
    let raw = world.post(&format!("/v1/transfers/{transfer}/push"), r#"{"wait_ms":1}"#).await;
    assert_eq!(raw.status, 202);
    let entry = node.wait_for(transfer, |entry| entry.push).await;
    node.client.receipt(transfer, &node.receipt(&entry)).await.expect("counts");
    let view = world.client.push(transfer, push()).await.expect("pushed");
    assert_eq!(view.status, Status::Pushed);
    world.stop().await;
}

async fn pushing(world: &World, transfer: TransferId) -> tokio::task::JoinHandle<ErrorCode> {
    let client = world.client.clone();
    let push = Push { wait_ms: Some(20_000), ..Push::default() };
    tokio::spawn(async move { refused(client.push(transfer, push).await) })
}

async fn provisioned(world: &World) -> (Node, TransferId) {
    let node = world.node(1).await;
    let transfer = world.stage(true).await.transfer_id;
    world.provision(transfer, "1").await;
    (node, transfer)
}

/// H-46
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_push_ends_at_once_when_its_snapshot_is_replaced_or_a_reference_is_missing() {
    let world = World::new().await;
    let (node, transfer) = provisioned(&world).await;
    let push = pushing(&world, transfer).await;
    node.wait_for(transfer, |entry| entry.push).await;
    let other = r#"{"source_host":"laptop","message_history":[{"role":"user","content":"more"}]}"#;
    let refresh = Refresh {
        request_id: None,
        expected_epoch: Some(1),
        snapshot: None,
        input: serde_json::from_str(other).expect("an input"),
        is_final: true,
        incarnation: None,
    };
    world.client.refresh(transfer, refresh).await.expect("refreshed");
    assert_eq!(push.await.expect("no panic"), ErrorCode::StaleSnapshot);

    let push = pushing(&world, transfer).await;
    let entry = node.wait_for(transfer, |entry| entry.push).await;
    let mut receipt = node.receipt(&entry);
    receipt.missing_references.push("env://local/KEY".to_owned());
    node.client.receipt(transfer, &receipt).await.expect("counts");
    assert_eq!(push.await.expect("no panic"), ErrorCode::CredentialUnresolved);
    assert_eq!(world.status(transfer).await, Status::Provisioned);
    let wrong = Push { checksum: Some(handoff_protocol::Digest::of(b"other")), ..Push::default() };
    assert_eq!(refused(world.client.push(transfer, wrong).await), ErrorCode::ChecksumMismatch);
    world.stop().await;
}

/// H-90
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn long_polls_answer_when_there_is_news() {
    let world = World::new().await;
    let node = world.node(1).await;
    let staged = world.stage(true).await;
    let transfer = staged.transfer_id;
    let status = tokio::spawn({
        let client = world.client.clone();
        let query = ViewQuery { newer_than: Some(1), wait_s: Some(15), ..ViewQuery::default() };
        async move { client.transfer(transfer, query).await.expect("answered").status }
    });
    let events = tokio::spawn({
        let client = world.client.clone();
        let query = EventQuery { after: Some(1), wait_s: Some(15), limit: None };
        async move { client.events(transfer, query).await.expect("answered").events.len() }
    });
    let revision = node.desired().await.revision;
    let list = tokio::spawn({
        let (client, id) = (node.client.clone(), node.id);
        async move { client.desired(id, Some(revision), 15).await.expect("answered").destinations.len() }
    });
    let started = Instant::now();
    world.provision(transfer, "1").await;
    assert_eq!(status.await.expect("no panic"), Status::Provisioned);
    assert_eq!(events.await.expect("no panic"), 1);
    assert_eq!(list.await.expect("no panic"), 1);
    assert!(started.elapsed() < Duration::from_secs(10));
    let nothing = world.client.desired(node.id, None, 0);
    assert_eq!(refused(nothing.await), ErrorCode::Forbidden, "only the node itself");
    world.stop().await;
}

/// H-90
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_that_runs_out_is_news_although_nothing_changed() {
    let world = World::new().await;
    let node = world.node(1).await;
    let (view, _) = world.active(&node).await;
    let first = node.desired().await;
    assert!(!first.destinations[0].lease_over);
    // Between two polls: the next one is answered at once.
    world.clock.advance(world.policy.lease_ms + 1);
    let started = Instant::now();
    let second = node.client.desired(node.id, Some(first.revision), 15).await.expect("a list");
    assert!(second.destinations[0].lease_over && second.revision == first.revision);
    assert!(started.elapsed() < Duration::from_secs(5));
    // Said once, it is no news any more.
    let waited = Instant::now();
    node.client.desired(node.id, Some(first.revision), 1).await.expect("a list");
    assert!(waited.elapsed() >= Duration::from_millis(900));
    assert_eq!(world.status(view.transfer).await, Status::Active);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_control_plane_that_stops_answers_what_waits() {
    let world = World::new().await;
    let node = world.node(1).await;
    let transfer = world.pushed(&node).await.transfer;
    let activate = tokio::spawn({
        let (client, body) = (world.client.clone(), activation(&world, transfer, 30_000).await);
        async move { client.activate(transfer, body).await }
    });
    node.wait_for(transfer, |entry| entry.authorization.is_some()).await;
    let started = Instant::now();
    let socket = world.socket();
    world.stop().await;
    let error = activate.await.expect("no panic").expect_err("not known yet");
    assert!(error.code() == Some(ErrorCode::StoreUnavailable) && error.outcome_unknown(), "{error}");
    assert!(started.elapsed() < PATIENCE && !socket.exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_ended_transfer_ends_the_wait() {
    let world = World::new().await;
    let node = world.node(1).await;
    let transfer = world.pushed(&node).await.transfer;
    let activate = tokio::spawn({
        let (client, body) = (world.client.clone(), activation(&world, transfer, 20_000).await);
        async move { refused(client.activate(transfer, body).await) }
    });
    node.wait_for(transfer, |entry| entry.authorization.is_some()).await;
    world.client.terminate(transfer, end("changed my mind")).await.expect("ended");
    assert_eq!(activate.await.expect("no panic"), ErrorCode::NotResumed);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_with_patience_waits_for_a_control_plane_that_starts() {
    let world = World::new().await;
    let socket = world.socket();
    let staged = world.stage(false).await.transfer_id;
    let clock = world.clock.clone();
    let home = world.stop().await;
    let client = handoff_client::Client::unix(&socket);
    let error = client.stage(minimal()).await.expect_err("nobody is there");
    assert!(error.is_unreachable() && !error.outcome_unknown(), "{error}");
    let patient = tokio::spawn(async move {
        client.retrying(PATIENCE).transfers(&Default::default()).await.expect("it came back").transfers.len()
    });
    let world = World::on_disk(home, clock).await;
    assert_eq!(patient.await.expect("no panic"), 0, "another store: {staged} is not in it");
    wait::until("it is ready", PATIENCE, async || world.client.ready().await.ok()).await;
    world.stop().await;
}
