//! Who may do what: a peer that is not the owner, and roles that narrow.

use axum::body::Body;
use handoff_protocol::request::{Reasoned, Terminate};
use handoff_protocol::{ErrorCode, NodeId, Problem};
use handoff_server::{Peer, router};
use handoff_service::{Service, ServiceConfig};
use handoff_snapshot::DirectoryBlobs;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use crate::world::{World, keys, minimal, provision, refused};

async fn answer(world: &World, peer: Option<Peer>, path: &str) -> (u16, Vec<u8>) {
    let blobs = DirectoryBlobs::open(world.home.path().join("other"), 0).expect("opens");
    let config = ServiceConfig::new("cp", world.policy.clone(), keys());
    let ledger = std::sync::Arc::clone(&world.ledger);
    let service = Service::new(ledger, std::sync::Arc::new(blobs), config, CancellationToken::new());
    let mut request = http::Request::builder().uri(path).body(Body::empty()).expect("a request");
    if let Some(peer) = peer {
        request.extensions_mut().insert(peer);
    }
    let response = router(service.await.expect("a service")).oneshot(request).await.expect("infallible");
    let status = response.status().as_u16();
    let body = axum::body::to_bytes(response.into_body(), 1 << 16).await.expect("small");
    (status, body.to_vec())
}

/// H-101
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_user_of_the_machine_is_not_served() {
    let world = World::new().await;
    for peer in [Some(Peer::Stranger { uid: 4242 }), None] {
        let (status, body) = answer(&world, peer, "/v1/transfers").await;
        let problem: Problem = serde_json::from_slice(&body).expect("a problem");
        assert_eq!((status, problem.code), (401, ErrorCode::Unauthenticated));
    }
    assert_eq!(answer(&world, Some(Peer::Owner), "/v1/transfers").await.0, 200);
    assert_eq!(answer(&world, None, "/healthz").await.0, 200, "anybody may ask whether it lives");
    world.stop().await;
}

/// H-98
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_role_gives_nothing_that_it_does_not_have() {
    let world = World::new().await;
    let transfer = world.stage(true).await.transfer_id;
    let end = || Terminate { request_id: None, reason: "because".to_owned() };
    let viewer = world.client.clone().in_role("viewer");
    assert!(viewer.transfer(transfer, Default::default()).await.is_ok());
    assert_eq!(refused(viewer.stage(minimal()).await), ErrorCode::Forbidden);
    assert_eq!(refused(viewer.blob(world.stage(false).await.snapshot, 0).await), ErrorCode::Forbidden);
    let source = world.client.clone().in_role("source");
    assert!(source.stage(minimal()).await.is_ok());
    assert_eq!(refused(source.provision(transfer, provision("1")).await), ErrorCode::Forbidden);
    assert_eq!(refused(source.push(transfer, Default::default()).await), ErrorCode::Forbidden);
    let caller = world.client.clone().in_role("caller");
    assert_eq!(refused(caller.terminate(transfer, end()).await), ErrorCode::Forbidden);
    assert_eq!(refused(caller.reap(None).await), ErrorCode::Forbidden);
    let node = world.client.clone().as_node(NodeId::from_u128(1));
    assert_eq!(refused(node.stage(minimal()).await), ErrorCode::Forbidden);
    let session = world.stage(false).await.session_id;
    assert_eq!(refused(caller.abandon_source(session, Reasoned::default()).await), ErrorCode::Forbidden);
    let orchestrator = world.client.clone().in_role("orchestrator");
    assert!(orchestrator.terminate(transfer, end()).await.is_ok());
    for bad in ["x-handoff-role: root\r\n", "x-handoff-role: control_plane\r\n", "x-handoff-role: node\r\n"] {
        let status = world.raw("GET", "/v1/transfers", bad, b"").await.status;
        assert!(status == 422 || status == 403, "{bad}: {status}");
    }
    world.stop().await;
}

/// H-98
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_speaks_for_itself_only() {
    let world = World::new().await;
    let (one, two) = (world.node(1).await, world.node(2).await);
    assert_eq!(refused(one.client.desired(two.id, None, 0).await), ErrorCode::Forbidden);
    assert_eq!(refused(one.client.register(&two.registration()).await), ErrorCode::Forbidden);
    assert_eq!(refused(world.client.desired(one.id, None, 0).await), ErrorCode::Forbidden);
    let mut other_key = one.registration();
    other_key.public_key = two.registration().public_key;
    assert_eq!(refused(one.client.register(&other_key).await), ErrorCode::Forbidden);
    let nodes = world.client.nodes().await.expect("a page").nodes;
    assert_eq!(nodes.iter().map(|node| node.node_id).collect::<Vec<_>>(), [one.id, two.id]);
    assert_eq!(nodes[0].free.expect("room"), nodes[0].capacity);
    assert_eq!(world.client.tiers().await.expect("a page").tiers, world.policy.tiers);
    world.stop().await;
}

/// H-98: what another node runs is not this node's to see.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_sees_its_own_transfers_only() {
    let world = World::new().await;
    let (one, two) = (world.node(1).await, world.node(2).await);
    let staged = world.stage(true).await;
    let view = world.provision(staged.transfer_id, "1").await;
    let assigned = view.destination.expect("provisioned").node_id;
    let (own, other) = if assigned == one.id { (one, two) } else { (two, one) };
    let transfer = staged.transfer_id;
    assert_eq!(own.client.transfer(transfer, Default::default()).await.expect("its own").transfer, transfer);
    assert_eq!(own.client.transfers(&Default::default()).await.expect("a page").transfers.len(), 1);
    own.client.session(staged.session_id).await.expect("its own");
    own.client.events(transfer, Default::default()).await.expect("its own");
    assert_eq!(refused(other.client.transfer(transfer, Default::default()).await), ErrorCode::NotFound);
    assert_eq!(refused(other.client.events(transfer, Default::default()).await), ErrorCode::NotFound);
    assert_eq!(refused(other.client.session(staged.session_id).await), ErrorCode::NotFound);
    assert!(other.client.transfers(&Default::default()).await.expect("a page").transfers.is_empty());
    assert_eq!(refused(other.client.sessions(Default::default()).await), ErrorCode::Forbidden);
    world.stop().await;
}
