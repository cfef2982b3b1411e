//! What ends because time passes.

use handoff_client::Client;
use handoff_core::Policy;
use handoff_protocol::node::{Usage, UsageCommand};
use handoff_protocol::request::{Activate, Operation, Raise, Reaped};
use handoff_protocol::{ErrorCode, Status, TransferId};
use handoff_testkit::wait;

use crate::world::{Node, PATIENCE, World, amount, refused, usage};

async fn reaped(client: &Client) -> Reaped {
    client.reap(Some("a test".to_owned())).await.expect("a round")
}

/// An active transfer whose budget is used up.
async fn insolvent(world: &World, node: &Node) -> TransferId {
    let (view, claimed) = world.active(node).await;
    let budget = view.budget.expect("provisioned");
    let spendable = budget.allocated_usd.minus(budget.reserve_usd).to_string();
    let mut seq = 1;
    loop {
        let report = Usage { exhausted: true, ..usage(claimed.epoch, seq, &spendable) };
        match node.client.usage(view.transfer, &report).await.expect("counts").command {
            UsageCommand::Insolvent => return view.transfer,
            UsageCommand::Continue | UsageCommand::Wait | UsageCommand::Terminate => seq += 1,
        }
        assert!(seq < 10, "it never becomes insolvent");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_never_activated_expires_and_not_a_moment_earlier() {
    let world = World::new().await;
    let transfer = world.stage(true).await.transfer_id;
    world.clock.advance(world.policy.time_to_live_ms - 1);
    assert_eq!(reaped(&world.client).await, Reaped::default());
    world.clock.advance(1);
    assert_eq!(reaped(&world.client).await, Reaped { expired: 1, ..Reaped::default() });
    assert_eq!(reaped(&world.client).await, Reaped::default());
    let view = world.client.transfer(transfer, Default::default()).await.expect("there");
    assert_eq!((view.status, view.reason.as_deref()), (Status::Expired, Some("ttl_expired")));
    assert!(view.source_must_keep_running);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_authorisation_past_its_deadline_is_withdrawn_even_if_its_caller_is_gone() {
    let world = World::new().await;
    let node = world.node(1).await;
    let transfer = world.pushed(&node).await.transfer;
    let token = Some(world.token(transfer, Operation::Activate).await);
    let activate = tokio::spawn({
        let client = world.client.clone();
        let body = Activate { token, wait_ms: Some(30_000), request_id: None };
        async move { refused(client.activate(transfer, body).await) }
    });
    node.wait_for(transfer, |entry| entry.authorization.is_some()).await;
    world.clock.advance(world.policy.authorization_ms);
    assert_eq!(reaped(&world.client).await.withdrawn, 1);
    assert_eq!(activate.await.expect("no panic"), ErrorCode::NotResumed);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn grace_ends_in_termination_unless_the_budget_is_raised() {
    let world = World::new().await;
    let node = world.node(1).await;
    let transfer = insolvent(&world, &node).await;
    let view = world.client.transfer(transfer, Default::default()).await.expect("there");
    assert_eq!(view.status, Status::Insolvent);
    assert_eq!(view.grace_until, Some(world.clock.now().plus_ms(world.policy.grace_ms)));
    world.clock.advance(world.policy.grace_ms - 1);
    assert_eq!(reaped(&world.client).await.terminated, 0);
    let raise = Raise { request_id: None, budget_usd: amount("3") };
    let view = world.client.raise(transfer, raise).await.expect("raised");
    assert_eq!((view.status, view.grace_until), (Status::Active, None));
    world.clock.advance(1);
    assert_eq!(reaped(&world.client).await.terminated, 0, "a raise that comes first wins");

    let transfer = insolvent(&world, &node).await;
    world.clock.advance(world.policy.grace_ms);
    assert_eq!(reaped(&world.client).await.terminated, 1);
    let view = world.client.transfer(transfer, Default::default()).await.expect("there");
    assert_eq!((view.status, view.reason.as_deref()), (Status::Terminated, Some("grace_period_expired")));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_nodes_transfers_go_to_another_one() {
    let world = World::new().await;
    let (one, two) = (world.node(1).await, world.node(2).await);
    let transfer = world.stage(true).await.transfer_id;
    let view = world.provision(transfer, "1").await;
    let assigned = view.destination.expect("provisioned").node_id;
    let (silent, heard) = if assigned == one.id { (one, two) } else { (two, one) };
    world.clock.advance(world.policy.reassign_after_ms + 1);
    heard.desired().await;
    assert_eq!(reaped(&world.client).await.reassigned, 1);
    let entry = heard.wait_for(transfer, |_| true).await;
    assert_eq!(entry.generation, 2);
    let old = silent.desired().await.destinations.remove(0);
    assert_eq!((old.generation, old.want), (1, handoff_protocol::node::Want::Gone));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_reaper_wakes_when_something_falls_due_and_not_at_its_interval() {
    let policy = Policy { time_to_live_ms: 300, ..Policy::default() };
    let world = World::in_real_time(policy).await;
    let transfer = world.stage(true).await.transfer_id;
    let expired = async || (world.status(transfer).await == Status::Expired).then_some(());
    wait::until("it expires by itself", PATIENCE, expired).await;
    world.stop().await;
}
