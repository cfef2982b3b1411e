//! Restarts: what the journal says is what was.

use std::fs;

use crate::world::{CHAT, EPOCH, World, body, of, usd};

fn ask() -> String {
    body(Some(500), false, 200)
}

const HELD: &str = "0.0052";

/// H-78
#[tokio::test]
async fn a_call_that_was_under_way_stays_charged_at_its_maximum() {
    let mut world = World::new("1").await;
    world.call(&ask(), 40, 7).await;
    let door = world.door();
    let calling = tokio::spawn(async move { door.post(CHAT, &ask()).await });
    let _asked = world.upstream.asked().await;
    // The hold was durable before the call left.
    world.kill().await;
    calling.abort();
    world.restart().await;
    world.admit(EPOCH, usd("1")).await.expect("adopted");
    let epoch = world.settled(EPOCH).await;
    assert_eq!(epoch.indeterminate_usd, usd(HELD));
    assert_eq!(epoch.spent_usd, usd("0.00011").plus(usd(HELD)));
    // And again: nothing is charged twice.
    world.stop().await;
    world.restart().await;
    assert_eq!(world.settled(EPOCH).await.totals, epoch.totals);
}

#[tokio::test]
async fn a_journal_cut_at_every_byte_of_its_last_record_never_loses_durable_money() {
    let mut world = World::new("1").await;
    world.call(&ask(), 40, 7).await;
    let before = world.settled(EPOCH).await.totals;
    world.stop().await;
    let short = fs::read(world.journal()).expect("the journal");
    world.restart().await;
    world.admit(EPOCH, usd("1")).await.expect("adopted");
    let door = world.door();
    let calling = tokio::spawn(async move { door.post(CHAT, &ask()).await });
    world.upstream.asked().await.used(1000, 0).await;
    calling.await.expect("an answer");
    let after = world.settled(EPOCH).await.totals;
    world.stop().await;
    let long = fs::read(world.journal()).expect("the journal");
    assert!(long.starts_with(&short), "a journal only grows");
    let mut seen = Vec::new();
    for length in short.len()..=long.len() {
        fs::write(world.journal(), &long[..length]).expect("room");
        world.start().await;
        let totals = world.settled(EPOCH).await.totals;
        assert!(totals.covers(&before), "{length}");
        let model = totals.model_usd;
        // Before the hold, with the hold at its maximum, or settled: nothing else.
        assert!(
            [before.model_usd, before.model_usd.plus(usd(HELD)), after.model_usd].contains(&model),
            "{model}"
        );
        seen.push(model);
        world.stop().await;
    }
    assert_eq!(seen.first(), Some(&before.model_usd));
    assert_eq!(seen.last(), Some(&after.model_usd));
    assert!(seen.contains(&before.model_usd.plus(usd(HELD))));
}

#[tokio::test]
async fn a_report_keeps_its_number_and_its_body() {
    let mut world = World::new("1").await;
    world.call(&ask(), 40, 7).await;
    let first = world.settled(EPOCH).await.report.expect("news");
    assert_eq!((first.seq, first.prev_hash), (1, None));
    // More is spent, the node has not acknowledged, the gateway restarts: the same report.
    world.call(&ask(), 40, 7).await;
    assert_eq!(world.settled(EPOCH).await.report, Some(first));
    world.stop().await;
    world.restart().await;
    assert_eq!(world.settled(EPOCH).await.report, Some(first));
    world.acknowledge(EPOCH, 1).await.expect("accepted");
    let second = world.settled(EPOCH).await.report.expect("more news");
    assert_eq!(second.seq, 2);
    assert_eq!(second.prev_hash, Some(handoff_gateway::meter::report_digest(&first)));
    assert_eq!(second.totals.model_usd, usd("0.00022"));
    world.acknowledge(EPOCH, 2).await.expect("accepted");
    world.acknowledge(EPOCH, 2).await.expect("said again");
    assert_eq!(world.settled(EPOCH).await.report, None, "nothing has changed since");
    assert_eq!(world.acknowledge(EPOCH, 3).await, Err(handoff_protocol::ErrorCode::InvalidArgument));
    // An accepted report is not offered again after a restart.
    world.stop().await;
    world.restart().await;
    assert_eq!(world.settled(EPOCH).await.report, None);
}

#[tokio::test]
async fn a_restarted_gateway_admits_nothing_by_itself_and_still_has_its_totals() {
    let mut world = World::new("1").await;
    world.call(&ask(), 40, 7).await;
    world.stop().await;
    world.start().await;
    let state = world.state().await;
    assert!(!state.admitted);
    assert_eq!(of(&state, EPOCH).expect("the epoch").spent_usd, usd("0.00011"));
    assert_eq!(world.lease(EPOCH, 1000).await, Err(handoff_protocol::ErrorCode::LeaseOver));
    assert_eq!(world.admit(EPOCH, usd("1")).await, Err(handoff_protocol::ErrorCode::PreconditionFailed));
    world.client.ask(&world.open.clone()).await.expect("opened");
    assert_eq!(world.door().post(CHAT, &ask()).await.code(), "wait");
    world.admit(EPOCH, usd("1")).await.expect("adopted");
    assert_eq!(world.call(&ask(), 40, 7).await.status, 200);
}

#[tokio::test]
async fn a_limit_is_never_lowered() {
    let world = World::new("1").await;
    world.limit(EPOCH, usd("0.5")).await;
    assert_eq!(world.settled(EPOCH).await.limit_usd, usd("1"));
    world.limit(EPOCH, usd("2")).await;
    assert_eq!(world.settled(EPOCH).await.limit_usd, usd("2"));
    world.admit(EPOCH, usd("1")).await.expect("said again");
    assert_eq!(world.settled(EPOCH).await.limit_usd, usd("2"));
}
