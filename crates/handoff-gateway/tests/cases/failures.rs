//! What goes wrong on the way: every hold is closed exactly once, on the safe side.

use handoff_gateway::Policy;
use handoff_gateway::meter::Mode;

use crate::upstream::DEADLINE;
use crate::world::{CHAT, EPOCH, TOKEN, World, body, of, policy_text, request, tier, usd};

/// What a request of 200 bytes with 500 tokens holds.
const HELD: &str = "0.0052";

fn ask(stream: bool) -> String {
    body(Some(500), stream, 200)
}

async fn impatient(limits: &str) -> World {
    let limits = limits.to_owned();
    let policy = move |address| format!("{}[limits]\n{limits}\n", policy_text(address));
    let world = World::staged(&policy, tier(0, 0)).await;
    world.admit(EPOCH, usd("1")).await.expect("admitted");
    world
}

/// H-78
#[tokio::test]
async fn case_m06_a_refused_connection_gives_the_hold_back_whole() {
    let mut world = World::new("1").await;
    let gone = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = gone.local_addr().expect("an address");
    drop(gone);
    world.stop().await;
    world.policy = Policy::parse(&policy_text(address)).expect("a policy");
    world.restart().await;
    world.admit(EPOCH, usd("1")).await.expect("adopted");
    let answer = world.door().post(CHAT, &ask(false)).await;
    assert_eq!((answer.status.as_u16(), answer.code().as_str()), (502, "upstream_unreachable"));
    assert_eq!(answer.json()["error"]["retryable"], true);
    let epoch = world.settled(EPOCH).await;
    assert_eq!((epoch.spent_usd, epoch.held_usd), (usd("0"), usd("0")));
    assert_eq!(epoch.totals.egress_bytes, 0);
}

#[tokio::test]
async fn case_m25_a_time_out_after_dispatch_stays_charged_at_its_maximum() {
    let mut world = impatient("first_byte_ms = 150").await;
    let door = world.door();
    let calling = tokio::spawn(async move { door.post(CHAT, &ask(false)).await });
    let asked = world.upstream.asked().await;
    let answer = calling.await.expect("an answer");
    assert_eq!((answer.status.as_u16(), answer.code().as_str()), (504, "upstream_timed_out"));
    assert_eq!(answer.json()["error"]["retryable"], false);
    let epoch = world.settled(EPOCH).await;
    assert_eq!((epoch.spent_usd, epoch.indeterminate_usd), (usd(HELD), usd(HELD)));
    assert_eq!(epoch.indeterminate_calls, 1);
    assert!(epoch.totals.egress_bytes >= 200);
    asked.hung_up().await;
    assert!(world.upstream.is_idle(), "nothing is sent again");
}

#[tokio::test]
async fn case_m25_an_upstream_that_hangs_up_without_an_answer_is_charged_at_its_maximum() {
    let mut world = World::new("1").await;
    let door = world.door();
    let calling = tokio::spawn(async move { door.post(CHAT, &ask(false)).await });
    drop(world.upstream.asked().await);
    assert_eq!(calling.await.expect("an answer").code(), "upstream_broke_off");
    assert_eq!(world.settled(EPOCH).await.spent_usd, usd(HELD));
    assert!(world.upstream.is_idle(), "nothing is sent again");
}

#[tokio::test]
async fn a_stream_that_falls_silent_is_given_up() {
    let mut world = impatient("idle_ms = 150").await;
    let door = world.door();
    let calling = tokio::spawn(async move { door.post(CHAT, &ask(true)).await });
    let mut asked = world.upstream.asked().await;
    asked.begin_stream().await;
    asked.send(b"data: {}\n\n").await;
    assert!(!calling.await.expect("an answer").complete);
    assert_eq!(world.settled(EPOCH).await.indeterminate_usd, usd(HELD));
    asked.hung_up().await;
}

#[tokio::test]
async fn case_m10_a_call_that_was_left_is_not_read_for_ever() {
    let mut world = impatient("drain_ms = 150").await;
    let door = world.door();
    let calling = tokio::spawn(async move { door.begin(CHAT, &ask(true)).await });
    let mut asked = world.upstream.asked().await;
    asked.begin_stream().await;
    drop(calling.await.expect("a head"));
    asked.hung_up().await;
    let epoch = world.settled(EPOCH).await;
    assert_eq!((epoch.indeterminate_calls, epoch.spent_usd), (1, usd(HELD)));
}

