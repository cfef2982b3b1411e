//! Transfer tokens over HTTP: what each is good for, and everything that is not one.

use handoff_client::ClientError;
use handoff_core::token::TokenClaims;
use handoff_protocol::request::{Activate, IssueToken, Operation, Provision, TokenText, TransferView};
use handoff_protocol::{ErrorCode, Status, Timestamp, TokenId, TransferId};
use handoff_service::TokenKeys;

use crate::world::{World, amount, keys, provision, refused};

/// Claims for provisioning, good from a minute ago for a minute from now.
fn claims(world: &World, transfer: TransferId, number: u128) -> TokenClaims {
    let now = world.clock.now().unix_ms();
    TokenClaims {
        id: TokenId::from_u128(number),
        transfer,
        operation: Operation::ProvisionRuntime,
        issued_at: Timestamp::from_unix_ms(now - 60_000),
        expires_at: Timestamp::from_unix_ms(now + 60_000),
        max_budget: None,
        tier: None,
    }
}

async fn provision_with(
    world: &World,
    transfer: TransferId,
    token: TokenText,
) -> Result<TransferView, ClientError> {
    world.client.provision(transfer, Provision { token: Some(token), ..provision("1") }).await
}

/// H-22
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_s17_one_leeway_of_five_seconds_over_http() {
    let world = World::new().await;
    world.node(1).await;
    let now = world.clock.now().unix_ms();
    let seconds = |seconds: i64| Timestamp::from_unix_ms(now + seconds * 1000);
    let refusals = [(-300, -30), (-300, -61), (30, 300), (6, 300), (-300, -6)];
    for (number, (issued, expires)) in (1..).zip(refusals) {
        let transfer = world.stage(true).await.transfer_id;
        let claims = TokenClaims {
            issued_at: seconds(issued),
            expires_at: seconds(expires),
            ..claims(&world, transfer, number)
        };
        let answer = provision_with(&world, transfer, keys().mint(&claims)).await;
        assert_eq!(refused(answer), ErrorCode::TokenExpired, "iat {issued} s, exp {expires} s");
        assert_eq!(world.status(transfer).await, Status::Staged);
    }
    for (number, (issued, expires)) in (10..).zip([(-300, -1), (-300, -5), (5, 300)]) {
        let transfer = world.stage(true).await.transfer_id;
        let claims = TokenClaims {
            issued_at: seconds(issued),
            expires_at: seconds(expires),
            ..claims(&world, transfer, number)
        };
        let answer = provision_with(&world, transfer, keys().mint(&claims)).await;
        assert!(answer.is_ok(), "iat {issued} s, exp {expires} s: {answer:?}");
    }
    world.stop().await;
}

/// H-10
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_runs_out_by_the_stores_clock() {
    let world = World::new().await;
    world.node(1).await;
    let transfer = world.stage(true).await.transfer_id;
    let token = world.token(transfer, Operation::ProvisionRuntime).await;
    world.clock.advance(5 * 60_000 + 6_000);
    assert_eq!(refused(provision_with(&world, transfer, token).await), ErrorCode::TokenExpired);
    world.stop().await;
}

