//! Compute: reserved in advance, charged by the millisecond, to the last proof of life.

use handoff_gateway::clock::Clock;
use handoff_gateway::control::EpochState;
use handoff_gateway::meter::Mode;

use crate::world::{EPOCH, World, of, policy_text, tier, usd};

/// One micro-dollar per millisecond running, a tenth of it frozen; ticks of a second cost $0.001.
async fn paid(limit: &str) -> World {
    let world = World::staged(&|address| policy_text(address), tier(1_000_000, 100_000)).await;
    world.admit(EPOCH, usd(limit)).await.expect("admitted");
    world
}

/// H-80
#[tokio::test]
async fn a_tick_is_reserved_before_it_runs_and_charged_as_it_runs() {
    let world = paid("1").await;
    let epoch = world.settled(EPOCH).await;
    assert_eq!((epoch.spent_usd, epoch.held_usd), (usd("0"), usd("0.001")));
    // A quarter of a second before the tick ends the next one is reserved.
    world.clock.advance(750);
    let state = world.until(|state| of(state, EPOCH).is_some_and(|epoch| epoch.totals.run_ms == 750)).await;
    let epoch = of(&state, EPOCH).expect("the epoch");
    assert_eq!((epoch.spent_usd, epoch.held_usd), (usd("0.00075"), usd("0.00125")));
    let closed = world.close(EPOCH).await;
    let last = closed.reports.last().expect("a closing report");
    assert_eq!(last.totals.compute_usd, usd("0.00075"), "what did not run is not charged");
}

#[tokio::test]
async fn an_epoch_whose_next_tick_does_not_fit_is_exhausted_until_its_limit_rises() {
    let world = paid("0.0025").await;
    world.clock.advance(1_750);
    let reported =
        |epoch: &EpochState| epoch.exhausted && epoch.report.is_some_and(|report| report.exhausted);
    let state = world.until(|state| of(state, EPOCH).is_some_and(reported)).await;
    let epoch = of(&state, EPOCH).expect("the epoch");
    assert_eq!(epoch.spent_usd, usd("0.00175"));
    assert!(epoch.spent_usd.plus(epoch.held_usd) <= epoch.limit_usd);
    // The node freezes it in time that is paid for.
    world.clock.advance(100);
    world.stand(Mode::Frozen).await;
    world.clock.advance(5_000);
    let report = epoch.report.expect("a report");
    world.acknowledge(EPOCH, report.seq).await.expect("accepted");
    world.limit(EPOCH, usd("0.01")).await;
    let fits = |epoch: &EpochState| !epoch.exhausted && epoch.report.is_some_and(|report| !report.exhausted);
    world.until(|state| of(state, EPOCH).is_some_and(fits)).await;
    world.stand(Mode::Running).await;
    let epoch = world.settled(EPOCH).await;
    assert_eq!((epoch.totals.run_ms, epoch.totals.frozen_ms), (1_850, 5_000));
    assert_eq!(epoch.totals.compute_usd, usd("0.00185"));
}

#[tokio::test]
async fn time_after_the_lease_is_frozen_time() {
    let world = paid("1").await;
    world.clock.advance(1_000_000 + 500);
    world.lease(EPOCH, 10_000).await.expect("a lease");
    let epoch = world.settled(EPOCH).await;
    assert_eq!((epoch.totals.run_ms, epoch.totals.frozen_ms), (1_000_000, 500));
}

/// H-81
#[tokio::test]
async fn grace_is_charged_to_the_wind_down_and_no_further_than_the_reserve() {
    let world = paid("1").await;
    world.stand(Mode::Frozen).await;
    world.clock.advance(1_000);
    world.stand(Mode::WindingDown).await;
    world.clock.advance(2_000);
    let state =
        world.until(|state| of(state, EPOCH).is_some_and(|epoch| epoch.totals.frozen_ms == 3_000)).await;
    // Two of the three seconds, at $0.0001 each.
    assert_eq!(of(&state, EPOCH).expect("the epoch").totals.wind_down_usd, usd("0.0002"));
    // Grace is 60 s: what comes after is recorded and not charged.
    world.clock.advance(100_000);
    let closed = world.close(EPOCH).await;
    let totals = closed.reports.last().expect("a closing report").totals;
    assert_eq!((totals.frozen_ms, totals.wind_down_usd), (103_000, usd("0.006")));
    assert_eq!(totals.spendable(), usd("0"));
}