#[tokio::test]
async fn case_m10_no_more_calls_are_read_to_their_end_than_the_policy_says() {
    let mut world = impatient("drains = 0").await;
    let door = world.door();
    let calling = tokio::spawn(async move { door.post(CHAT, &ask(false)).await });
    let asked = world.upstream.asked().await;
    calling.abort();
    asked.hung_up().await;
    assert_eq!(world.settled(EPOCH).await.indeterminate_calls, 1);
}

#[tokio::test]
async fn an_upstream_that_refuses_does_not_charge() {
    let mut world = World::new("1").await;
    for (status, charged) in [(400, "0"), (429, "0"), (500, "0"), (503, "0"), (504, HELD)] {
        let before = world.settled(EPOCH).await.spent_usd;
        let door = world.door();
        let calling = tokio::spawn(async move { door.post(CHAT, &ask(true)).await });
        let said = "{\"error\":{\"message\":\"no\"}}";
        let headers = "content-type: application/json\r\nretry-after: 7\r\n";
        world.upstream.asked().await.answer(status, headers, said).await;
        let answer = calling.await.expect("an answer");
        assert_eq!((answer.status.as_u16(), answer.text()), (status, said));
        assert_eq!(answer.headers["retry-after"], "7");
        let spent = world.settled(EPOCH).await.spent_usd;
        assert_eq!(spent.minus(before), usd(charged), "{status}");
    }
}

