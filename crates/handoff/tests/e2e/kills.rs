//! SIGKILL to the control plane, the node and the destination's agent, each once before and once after the
//! claim: the session goes on in exactly one place, and the books balance. A full run repeats each, because the
//! kill never falls on the same instruction twice.

use handoff_protocol::Status;
use handoff_protocol::listing::TransferQuery;
use handoff_testkit::rounds::rounds;

use crate::world::World;

const BEFORE: &[Status] = &[Status::Provisioned, Status::Pushed];
const AFTER: &[Status] = &[Status::Active];

/// Kills a role while a move is under way, or just after it.
async fn kill_role_when(role: &str, statuses: &[Status]) {
    for _ in 0..rounds() {
        let world = World::new();
        let moving = world.start(&["move", "--budget", "5.00"]);
        world.wait_for(statuses).await;
        world.kill_role(role);
        world.expect_success(moving, "the move");
        let view = world.wait_for(AFTER).await;
        world.conclude(view.transfer, 2).await;
    }
}

#[tokio::test]
async fn the_control_plane_dies_before_the_claim() {
    kill_role_when("serve", BEFORE).await;
}

#[tokio::test]
async fn the_control_plane_dies_after_the_claim() {
    kill_role_when("serve", AFTER).await;
}

#[tokio::test]
async fn the_node_dies_before_the_claim() {
    kill_role_when("node", BEFORE).await;
}

#[tokio::test]
async fn the_node_dies_after_the_claim() {
    kill_role_when("node", AFTER).await;
}

#[tokio::test]
async fn the_gateway_dies_after_the_claim() {
    kill_role_when("gateway", AFTER).await;
}

#[tokio::test]
async fn the_destination_s_agent_dies_before_the_claim() {
    for _ in 0..rounds() {
        let world = World::new();
        let moving = world.start(&["move", "--budget", "5.00"]);
        let view = world.wait_for(BEFORE).await;
        world.kill_destination_agent(view.transfer);
        world.expect_success(moving, "the move");
        world.conclude(view.transfer, 2).await;
    }
}

#[tokio::test]
async fn the_destination_s_agent_dies_after_the_claim() {
    for _ in 0..rounds() {
        let world = World::new();
        let moving = world.start(&["move", "--budget", "5.00"]);
        let view = world.wait_for(AFTER).await;
        world.expect_success(moving, "the move");
        world.kill_destination_agent(view.transfer);
        world.conclude(view.transfer, 2).await;
    }
}

/// Kills the move itself, and has another one finish it.
async fn kill_move_when(statuses: &[Status]) {
    for _ in 0..rounds() {
        let world = World::new();
        let mut moving = world.start(&["move", "--budget", "5.00"]);
        world.wait_for(statuses).await;
        moving.kill().expect("ours");
        moving.wait().expect("ours");
        let resumed = world.start(&["move", "--resume"]);
        world.expect_success(resumed, "the resumed move");
        let view = world.wait_for(AFTER).await;
        world.conclude(view.transfer, 2).await;
    }
}

#[tokio::test]
async fn the_move_dies_before_the_claim_and_is_resumed() {
    kill_move_when(BEFORE).await;
}

#[tokio::test]
async fn the_move_dies_after_the_claim_and_is_resumed() {
    kill_move_when(AFTER).await;
}

/// H-6: however many movers there are, the session is one.
#[tokio::test]
async fn of_three_moves_at_once_one_moves_the_session() {
    for _ in 0..rounds() {
        let world = World::new();
        let movers: Vec<_> = (0..3).map(|_| world.start(&["move", "--budget", "5.00"])).collect();
        let ended: Vec<_> =
            movers.into_iter().map(|mover| mover.wait_with_output().expect("it ends")).collect();
        let view = world.wait_for(AFTER).await;
        assert!(ended.iter().any(|mover| mover.status.success()), "{ended:?}");
        let active =
            world.client().transfers(&TransferQuery::default().in_status(AFTER)).await.expect("a list");
        assert_eq!(active.transfers.len(), 1, "{:?}", active.transfers);
        world.conclude(view.transfer, 2).await;
    }
}

/// The commit of `terminated` is all that has to happen: the next reconcile removes the rest.
#[tokio::test]
async fn case_s35_the_control_plane_dies_between_terminated_and_the_removal() {
    let world = World::new();
    let moving = world.start(&["move", "--budget", "5.00"]);
    world.expect_success(moving, "the move");
    let view = world.wait_for(AFTER).await;
    world.terminate(view.transfer).await;
    world.kill_role("serve");
    world.closes(view.transfer).await;
}

/// Terminated while its destination is being made: nothing of it stays, and the source goes on.
#[tokio::test]
async fn case_s35_terminated_while_provisioning() {
    let world = World::new();
    let mut moving = world.start(&["move", "--budget", "5.00"]);
    let view = world.wait_for(&[Status::Provisioned]).await;
    moving.kill().expect("ours");
    moving.wait().expect("ours");
    world.terminate(view.transfer).await;
    world.closes(view.transfer).await;
}
