//! Provisioning and activating without a token: a person or a policy says yes, and only to what was asked.

use handoff_client::Client;
use handoff_protocol::request::{Activate, ApprovalView, Operation, Provision, TransferView};
use handoff_protocol::{ErrorCode, Problem, Status, TransferId};
use handoff_service::AutoApproval;
use handoff_testkit::clock::ManualClock;

use crate::world::{World, amount, provision, refused};

async fn asked(client: &Client, transfer: TransferId) -> Problem {
    let problem = client.provision(transfer, provision("1")).await.expect_err("nobody approved").problem();
    assert_eq!(problem.code, ErrorCode::AuthorizationRequired);
    problem
}

async fn only_approval(world: &World) -> ApprovalView {
    let mut page = world.client.approvals().await.expect("a page").approvals;
    assert_eq!(page.len(), 1);
    page.remove(0)
}

/// H-27
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_person_approves_and_the_same_call_goes_through() {
    let world = World::new().await;
    let node = world.node(1).await;
    let caller = world.client.clone().in_role("caller");
    let transfer = world.stage(true).await.transfer_id;
    let problem = asked(&caller, transfer).await;
    let approval = only_approval(&world).await;
    assert!(problem.hint.contains(&format!("handoff approve {}", approval.approval_id)), "{}", problem.hint);
    assert!(problem.hint.contains(&approval.expires_at.to_string()));
    assert_eq!((approval.transfer_id, approval.operation), (transfer, Operation::ProvisionRuntime));
    assert_eq!(
        (approval.subject["tier"].as_str(), approval.subject["budget_usd"].as_str()),
        ("sandbox-small", "1.00")
    );
    asked(&caller, transfer).await;
    assert_eq!(
        only_approval(&world).await.approval_id,
        approval.approval_id,
        "asking again asks nobody anew"
    );

    assert_eq!(refused(caller.decide(approval.approval_id, true).await), ErrorCode::Forbidden);
    let decided = world.client.decide(approval.approval_id, true).await.expect("an orchestrator decides");
    assert_eq!(decided.approved, Some(true));
    let request_id = Some("provision-it".parse().expect("an id"));
    let body = || Provision { request_id: request_id.clone(), ..provision("1") };
    let view = caller.provision(transfer, body()).await.expect("approved");
    assert_eq!(view.status, Status::Provisioned);
    assert!(world.client.approvals().await.expect("a page").approvals.is_empty(), "it is used up");
    let again = caller.provision(transfer, body()).await.expect("the same answer");
    assert_eq!(again.version, view.version);

    world.push(transfer, &node).await;
    assert_eq!(
        refused(caller.activate(transfer, Activate::default()).await),
        ErrorCode::AuthorizationRequired
    );
    let approval = only_approval(&world).await;
    assert_eq!(approval.subject["digest"], view.snapshot.to_string());
    world.client.decide(approval.approval_id, true).await.expect("decided");
    let activated = caller.activate(transfer, Activate::default());
    let (activated, _) = tokio::join!(activated, node.claim(transfer));
    assert_eq!(activated.expect("approved").status, Status::Active);

    let rows = world.ledger.audit(handoff_service::DEFAULT_PROJECT, transfer, 0, 100).await.expect("rows");
    let count = |kind: &str| rows.iter().filter(|row| row.kind == kind).count();
    let counts = ["approval_opened", "approval_decided", "token_minted", "token_spent", "refused"].map(count);
    assert_eq!(counts, [2, 2, 2, 2, 0]);
    world.stop().await;
}