#[tokio::test]
async fn an_answer_without_usage_is_estimated_and_one_that_breaks_off_is_at_its_maximum() {
    let mut world = World::new("1").await;
    let door = world.door();
    let calling = tokio::spawn(async move { door.post(CHAT, &ask(false)).await });
    world.upstream.asked().await.answer(200, "", "{\"choices\":[]}").await;
    assert_eq!(calling.await.expect("an answer").status, 200);
    let epoch = world.settled(EPOCH).await;
    // 200 bytes in, 14 bytes out.
    assert_eq!((epoch.estimated_calls, epoch.spent_usd), (1, usd("0.00034")));
    let door = world.door();
    let calling = tokio::spawn(async move { door.post(CHAT, &ask(false)).await });
    let mut asked = world.upstream.asked().await;
    asked.write(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{\"choices\"").await;
    drop(asked);
    assert_eq!(calling.await.expect("an answer").code(), "upstream_broke_off");
    assert_eq!(world.settled(EPOCH).await.indeterminate_usd, usd(HELD));
}

#[tokio::test]
async fn what_cannot_be_read_is_not_passed_on() {
    let mut world = World::new("1").await;
    for (status, headers) in
        [(200, "content-encoding: gzip\r\n"), (307, "location: http://elsewhere.example/\r\n")]
    {
        let door = world.door();
        let calling = tokio::spawn(async move { door.post(CHAT, &ask(false)).await });
        world.upstream.asked().await.answer(status, headers, "x").await;
        let answer = calling.await.expect("an answer");
        assert_eq!(answer.code(), "upstream_answer_refused");
        assert!(answer.headers.get("location").is_none());
    }
    assert!(world.upstream.is_idle(), "a redirect is not followed");
    let epoch = world.settled(EPOCH).await;
    assert_eq!((epoch.indeterminate_calls, epoch.spent_usd), (1, usd(HELD)));
}

/// H-69
#[tokio::test]
async fn only_a_session_that_may_run_makes_calls() {
    let mut world = World::staged(&|address| policy_text(address), tier(0, 0)).await;
    let wait = async |world: &World| {
        let answer = world.door().post(CHAT, &ask(false)).await;
        assert_eq!((answer.status.as_u16(), answer.code().as_str()), (503, "wait"), "{}", answer.text());
        assert_eq!(answer.headers["retry-after"], "1");
    };
    wait(&world).await;
    world.admit(EPOCH, usd("1")).await.expect("admitted");
    assert_eq!(world.call(&ask(false), 1, 1).await.status, 200);
    world.stand(Mode::Frozen).await;
    wait(&world).await;
    world.stand(Mode::Running).await;
    assert_eq!(world.call(&ask(false), 1, 1).await.status, 200);
    world.clock.advance(1_000_001);
    wait(&world).await;
    world.lease(EPOCH, 5_000).await.expect("a lease");
    assert_eq!(world.call(&ask(false), 1, 1).await.status, 200);
    world.close(EPOCH).await;
    wait(&world).await;
    assert!(world.upstream.is_idle());
}

#[tokio::test]
async fn an_open_call_settles_while_the_session_is_frozen() {
    let mut world = World::new("1").await;
    let door = world.door();
    let calling = tokio::spawn(async move { door.post(CHAT, &ask(false)).await });
    let asked = world.upstream.asked().await;
    world.stand(Mode::Frozen).await;
    asked.used(40, 7).await;
    assert_eq!(calling.await.expect("an answer").status, 200);
    assert_eq!(world.settled(EPOCH).await.spent_usd, usd("0.00011"));
}

#[tokio::test]
async fn a_call_belongs_to_the_epoch_that_made_it() {
    let mut world = World::new("1").await;
    let door = world.door();
    let calling = tokio::spawn(async move { door.post(CHAT, &ask(false)).await });
    let asked = world.upstream.asked().await;
    world.admit(EPOCH + 1, usd("1")).await.expect("admitted");
    let state = world.state().await;
    let old = of(&state, EPOCH).expect("the old epoch");
    assert!(old.closing && !old.closed && old.holds_open == 1);
    assert_eq!(world.admit(EPOCH, usd("1")).await, Err(handoff_protocol::ErrorCode::StaleEpoch));
    asked.used(40, 7).await;
    calling.await.expect("an answer");
    let old = world.settled(EPOCH).await;
    assert_eq!(old.spent_usd, usd("0.00011"));
    assert_eq!(world.settled(EPOCH + 1).await.spent_usd, usd("0"));
    let closed = world.close(EPOCH).await;
    assert!(closed.closed && closed.reports.last().is_some_and(|last| last.closing));
}

/// H-47
#[tokio::test]
async fn the_door_takes_only_its_agent_and_only_what_is_metered() {
    let mut world = World::new("1").await;
    let door = world.door();
    let token = format!("Bearer {TOKEN}");
    for headers in [
        vec![],
        vec![("authorization", "Bearer other")],
        vec![("authorization", "Basic agent-token")],
        vec![("authorization", TOKEN)],
        vec![("x-api-key", TOKEN)],
        vec![("authorization", token.as_str()), ("authorization", "Bearer other")],
    ] {
        let answer = door.send(request(CHAT, &headers, &ask(false))).await.all().await;
        assert_eq!((answer.status.as_u16(), answer.code().as_str()), (401, "unauthenticated"), "{headers:?}");
    }
    for (path, code) in [
        ("/nobody/v1/chat/completions", "not_found"),
        ("/u", "not_found"),
        ("/u/v1/models", "forbidden"),
        ("/u/v1/chat/completions/", "forbidden"),
        ("/u/v1/../v1/chat/completions", "forbidden"),
        ("/u/v1/chat/completions?x=1", "forbidden"),
        ("/u//v1/chat/completions", "forbidden"),
    ] {
        assert_eq!(door.post(path, &ask(false)).await.code(), code, "{path}");
    }
    for text in [
        "",
        "[]",
        "{",
        "{\"model\":\"m\"}",
        &format!("{}1", "[".repeat(200)),
        "{\"model\":1,\"messages\":[]}",
    ] {
        let answer = door.post(CHAT, text).await;
        assert_eq!((answer.status.as_u16(), answer.code().as_str()), (422, "invalid_argument"), "{text}");
    }
    let gzip = [("authorization", token.as_str()), ("content-encoding", "gzip")];
    assert_eq!(door.send(request(CHAT, &gzip, &ask(false))).await.all().await.code(), "invalid_argument");
    assert!(world.upstream.is_idle());
    assert_eq!(world.settled(EPOCH).await.spent_usd, usd("0"));
}

#[tokio::test]
async fn too_many_bytes_or_calls_are_refused() {
    let mut world = impatient("body_bytes = 300\ncalls = 1").await;
    let answer = world.door().post(CHAT, &body(None, false, 301)).await;
    assert_eq!((answer.status.as_u16(), answer.code().as_str()), (413, "payload_too_large"));
    let door = world.door();
    let calling = tokio::spawn(async move { door.post(CHAT, &ask(false)).await });
    let asked = world.upstream.asked().await;
    assert_eq!(world.door().post(CHAT, &ask(false)).await.code(), "rate_limited");
    asked.used(1, 1).await;
    assert_eq!(calling.await.expect("an answer").status, 200);
    tokio::time::timeout(DEADLINE, async {
        // The place is free once the call's task has ended.
        while world.door().post(CHAT, "{}").await.code() == "rate_limited" {
            tokio::task::yield_now().await;
        }
    })
    .await
    .expect("in time");
}
