//! The control socket, and what a destination leaves behind.

use handoff_gateway::control::{DestinationKey, List, Open, Remove, Resolve};
use handoff_gateway::{Gateway, GatewayOptions, StartError};
use handoff_protocol::{ErrorCode, TransferId};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;

use crate::world::{CHAT, EPOCH, World, body, code, tier, usd};

fn remove(world: &World, written_off: bool) -> Remove {
    Remove { destination: world.key(), written_off }
}

#[tokio::test]
async fn a_destination_is_forgotten_only_when_its_reports_are_accepted() {
    let mut world = World::new("1").await;
    world.call(&body(Some(500), false, 200), 40, 7).await;
    let door = world.door();
    assert_eq!(code(world.client.ask(&remove(&world, false)).await), Err(ErrorCode::PreconditionFailed));
    // The door is shut all the same.
    let listed = world.client.ask(&List {}).await.expect("a list");
    assert_eq!(listed.destinations.len(), 1);
    assert!(!listed.destinations[0].open);
    assert_eq!(listed.destinations[0].spent_usd[&EPOCH], usd("0.00011"));
    let closed = world.close(EPOCH).await;
    let last = closed.reports.last().expect("a closing report");
    world.acknowledge(EPOCH, last.seq).await.expect("accepted");
    assert!(world.close(EPOCH).await.closed, "said again");
    world.client.ask(&remove(&world, false)).await.expect("forgotten");
    world.client.ask(&remove(&world, false)).await.expect("said again");
    assert!(!world.journal().exists());
    assert!(world.client.ask(&List {}).await.expect("a list").destinations.is_empty());
    assert_eq!(code(world.client.ask(&Resolve { destination: world.key() }).await), Err(ErrorCode::NotFound));
    drop(door);
}

#[tokio::test]
async fn a_ledger_that_was_written_off_can_be_forgotten() {
    let mut world = World::new("1").await;
    world.call(&body(Some(500), false, 200), 40, 7).await;
    world.client.ask(&remove(&world, true)).await.expect("forgotten");
    assert!(!world.journal().exists());
}

#[tokio::test]
async fn opening_again_replaces_token_and_door_and_keeps_the_tier() {
    let mut world = World::new("1").await;
    world.call(&body(Some(500), false, 200), 40, 7).await;
    let other = Open { agent_token_digest: handoff_protocol::Digest::of(b"another"), ..world.open.clone() };
    world.client.ask(&other).await.expect("opened again");
    let refused = world.door().post(CHAT, &body(Some(500), false, 200)).await;
    assert_eq!(refused.code(), "unauthenticated");
    let dearer = Open { tier: tier(5, 5), ..world.open.clone() };
    assert_eq!(code(world.client.ask(&dearer).await), Err(ErrorCode::IdempotencyConflict));
    let unknown = Open { upstreams: vec!["nobody".to_owned()], ..world.open.clone() };
    assert_eq!(code(world.client.ask(&unknown).await), Err(ErrorCode::InvalidArgument));
    assert_eq!(world.settled(EPOCH).await.spent_usd, usd("0.00011"));
}

#[tokio::test]
async fn a_destination_sees_only_its_upstreams_and_only_its_own_door() {
    let mut world = World::new("1").await;
    let door_dir = world.folder.path().join("door-2");
    std::fs::create_dir(&door_dir).expect("a folder");
    let destination = DestinationKey { transfer_id: TransferId::from_u128(8), generation: 1 };
    let agent_token_digest = handoff_protocol::Digest::of(b"another");
    let second = Open { destination, door_dir: door_dir.clone(), agent_token_digest, ..world.open.clone() };
    world.client.ask(&second).await.expect("opened");
    assert_eq!(world.call(&body(Some(500), false, 200), 1, 1).await.status, 200);
    let (first, second) = (world.door(), {
        world.open.door_dir = door_dir;
        world.door()
    });
    assert_eq!(
        first.post(CHAT, &body(Some(500), false, 200).replace("\"m\"", "\"x\"")).await.code(),
        "price_unknown"
    );
    assert_eq!(second.post(CHAT, &body(Some(500), false, 200)).await.code(), "unauthenticated");
}

#[tokio::test]
async fn a_second_gateway_in_the_same_home_is_refused() {
    let world = World::new("1").await;
    let options = GatewayOptions::new(world.home(), world.policy.clone()).expect("a boot id");
    assert!(matches!(Gateway::start(options).await, Err(StartError::Locked(_))));
}

#[tokio::test]
async fn words_that_are_not_known_are_refused() {
    let world = World::new("1").await;
    let key = serde_json::to_value(world.key()).expect("plain data");
    let limit = |rest: &str| format!("{{\"destination\":{key},\"epoch\":2,{rest}}}");
    for (path, text, status, expected) in [
        ("/v1/limit", limit("\"limit_usd\":\"2\",\"budget\":\"9\""), 422, "invalid_argument"),
        ("/v1/limit", limit("\"limit_usd\":2"), 422, "invalid_amount"),
        ("/v1/limit", limit("\"limit_usd\":\"-2\""), 422, "invalid_amount"),
        ("/v1/limit", limit("\"limit_usd\":\"2\",\"limit_usd\":\"3\""), 422, "invalid_argument"),
        ("/v1/limit", "[".repeat(500), 422, "invalid_argument"),
        ("/v1/nothing", "{}".to_owned(), 404, "not_found"),
        ("/v1/limit", "x".repeat(2 << 20), 413, "payload_too_large"),
    ] {
        let (found, problem) = post(&world, path, text).await;
        assert_eq!((found, problem["code"].as_str()), (status, Some(expected)), "{path}");
    }
    assert_eq!(world.settled(EPOCH).await.limit_usd, usd("1"));
}

async fn post(world: &World, path: &str, text: String) -> (u16, serde_json::Value) {
    let stream = tokio::net::UnixStream::connect(world.client.path()).await.expect("the control socket");
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.expect("a connection");
    let connection = tokio::spawn(connection);
    let request = http::Request::post(path).header("host", "x").body(Full::new(bytes::Bytes::from(text)));
    let answer = sender.send_request(request.expect("a request")).await.expect("an answer");
    let status = answer.status().as_u16();
    let body = answer.into_body().collect().await.expect("a body").to_bytes();
    connection.abort();
    (status, serde_json::from_slice(&body).expect("a problem"))
}

#[tokio::test]
async fn the_control_socket_and_the_journals_are_for_their_owner_only() {
    use std::os::unix::fs::PermissionsExt;
    let world = World::new("1").await;
    let mode =
        |path: &std::path::Path| std::fs::metadata(path).expect("it is there").permissions().mode() & 0o777;
    assert_eq!(mode(world.client.path()), 0o600);
    assert_eq!(mode(&world.journal()), 0o600);
    assert_eq!(mode(&world.home()), 0o700);
}

#[tokio::test]
async fn an_epoch_that_never_ran_here_can_be_closed() {
    let world = World::new("1").await;
    let closed = world.close(EPOCH + 5).await;
    assert!(closed.closed);
    assert_eq!(closed.reports.len(), 1);
    assert!(closed.reports[0].closing && closed.reports[0].totals == Default::default());
    assert_eq!(world.state().await.epochs.len(), 2);
}