/// H-27
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_yes_is_for_these_figures_and_a_no_stands() {
    let world = World::new().await;
    world.node(1).await;
    let transfer = world.stage(true).await.transfer_id;
    asked(&world.client, transfer).await;
    let approval = only_approval(&world).await.approval_id;
    world.client.decide(approval, true).await.expect("decided");
    for other in [
        Provision { tier: "sandbox-medium".into(), ..provision("1") },
        provision("2"),
        Provision { node_id: Some(handoff_protocol::NodeId::from_u128(1)), ..provision("1") },
    ] {
        let answer = world.client.provision(transfer, other).await;
        assert_eq!(refused(answer), ErrorCode::AuthorizationRequired);
    }
    let withdrawn = world.client.decide(approval, false).await.expect("decided again");
    assert_eq!(withdrawn.approved, Some(false));
    let problem = world.client.provision(transfer, provision("1")).await.expect_err("declined").problem();
    assert_eq!((problem.code, problem.transfer_id), (ErrorCode::Forbidden, Some(transfer)));
    assert_eq!(world.status(transfer).await, Status::Staged);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_approval_runs_out_decided_or_not() {
    let world = World::new().await;
    world.node(1).await;
    let transfer = world.stage(true).await.transfer_id;
    asked(&world.client, transfer).await;
    let first = only_approval(&world).await.approval_id;
    world.clock.advance(15 * 60_000);
    assert_eq!(refused(world.client.decide(first, true).await), ErrorCode::NotFound);
    asked(&world.client, transfer).await;
    let second = only_approval(&world).await.approval_id;
    assert_ne!(first, second);
    world.client.decide(second, true).await.expect("decided");
    world.clock.advance(5 * 60_000);
    asked(&world.client, transfer).await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_is_asked_for_what_cannot_be_done() {
    let world = World::new().await;
    let transfer = world.stage(true).await.transfer_id;
    let unknown = Provision { tier: "gigantic".into(), ..provision("1") };
    assert_eq!(refused(world.client.provision(transfer, unknown).await), ErrorCode::TierUnknown);
    assert_eq!(refused(world.client.provision(transfer, provision("0")).await), ErrorCode::BudgetTooSmall);
    assert_eq!(refused(world.client.activate(transfer, Activate::default()).await), ErrorCode::WrongStatus);
    let source = world.client.clone().in_role("source");
    assert_eq!(refused(source.provision(transfer, provision("1")).await), ErrorCode::Forbidden);
    assert!(world.client.approvals().await.expect("a page").approvals.is_empty());
    world.stop().await;
}

/// H-27
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_policy_covers_whom_it_names_up_to_its_amount() {
    let world = World::with(|config| {
        config.approvals.principals.insert("owner".to_owned(), AutoApproval::UpTo(amount("5")));
    })
    .await;
    world.node(1).await;
    let within = world.stage(true).await.transfer_id;
    let view: TransferView = world.client.provision(within, provision("5")).await.expect("covered");
    assert_eq!(view.status, Status::Provisioned);
    let beyond = world.stage(true).await.transfer_id;
    let answer = world.client.provision(beyond, provision("5.01")).await;
    assert_eq!(refused(answer), ErrorCode::AuthorizationRequired);
    world.stop().await;
}

/// Two people decide at the same time: one decision follows the other, and no second token is minted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_deciders_do_not_overwrite_each_other() {
    // On disk, so that the rows of both are under way at the same time.
    let home = std::sync::Arc::new(tempfile::tempdir().expect("a directory"));
    let world = World::on_disk(home, ManualClock::default()).await;
    for round in 0..12 {
        let transfer = world.stage(true).await.transfer_id;
        asked(&world.client, transfer).await;
        let mut open = world.client.approvals().await.expect("a page").approvals;
        open.retain(|approval| approval.transfer_id == transfer);
        let approval = open[0].approval_id;
        let second = round % 2 == 0;
        let (one, two) =
            tokio::join!(world.client.decide(approval, true), world.client.decide(approval, second));
        one.expect("decided");
        two.expect("decided");
        let project = handoff_service::DEFAULT_PROJECT;
        let rows = world.ledger.audit(project, transfer, 0, 100).await.expect("rows");
        let minted = rows.iter().filter(|row| row.kind == "token_minted").count();
        assert_eq!(minted, 1, "one yes, one token");
        let last = rows.iter().rfind(|row| row.kind == "approval_decided").expect("decided");
        let now = world.client.approvals().await.expect("a page").approvals;
        let now = now.iter().find(|known| known.approval_id == approval).expect("still there");
        assert_eq!(now.approved, Some(last.detail["decision"] == "approved"), "the last row is what counts");
    }
    world.stop().await;
}

/// The same call made many times at once asks once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_call_made_at_once_asks_once() {
    let world = World::new().await;
    let transfer = world.stage(true).await.transfer_id;
    let calls = (0..16).map(|_| {
        let client = world.client.clone();
        tokio::spawn(async move { asked(&client, transfer).await })
    });
    for call in calls.collect::<Vec<_>>() {
        call.await.expect("no panic");
    }
    only_approval(&world).await;
    world.stop().await;
}
