//! A live session moves on: its holder stops, hands in the final for its successor, and ends when that has claimed;
//! or goes on when the successor comes to nothing.

use handoff_protocol::listing::ViewQuery;
use handoff_protocol::request::{
    Activate, IssueToken, Operation, Provision, Push, Refresh, Stage, TransferView,
};
use handoff_protocol::{Status, TransferId};

use crate::world::{PATIENCE, World};

/// A session that has moved once, and runs.
async fn moved() -> (World, TransferView) {
    let world = World::new();
    let moving = world.start(&["move", "--budget", "5.00"]);
    world.expect_success(moving, "the move");
    let view = world.wait_for(&[Status::Active]).await;
    (world, view)
}

fn token(transfer: TransferId, operation: Operation) -> IssueToken {
    IssueToken { transfer_id: transfer, operation, ttl_ms: None, max_budget_usd: None, tier: None }
}

/// A successor of the live transfer, provisioned, that has got the holder's final.
async fn successor_with_final(world: &World, live: &TransferView) -> TransferId {
    let client = world.client();
    let stage = Stage {
        request_id: None,
        session_id: Some(live.session),
        expected_epoch: Some(live.epoch),
        snapshot: None,
        input: None,
        source_host: None,
        is_final: false,
        abandon_source: false,
        labels: Default::default(),
    };
    let staged = client.stage(stage).await.expect("staged");
    let transfer = staged.transfer_id;
    let issued = client.issue_token(token(transfer, Operation::ProvisionRuntime)).await.expect("issued");
    let provision = Provision {
        request_id: None,
        token: Some(issued.token),
        tier: handoff_protocol::Tier::defaults()[0].name.clone(),
        budget_usd: "5.00".parse().expect("an amount"),
        carve: false,
        node_id: None,
    };
    client.provision(transfer, provision).await.expect("provisioned");
    let wanted = Refresh {
        request_id: None,
        expected_epoch: Some(live.epoch),
        snapshot: None,
        input: None,
        is_final: true,
        incarnation: None,
    };
    client.refresh(transfer, wanted).await.expect("asked for");
    let given = async {
        while !client.transfer(transfer, ViewQuery::default()).await.expect("it is there").is_final {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, given).await.expect("the holder gives its final");
    transfer
}

/// H-71
#[tokio::test]
async fn a_live_session_moves_on_and_its_former_destination_is_removed() {
    let (world, live) = moved().await;
    let transfer = successor_with_final(&world, &live).await;
    let client = world.client();
    client.push(transfer, Push::default()).await.expect("pushed");
    let issued = client.issue_token(token(transfer, Operation::Activate)).await.expect("issued");
    let activate = Activate { token: Some(issued.token), ..Activate::default() };
    client.activate(transfer, activate).await.expect("activated");
    world.until("the former destination is removed", || !world.destination(live.transfer).exists());
    world.conclude(transfer, 3).await;
}

/// H-71
#[tokio::test]
async fn a_holder_whose_successor_comes_to_nothing_goes_on() {
    let (world, live) = moved().await;
    let transfer = successor_with_final(&world, &live).await;
    world.terminate(transfer).await;
    world.conclude(live.transfer, 2).await;
}

/// The node dies while the holder stands still for its successor: the next one lets it go on where nobody waits.
#[tokio::test]
async fn a_holder_that_stands_still_is_adopted_and_goes_on() {
    let (world, live) = moved().await;
    let transfer = successor_with_final(&world, &live).await;
    world.kill_role("node");
    world.terminate(transfer).await;
    world.conclude(live.transfer, 2).await;
}