#[tokio::test]
async fn compute_goes_on_while_the_gateway_is_away_if_the_agent_did() {
    let mut world = paid("1").await;
    world.clock.advance(400);
    world.stop().await;
    world.clock.advance(5_000);
    world.restart().await;
    // Nobody has said yet that it is alive.
    assert_eq!(world.settled(EPOCH).await.totals.run_ms, 0);
    world.admit(EPOCH, usd("1")).await.expect("adopted");
    let epoch = world.settled(EPOCH).await;
    assert_eq!((epoch.totals.run_ms, epoch.totals.compute_usd), (5_400, usd("0.0054")));
}

/// H-80
#[tokio::test]
async fn compute_ends_with_the_last_proof_of_life() {
    let world = paid("1").await;
    let died = world.clock.boot_ms() + 300;
    world.clock.advance(700);
    let close = handoff_gateway::control::Close {
        destination: world.key(),
        epoch: EPOCH,
        at_boot_ms: Some(died),
        wait_ms: 10_000,
    };
    let closed = world.client.ask(&close).await.expect("closed");
    assert_eq!(closed.reports.last().map(|report| report.totals.run_ms), Some(300));
}

/// H-80: the sandbox ran while no gateway did, and ended before one admitted it again.
#[tokio::test]
async fn a_restart_makes_no_compute_free() {
    let mut world = paid("1").await;
    world.clock.advance(400);
    world.stop().await;
    world.clock.advance(5_000);
    let died = world.clock.boot_ms();
    world.clock.advance(9_000);
    world.restart().await;
    let close = handoff_gateway::control::Close {
        destination: world.key(),
        epoch: EPOCH,
        at_boot_ms: Some(died),
        wait_ms: 10_000,
    };
    let closed = world.client.ask(&close).await.expect("closed");
    let last = closed.reports.last().expect("a closing report").totals;
    assert_eq!((last.run_ms, last.compute_usd), (5_400, usd("0.0054")));
    // Said again, nothing is counted again.
    let again = world.client.ask(&close).await.expect("closed");
    assert_eq!(again.reports.last().map(|report| report.totals), Some(last));
}

/// H-80: what no one has seen alive is not charged.
#[tokio::test]
async fn without_a_proof_of_life_a_restarted_gateway_charges_nothing_more() {
    let mut world = paid("1").await;
    world.clock.advance(750);
    world.until(|state| of(state, EPOCH).is_some_and(|epoch| epoch.totals.run_ms == 750)).await;
    world.stop().await;
    world.clock.advance(5_000);
    world.restart().await;
    let closed = world.close(EPOCH).await;
    assert_eq!(closed.reports.last().map(|report| report.totals.run_ms), Some(750));
}

#[tokio::test]
async fn calls_leave_the_next_tick_to_the_agent_that_waits_for_them() {
    let mut world = paid("0.0132").await;
    let door = world.door();
    let text = crate::world::body(Some(2000), false, 200);
    let calling = tokio::spawn(async move { door.post(crate::world::CHAT, &text).await });
    // $0.0132 less two ticks of $0.001, less 200 bytes of input, at $10 per million tokens.
    let asked = world.upstream.asked().await;
    assert_eq!(asked.json()["max_tokens"], 1100);
    world.clock.advance(760);
    let state = world.until(|state| of(state, EPOCH).is_some_and(|epoch| epoch.totals.run_ms == 760)).await;
    assert!(!of(&state, EPOCH).expect("the epoch").exhausted);
    world.clock.advance(1_000);
    let reported = |epoch: &EpochState| epoch.exhausted && epoch.report.is_some();
    let state = world.until(|state| of(state, EPOCH).is_some_and(reported)).await;
    // Exhausted for the node, but not reported so: the open call may give money back.
    let report = of(&state, EPOCH).expect("the epoch").report.expect("news");
    assert!(!report.exhausted);
    asked.used(1, 1).await;
    calling.await.expect("an answer");
    world.until(|state| of(state, EPOCH).is_some_and(|epoch| !epoch.exhausted)).await;
}
