//! A changed policy is taken up by a gateway that runs.

use handoff_gateway::control::{AskPolicy, Resolve};
use handoff_protocol::Digest;

use crate::upstream::Upstream;
use crate::world::{CHAT, EPOCH, World, body, policy_text, tier, usd};

fn ask() -> String {
    body(Some(500), false, 200)
}

#[tokio::test]
async fn calls_that_come_are_judged_by_the_new_policy() {
    let mut world = World::new("1").await;
    let door = world.door();
    let other = ask().replace("\"m\"", "\"n\"");
    assert_eq!(door.post(CHAT, &other).await.code(), "price_unknown");
    let text = policy_text(world.upstream.address).replace("model = \"m\"", "model = \"n\"");
    world.take_up(&text).await;
    let in_force = world.client.ask(&AskPolicy {}).await.expect("a policy");
    assert_eq!(in_force.digest, Digest::of(text.as_bytes()));
    assert_eq!(world.call(&other, 40, 7).await.status, 200);
    assert_eq!(door.post(CHAT, &ask()).await.code(), "price_unknown");
    world.take_up("").await;
    assert_eq!(door.post(CHAT, &other).await.code(), "not_found");
    assert_eq!(world.settled(EPOCH).await.spent_usd, usd("0.00011"));
}

#[tokio::test]
async fn a_call_under_way_is_charged_by_the_price_it_came_in_under() {
    let mut world = World::new("1").await;
    let door = world.door();
    let calling = tokio::spawn(async move { door.post(CHAT, &ask()).await });
    let asked = world.upstream.asked().await;
    world.take_up(&policy_text(world.upstream.address).replace("\"1\"", "\"100\"")).await;
    asked.used(40, 7).await;
    assert_eq!(calling.await.expect("an answer").status, 200);
    assert_eq!(world.settled(EPOCH).await.spent_usd, usd("0.00011"));
}

#[tokio::test]
async fn lower_limits_hold_at_doors_that_are_open() {
    let mut world = World::new("1").await;
    let text = policy_text(world.upstream.address);
    world.take_up(&format!("{text}[limits]\nbody_bytes = 100\nbodies_bytes = 100\n")).await;
    assert_eq!(world.door().post(CHAT, &ask()).await.code(), "payload_too_large");
    // More than the door could take in when it was opened.
    world.take_up(&format!("{text}[limits]\nbody_bytes = 200\nbodies_bytes = 200\n")).await;
    assert_eq!(world.call(&ask(), 1, 1).await.status, 200);
}

/// A policy whose upstream has this address and credential.
fn keyed(address: std::net::SocketAddr, root: &str, key: &str) -> String {
    let rule = format!("credential = {{ ref = \"file://keys/{key}\", scheme = \"Bearer\" }}");
    let text = policy_text(address).replacen(
        "allow_plain_http = true",
        &format!("allow_plain_http = true\n{rule}"),
        1,
    );
    format!("{text}[stores.keys]\nkind = \"file\"\nroot = \"{root}\"\n")
}

/// H-45
#[tokio::test]
async fn a_credential_follows_its_rule_and_never_another_address() {
    let keys = tempfile::tempdir().expect("a folder").keep();
    for (name, value) in [("old", "canary-old"), ("new", "canary-new")] {
        std::fs::write(keys.join(name), value).expect("room");
    }
    let root = keys.display().to_string();
    let mut world = World::staged(&|address| keyed(address, &root, "old"), tier(0, 0)).await;
    world.keep_until_the_end(keys);
    world.client.ask(&Resolve { destination: world.key() }).await.expect("resolved");
    world.admit(EPOCH, usd("1")).await.expect("admitted");
    let address = world.upstream.address;
    for (key, value) in [("new", "Bearer canary-new"), ("old", "Bearer canary-old")] {
        world.take_up(&keyed(address, &root, key)).await;
        let door = world.door();
        let calling = tokio::spawn(async move { door.post(CHAT, &ask()).await });
        let asked = world.upstream.asked().await;
        assert_eq!(asked.headers["authorization"], value);
        asked.used(1, 1).await;
        calling.await.expect("an answer");
    }
    // The key of another address does not resolve: the one that was resolved does not go there.
    let elsewhere = Upstream::start().await;
    world.take_up(&keyed(elsewhere.address, &root, "absent")).await;
    assert_eq!(world.door().post(CHAT, &ask()).await.code(), "credential_unresolved");
}

#[tokio::test]
async fn nothing_is_resolved_before_it_is_asked_for() {
    let keys = tempfile::tempdir().expect("a folder").keep();
    std::fs::write(keys.join("old"), "canary-old").expect("room");
    let root = keys.display().to_string();
    let mut world = World::staged(&policy_text, tier(0, 0)).await;
    world.keep_until_the_end(keys);
    world.admit(EPOCH, usd("1")).await.expect("admitted");
    world.take_up(&keyed(world.upstream.address, &root, "old")).await;
    assert_eq!(world.door().post(CHAT, &ask()).await.code(), "credential_unresolved");
}
