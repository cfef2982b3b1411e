//! Everything that is refused before or by the machine: each with its code, and nothing is changed by it.

use handoff_client::Client;
use handoff_protocol::request::{Operation, Provision, Raise, Stage, Terminate};
use handoff_protocol::{ErrorCode, Status, TransferId};

use crate::raw::exchange;
use crate::world::{World, amount, minimal, provision, refused};

fn nested(levels: usize) -> String {
    let state = format!("{}{}", "[".repeat(levels), "]".repeat(levels));
    format!(r#"{{"input":{{"source_host":"h","message_history":[],"tool_state":{state}}}}}"#)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_does_not_exist_is_not_found() {
    let world = World::new().await;
    let nobody = TransferId::from_u128(42);
    assert_eq!(refused(world.client.transfer(nobody, Default::default()).await), ErrorCode::NotFound);
    assert_eq!(refused(world.client.provision(nobody, provision("1")).await), ErrorCode::NotFound);
    assert_eq!(refused(world.client.push(nobody, Default::default()).await), ErrorCode::NotFound);
    assert_eq!(refused(world.client.activate(nobody, Default::default()).await), ErrorCode::NotFound);
    let session = handoff_protocol::SessionId::from_u128(42);
    assert_eq!(refused(world.client.session(session).await), ErrorCode::NotFound);
    assert_eq!(refused(world.client.wake(session, Default::default()).await), ErrorCode::NotFound);
    let unknown = Stage { session_id: Some(session), expected_epoch: Some(1), input: None, ..minimal() };
    assert_eq!(refused(world.client.stage(unknown).await), ErrorCode::NotFound);
    for (method, path) in
        [("GET", "/"), ("GET", "/v2/transfers"), ("DELETE", "/v1/transfers"), ("POST", "/v1/nodes/x/desired")]
    {
        assert_eq!(world.raw(method, path, "", b"").await.code(), ErrorCode::NotFound, "{method} {path}");
    }
    let malformed = world.raw("GET", "/v1/transfers/xfr_1", "", b"").await;
    assert_eq!(malformed.code(), ErrorCode::InvalidArgument);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_wrong_status_names_what_was_found_and_what_is_needed() {
    let world = World::new().await;
    let transfer = world.stage(true).await.transfer_id;
    let error = world.client.push(transfer, Default::default()).await.expect_err("staged only");
    let problem = error.problem();
    assert_eq!((problem.code, problem.status), (ErrorCode::WrongStatus, Some(Status::Staged)));
    let expected = vec![Status::Provisioned, Status::Pushed];
    assert_eq!((problem.expected, problem.transfer_id), (expected, Some(transfer)));
    assert_eq!(world.status(transfer).await, Status::Staged);
    world.stop().await;
}

/// H-20
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn malformed_and_oversized_json_is_refused_and_the_server_lives() {
    let world = World::new().await;
    let before = world.stage(false).await;
    for bad in [
        "{",
        "{]",
        "nul",
        "\"text\"",
        "[]",
        "{} {}",
        "{\"input\":}",
        "\u{0}",
        "{\"labels\":{\"a\":\"1\",\"a\":\"2\"}}",
    ] {
        assert_eq!(world.post("/v1/transfers", bad).await.code(), ErrorCode::InvalidArgument, "{bad}");
    }
    let not_utf8 = world.raw("POST", "/v1/transfers", "", b"{\"source_host\":\"\xff\"}").await;
    assert_eq!(not_utf8.code(), ErrorCode::InvalidArgument);
    let not_json = world.raw("POST", "/v1/transfers", "content-type: text/plain\r\n", b"{}").await;
    assert_eq!(not_json.code(), ErrorCode::InvalidArgument);

    let large = format!(r#"{{"source_host":"{}"}}"#, "x".repeat(2 << 20));
    assert_eq!(world.post("/v1/transfers", &large).await.code(), ErrorCode::PayloadTooLarge);
    let head = "POST /v1/transfers HTTP/1.1\r\nhost: x\r\nconnection: close\r\n";
    let says_so = format!("{head}content-length: 99999999999\r\n\r\n");
    assert_eq!(exchange(&world.socket(), says_so.as_bytes()).await.code(), ErrorCode::PayloadTooLarge);
    let chunk = format!("{:x}\r\n{}\r\n", 1 << 20, " ".repeat(1 << 20));
    let says_nothing = format!("{head}transfer-encoding: chunked\r\n\r\n{}0\r\n\r\n", chunk.repeat(3));
    assert_eq!(exchange(&world.socket(), says_nothing.as_bytes()).await.code(), ErrorCode::PayloadTooLarge);

    let page = world.client.transfers(&Default::default()).await.expect("it lives");
    assert_eq!(page.transfers.len(), 1);
    assert_eq!(page.transfers[0].transfer, before.transfer_id);
    world.stop().await;
}

/// H-20
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_s15_one_depth_limit_at_every_entry() {
    let world = World::new().await;
    for levels in [127, 128] {
        let answer = world.post("/v1/transfers", &nested(levels)).await;
        assert_eq!(answer.status, 200, "{levels}: {}", answer.body);
    }
    for levels in [129, 5_000, 100_000] {
        let answer = world.post("/v1/transfers", &nested(levels)).await;
        assert_eq!(answer.code(), ErrorCode::SnapshotInvalid, "{levels}");
        assert!(answer.body.contains("nested deeper than 128 levels"), "{levels}: {}", answer.body);
    }
    let transfer = world.stage(false).await.transfer_id;
    for levels in [129, 5_000, 100_000] {
        let deep = format!(r#"{{"reason":{}{}}}"#, "[".repeat(levels), "]".repeat(levels));
        let answer = world.post(&format!("/v1/transfers/{transfer}/terminate"), &deep).await;
        assert_eq!(answer.code(), ErrorCode::InvalidArgument, "{levels}");
        assert!(answer.body.contains("nested deeper than 128 levels"), "{levels}: {}", answer.body);
        let answer = world.post(&format!("/v1/transfers/{transfer}/snapshot"), &nested(levels)).await;
        assert_eq!(answer.code(), ErrorCode::SnapshotInvalid, "{levels}");
    }
    assert_eq!(world.status(transfer).await, Status::Staged);
    world.stop().await;
}

/// H-74
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn money_that_is_no_plain_decimal_string_is_refused() {
    let world = World::new().await;
    let node = world.node(1).await;
    let (view, _) = world.active(&node).await;
    for bad in [
        "1",
        "1.5",
        "-1",
        "1e3",
        "\"1e3\"",
        "\"-1\"",
        "\"0.0000000001\"",
        "\"NaN\"",
        "\"\"",
        "\" 1\"",
        "null",
    ] {
        for (verb, field) in [("raise", "budget_usd"), ("report-usage", "cost_usd")] {
            let path = format!("/v1/transfers/{}/{verb}", view.transfer);
            let answer = world.post(&path, &format!(r#"{{"{field}":{bad}}}"#)).await;
            assert_eq!(answer.code(), ErrorCode::InvalidAmount, "{verb} {bad}");
        }
    }
    let after = world.client.transfer(view.transfer, Default::default()).await.expect("there");
    assert_eq!((after.version, after.budget), (view.version, view.budget), "nothing was changed");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tiers_fields_and_budgets_that_do_not_exist_are_refused() {
    let world = World::new().await;
    world.node(1).await;
    let transfer = world.stage(true).await.transfer_id;
    let token = world.token(transfer, Operation::ProvisionRuntime).await;
    let with = |change: fn(&mut Provision)| {
        let mut body = Provision { token: Some(token.clone()), ..provision("1") };
        change(&mut body);
        world.client.provision(transfer, body)
    };
    assert_eq!(refused(with(|body| body.tier = "gigantic".into()).await), ErrorCode::TierUnknown);
    assert_eq!(refused(with(|body| body.budget_usd = amount("0")).await), ErrorCode::BudgetTooSmall);
    assert_eq!(refused(with(|body| body.carve = true).await), ErrorCode::InvalidArgument);
    let nowhere = |body: &mut Provision| body.node_id = Some(handoff_protocol::NodeId::from_u128(9));
    assert_eq!(refused(with(nowhere).await), ErrorCode::NoNode);
    let path = format!("/v1/transfers/{transfer}/provision");
    for bad in [
        r#"{"tier":"sandbox-small","budget_usd":"1","priority":"high"}"#,
        r#"{"budget_usd":"1"}"#,
        r#"{"tier":7,"budget_usd":"1"}"#,
        r#"{"tier":"sandbox-small","budget_usd":"1","request_id":"a b"}"#,
    ] {
        assert_eq!(world.post(&path, bad).await.code(), ErrorCode::InvalidArgument, "{bad}");
    }
    let query = world.raw("GET", "/v1/transfers?colour=red", "", b"").await;
    assert_eq!(query.code(), ErrorCode::InvalidArgument);
    let status = world.raw("GET", "/v1/transfers?status=staged,paused", "", b"").await;
    assert_eq!(status.code(), ErrorCode::InvalidArgument);
    assert!(with(|_| {}).await.is_ok(), "the token was spent by none of these");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn words_that_people_write_are_short_and_their_own() {
    let world = World::new().await;
    let transfer = world.stage(false).await.transfer_id;
    for reason in ["", "  ", "a\nb", &"x".repeat(300), "grace_period_expired", "moved", "ttl_expired"] {
        let body = Terminate { request_id: None, reason: reason.to_owned() };
        assert_eq!(
            refused(world.client.terminate(transfer, body).await),
            ErrorCode::InvalidArgument,
            "{reason}"
        );
    }
    let labels = (0..40).map(|number| (number.to_string(), String::new())).collect();
    let staged = world.client.stage(Stage { labels, ..minimal() }).await;
    assert_eq!(refused(staged), ErrorCode::InvalidArgument);
    world.stop().await;
}

/// H-16
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_id_means_one_request() {
    let world = World::new().await;
    let request_id = Some("once".parse().expect("an id"));
    let first =
        world.client.stage(Stage { request_id: request_id.clone(), ..minimal() }).await.expect("staged");
    let again =
        world.client.stage(Stage { request_id: request_id.clone(), ..minimal() }).await.expect("answered");
    assert_eq!((again.transfer_id, again.session_id), (first.transfer_id, first.session_id));
    assert_eq!(Some(again.request_id), request_id);
    let other = world.client.stage(Stage { request_id, is_final: true, ..minimal() }).await;
    assert_eq!(refused(other), ErrorCode::IdempotencyConflict);
    let made = world.post("/v1/transfers", r#"{"input":{"source_host":"h","message_history":[]}}"#).await;
    let made: handoff_protocol::request::Staged = serde_json::from_str(&made.body).expect("staged");
    assert!(!made.request_id.as_str().is_empty(), "one is made where none is sent");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_is_made_to_the_version_that_was_read_or_not_at_all() {
    let world = World::new().await;
    let node = world.node(1).await;
    let (view, _) = world.active(&node).await;
    let raise = |client: Client, budget| async move {
        client.raise(view.transfer, Raise { request_id: None, budget_usd: amount(budget) }).await
    };
    let stale = world.client.clone().if_version(view.version - 1);
    assert_eq!(refused(raise(stale, "2").await), ErrorCode::PreconditionFailed);
    let raised = raise(world.client.clone().if_version(view.version), "2").await.expect("raised");
    assert!(raised.version > view.version);
    let raw = world.raw("GET", &format!("/v1/transfers/{}", view.transfer), "", b"").await;
    assert!(raw.head.contains(&format!("etag: \"{}\"", raised.version)), "{}", raw.head);
    let nonsense = world.raw("POST", "/v1/reap", "if-match: 7\r\n", b"").await;
    assert_eq!(nonsense.code(), ErrorCode::InvalidArgument);
    world.stop().await;
}

/// H-104
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_input_is_sealed_or_refused_with_the_place() {
    let world = World::new().await;
    let stage = |input: &str| format!(r#"{{"input":{input}}}"#);
    for (input, code, place) in [
        (
            r#"{"source_host":"h","message_history":[{"content":"no role"}]}"#,
            ErrorCode::SnapshotInvalid,
            "role",
        ),
        (
            r#"{"source_host":"h","message_history":[],"api_key":"x"}"#,
            ErrorCode::InvalidArgument,
            "`input` at line 1 column 5",
        ),
        (
            r#"{"source_host":"h","message_history":[],"mcp_config":[{"server":"s","cred_ref":"sk-live-1"}]}"#,
            ErrorCode::InvalidArgument,
            "credential reference",
        ),
    ] {
        let answer = world.post("/v1/transfers", &stage(input)).await;
        assert_eq!(answer.code(), code, "{input}: {}", answer.body);
        assert!(answer.body.contains(place), "{}", answer.body);
        assert!(!answer.body.contains("sk-live-1"), "{}", answer.body);
    }
    let long = format!(
        r#"{{"source_host":"h","message_history":[{{"role":"user","content":"{}"}}]}}"#,
        "x".repeat(300 << 10)
    );
    assert_eq!(world.post("/v1/transfers", &stage(&long)).await.code(), ErrorCode::PayloadTooLarge);
    let both = Stage { snapshot: Some(handoff_protocol::Digest::of(b"")), ..minimal() };
    assert_eq!(refused(world.client.stage(both).await), ErrorCode::InvalidArgument);
    world.stop().await;
}