/// H-21, H-24
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_is_for_one_transfer_one_operation_and_no_more_than_it_says() {
    let world = World::new().await;
    world.node(1).await;
    let (transfer, other) = (world.stage(true).await.transfer_id, world.stage(true).await.transfer_id);
    let of_other = world.token(other, Operation::ProvisionRuntime).await;
    assert_eq!(refused(provision_with(&world, transfer, of_other).await), ErrorCode::TokenTransfer);
    let to_activate = world.token(transfer, Operation::Activate).await;
    assert_eq!(refused(provision_with(&world, transfer, to_activate).await), ErrorCode::TokenScope);
    let issue = |max_budget, tier: Option<&str>| {
        let body = IssueToken {
            transfer_id: transfer,
            operation: Operation::ProvisionRuntime,
            ttl_ms: None,
            max_budget_usd: max_budget,
            tier: tier.map(Into::into),
        };
        let client = world.client.clone();
        async move { client.issue_token(body).await.expect("minted").token }
    };
    let small = issue(Some(amount("0.99")), None).await;
    assert_eq!(refused(provision_with(&world, transfer, small).await), ErrorCode::TokenScope);
    let large = issue(None, Some("sandbox-large")).await;
    assert_eq!(refused(provision_with(&world, transfer, large).await), ErrorCode::TokenScope);
    let exact = issue(Some(amount("1")), Some("sandbox-small")).await;
    assert!(provision_with(&world, transfer, exact).await.is_ok());
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_forged_malformed_or_unsigned_token_is_invalid_and_says_no_more() {
    let world = World::new().await;
    world.node(1).await;
    let transfer = world.stage(true).await.transfer_id;
    let good = world.token(transfer, Operation::ProvisionRuntime).await;
    let forger = TokenKeys::new(vec![8; 32].into(), []).expect("long enough");
    let parts: Vec<&str> = good.expose().split('.').collect();
    // {"alg":"none","typ":"JWT"}
    let none = format!("eyJhbGciOiJub25lIiwidHlwIjoiSldUIn0.{}.", parts[1]);
    let own_header = format!("{}.{}.", parts[0], parts[1]);
    for bad in [
        forger.mint(&claims(&world, transfer, 1)).expose().to_owned(),
        none,
        own_header,
        String::new(),
        "a.b.c".to_owned(),
        "x".repeat(100_000),
        format!("{} ", good.expose()),
    ] {
        let shown: String = bad.chars().take(60).collect();
        let error = provision_with(&world, transfer, TokenText::new(bad)).await.expect_err("no token");
        let problem = error.problem();
        assert_eq!(problem.code, ErrorCode::TokenInvalid, "{shown}");
        assert_eq!(problem.message, "the transfer token is malformed, forged or of another algorithm");
    }
    assert_eq!(world.status(transfer).await, Status::Staged);
    assert!(provision_with(&world, transfer, good).await.is_ok());
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_is_spent_once_and_only_by_what_is_done() {
    let world = World::new().await;
    let transfer = world.stage(true).await.transfer_id;
    let token = world.token(transfer, Operation::ProvisionRuntime).await;
    let no_node = provision_with(&world, transfer, token.clone()).await;
    assert_eq!(refused(no_node), ErrorCode::NoNode, "a refusal does not spend it");
    world.node(1).await;
    let racing = (0..8).map(|_| {
        let (client, token) = (world.client.clone(), token.clone());
        tokio::spawn(async move {
            client.provision(transfer, Provision { token: Some(token), ..provision("1") }).await.is_ok()
        })
    });
    let mut winners = 0;
    for racer in racing.collect::<Vec<_>>() {
        winners += usize::from(racer.await.expect("no panic"));
    }
    assert_eq!(winners, 1);

    // A pushed transfer whose destination did not come: the token was spent, and a replay is refused.
    let node = world.node(2).await;
    let pushed = world.pushed(&node).await.transfer;
    let token = Some(world.token(pushed, Operation::Activate).await);
    let activate = |wait_ms| {
        let body = Activate { token: token.clone(), wait_ms: Some(wait_ms), request_id: None };
        world.client.activate(pushed, body)
    };
    assert_eq!(refused(activate(1).await), ErrorCode::NotResumed);
    assert_eq!(refused(activate(1).await), ErrorCode::TokenUsed);
    world.stop().await;
}

/// H-17
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_accepted_request_is_answered_again_whatever_became_of_its_token() {
    let world = World::new().await;
    world.node(1).await;
    let transfer = world.stage(true).await.transfer_id;
    let token = world.token(transfer, Operation::ProvisionRuntime).await;
    let body = |token: Option<TokenText>| Provision {
        request_id: Some("once".parse().expect("an id")),
        token,
        ..provision("1")
    };
    world.client.provision(transfer, body(Some(token.clone()))).await.expect("provisioned");
    world.clock.advance(10 * 60_000);
    for token in [Some(token), None, Some(TokenText::new("rubbish".to_owned()))] {
        let view = world.client.provision(transfer, body(token)).await.expect("answered again");
        assert_eq!(view.status, Status::Provisioned);
    }
    let other = Provision { budget_usd: amount("2"), ..body(None) };
    assert_eq!(refused(world.client.provision(transfer, other).await), ErrorCode::IdempotencyConflict);
    world.stop().await;
}

/// H-25, H-28
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_orchestrators_mint_and_the_record_never_holds_the_text() {
    let world = World::new().await;
    let transfer = world.stage(true).await.transfer_id;
    let body = |ttl_ms| IssueToken {
        transfer_id: transfer,
        operation: Operation::Activate,
        ttl_ms,
        max_budget_usd: None,
        tier: None,
    };
    for role in ["source", "caller", "viewer"] {
        let minted = world.client.clone().in_role(role).issue_token(body(None)).await;
        assert_eq!(refused(minted), ErrorCode::Forbidden, "{role}");
    }
    for ttl_ms in [0, 60 * 60_000 + 1, u64::MAX] {
        let minted = world.client.issue_token(body(Some(ttl_ms))).await;
        assert_eq!(refused(minted), ErrorCode::InvalidArgument, "{ttl_ms}");
    }
    for tier in ["gigantic", &"x".repeat(3000)] {
        let unknown = IssueToken { tier: Some(tier.into()), ..body(None) };
        let unknown = IssueToken { operation: Operation::ProvisionRuntime, ..unknown };
        assert_eq!(refused(world.client.issue_token(unknown).await), ErrorCode::TierUnknown);
    }
    let nobody = IssueToken { transfer_id: TransferId::from_u128(9), ..body(None) };
    assert_eq!(refused(world.client.issue_token(nobody).await), ErrorCode::NotFound);

    let orchestrator = world.client.clone().in_role("orchestrator");
    let issued = orchestrator.issue_token(body(Some(1_000))).await.expect("minted");
    assert_eq!(issued.expires_at, world.clock.now().plus_ms(1_000));
    let project = handoff_service::DEFAULT_PROJECT;
    let rows = world.ledger.audit(project, transfer, 0, 100).await.expect("rows");
    let minted: Vec<_> = rows.iter().filter(|row| row.kind == "token_minted").collect();
    assert_eq!(minted.len(), 1);
    assert_eq!(minted[0].detail["token_id"], issued.token_id.to_string());
    let signature = issued.token.expose().rsplit('.').next().expect("three parts").to_owned();
    assert!(!format!("{rows:?}").contains(&signature));
    world.stop().await;
}
