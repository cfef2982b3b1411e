//! What ends because time passes.

use handoff_client::Client;
use handoff_core::Policy;
use handoff_protocol::node::{Claimed, LeaseCommand, Renew, Usage, UsageCommand};
use handoff_protocol::request::{Activate, Operation, Provision, Raise, Reaped};
use handoff_protocol::{ErrorCode, Status, TransferId};
use handoff_testkit::wait;

use crate::world::{Node, PATIENCE, World, amount, incarnation, provision, refused, usage};

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

/// A transfer that node one runs and node two could take.
async fn live(world: &World) -> (TransferId, Claimed, Node, Node) {
    let (one, two) = (world.node(1).await, world.node(2).await);
    let transfer = world.stage(true).await.transfer_id;
    let token = Some(world.token(transfer, Operation::ProvisionRuntime).await);
    let body = Provision { token, node_id: Some(one.id), ..provision("1") };
    world.client.provision(transfer, body).await.expect("provisioned");
    world.push(transfer, &one).await;
    let token = Some(world.token(transfer, Operation::Activate).await);
    let activate = world.client.activate(transfer, Activate { token, ..Activate::default() });
    let (view, claimed) = tokio::join!(activate, one.claim(transfer));
    view.expect("active");
    (transfer, claimed, one, two)
}

fn renewal(claimed: &Claimed) -> Renew {
    Renew { epoch: claimed.epoch, generation: 1, incarnation: incarnation() }
}

/// H-70
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_live_transfer_goes_to_another_node_a_minute_after_its_lease() {
    let world = World::new().await;
    let (transfer, claimed, one, two) = live(&world).await;
    world.clock.advance(world.policy.lease_ms + world.policy.reassign_after_ms - 1);
    two.desired().await;
    assert_eq!(reaped(&world.client).await.reassigned, 0);
    world.clock.advance(1);
    assert_eq!(reaped(&world.client).await.reassigned, 1);
    let late = one.client.renew(transfer, &renewal(&claimed)).await;
    assert_eq!(refused(late), ErrorCode::StaleGeneration);
    assert_eq!(two.wait_for(transfer, |entry| entry.generation == 2).await.generation, 2);
    world.stop().await;
}

/// H-66, H-70: an outage inside one process. Nobody could renew, so nobody is given up when it is over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_an_outage_the_holders_come_first() {
    let (world, faulty) = World::with_faults().await;
    let (transfer, claimed, one, two) = live(&world).await;
    faulty.set_full(true);
    let renewed = one.client.renew(transfer, &renewal(&claimed)).await;
    assert_eq!(refused(renewed), ErrorCode::StorageFull);
    world.clock.advance(world.policy.lease_ms + 2 * world.policy.reassign_after_ms);
    faulty.set_full(false);
    two.desired().await;
    assert_eq!(reaped(&world.client).await.reassigned, 0, "the reaper was first, and takes nothing away");
    let renewed = one.client.renew(transfer, &renewal(&claimed)).await.expect("it goes on");
    assert_eq!(renewed.command, LeaseCommand::Run);
    world.clock.advance(world.policy.lease_ms + world.policy.reassign_after_ms);
    two.desired().await;
    assert_eq!(reaped(&world.client).await.reassigned, 1, "a minute of service later it does");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_bad_session_does_not_keep_the_others() {
    let (world, faulty) = World::with_faults().await;
    let bad = world.stage(true).await.transfer_id;
    world.clock.advance(1);
    let good = world.stage(true).await.transfer_id;
    faulty.spoil(bad);
    world.clock.advance(world.policy.time_to_live_ms);
    assert_eq!(refused(world.client.reap(None).await), ErrorCode::Internal, "and it is said");
    assert_eq!((world.status(bad).await, world.status(good).await), (Status::Staged, Status::Expired));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transfer_that_does_not_read_does_not_keep_the_others() {
    let (world, faulty) = World::with_faults().await;
    let bad = world.stage(true).await.transfer_id;
    world.clock.advance(1);
    let good = world.stage(true).await.transfer_id;
    faulty.unlist(bad);
    world.clock.advance(world.policy.time_to_live_ms);
    assert_eq!(refused(world.client.reap(None).await), ErrorCode::Internal, "and it is said");
    assert_eq!((world.status(bad).await, world.status(good).await), (Status::Staged, Status::Expired));
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
