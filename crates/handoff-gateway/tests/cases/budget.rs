//! Admission: what fits is passed on, what does not is refused with what is required and available.

use crate::world::{CHAT, EPOCH, World, body, of, usd};

/// The most that a request of 200 bytes with 1000 tokens costs: 200 µ$ + 10,000 µ$.
const WORST: i64 = 10_200_000;

fn worst() -> String {
    body(Some(1000), false, 200)
}

#[tokio::test(flavor = "multi_thread")]
async fn case_m01_twenty_callers_on_a_budget_for_ten() {
    let mut world = World::new("0.102").await;
    let calls: Vec<_> = (0..20)
        .map(|_| {
            let door = world.door();
            tokio::spawn(async move { door.post(CHAT, &worst()).await })
        })
        .collect();
    // Ten holds fill the budget; nobody is lowered, because less than the floor would be left.
    let mut asked = Vec::new();
    for _ in 0..10 {
        asked.push(world.upstream.asked().await);
    }
    let state = world.until(|state| of(state, EPOCH).is_some_and(|epoch| epoch.holds_open == 10)).await;
    let epoch = of(&state, EPOCH).expect("the epoch");
    assert_eq!((epoch.held_usd, epoch.spent_usd), (usd("0.102"), usd("0")));
    for one in asked {
        one.used(200, 1000).await;
    }
    let mut statuses = Vec::new();
    for call in calls {
        let answer = call.await.expect("an answer");
        if answer.status == 402 {
            assert_eq!(answer.code(), "budget_exceeded");
        }
        statuses.push(answer.status.as_u16());
    }
    assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 10);
    assert!(world.upstream.is_idle());
    let epoch = world.settled(EPOCH).await;
    assert_eq!((epoch.spent_usd, epoch.held_usd), (usd("0.102"), usd("0")));
    assert_eq!(epoch.totals.model_usd.nano(), 10 * WORST);
}

#[tokio::test]
async fn case_m02_a_budget_that_is_used_up_buys_nothing_also_after_a_restart() {
    let mut world = World::new("0.0102").await;
    assert_eq!(world.call(&worst(), 200, 1000).await.status, 200);
    let before = world.settled(EPOCH).await;
    assert_eq!(before.spent_usd, usd("0.0102"));
    for _ in 0..3 {
        let refused = world.door().post(CHAT, &body(Some(1), false, 100)).await;
        assert_eq!((refused.status.as_u16(), refused.code().as_str()), (402, "budget_exceeded"));
    }
    world.stop().await;
    world.restart().await;
    world.admit(EPOCH, usd("0.0102")).await.expect("adopted");
    let after = world.settled(EPOCH).await;
    assert_eq!((after.totals, after.limit_usd), (before.totals, before.limit_usd));
    assert_eq!(world.door().post(CHAT, &body(Some(1), false, 100)).await.status, 402);
    assert!(world.upstream.is_idle());
}

#[tokio::test]
async fn case_m03_a_budget_of_zero_is_not_unset() {
    let mut world = World::new("0").await;
    for text in [worst(), worst().replace("\"m\"", "\"free\"")] {
        let refused = world.door().post(CHAT, &text).await;
        assert_eq!(refused.status, 402, "{}", refused.text());
        assert_eq!(refused.json()["error"]["available_usd"], "0.00");
    }
    assert!(world.upstream.is_idle());
}

#[tokio::test]
async fn case_m04_a_call_without_a_limit_holds_its_default_and_is_told_so_upstream() {
    let mut world = World::new("1").await;
    let door = world.door();
    let calling = tokio::spawn(async move { door.post(CHAT, &body(None, false, 100)).await });
    let asked = world.upstream.asked().await;
    assert_eq!(asked.path, "/v1/chat/completions");
    assert_eq!(asked.json()["max_tokens"], 4096);
    let state = world.state().await;
    // 100 bytes in, 4096 tokens out.
    assert_eq!(of(&state, EPOCH).expect("the epoch").held_usd, usd("0.04106"));
    asked.used(25, 10).await;
    let answer = calling.await.expect("an answer");
    assert!(answer.headers.get("x-handoff-max-tokens").is_none());
    assert!(answer.headers.contains_key("x-handoff-call-id"));
    assert_eq!(world.settled(EPOCH).await.spent_usd, usd("0.000125"));
}

#[tokio::test]
async fn case_m07_a_burst_does_not_lock_a_solvent_session_out() {
    let mut world = World::new("0.05").await;
    let greedy = body(Some(4000), false, 1000);
    let (first, second) = (world.door(), world.door());
    let first = tokio::spawn({
        let greedy = greedy.clone();
        async move { first.post(CHAT, &greedy).await }
    });
    let first_asked = world.upstream.asked().await;
    // $0.041 are held: the next one is lowered to what the rest buys, and says so.
    let second = tokio::spawn({
        let greedy = greedy.clone();
        async move { second.post(CHAT, &greedy).await }
    });
    let second_asked = world.upstream.asked().await;
    assert_eq!(second_asked.json()["max_tokens"], 800);
    // Nothing is left for a third: it is told what it takes and what there is.
    let third = world.door().post(CHAT, &greedy).await;
    assert_eq!(third.status, 402);
    let error = &third.json()["error"];
    assert_eq!((&error["required_usd"], &error["available_usd"]), (&"0.00356".into(), &"0.00".into()));
    first_asked.used(10, 1).await;
    second_asked.used(10, 1).await;
    assert!(first.await.expect("an answer").headers.get("x-handoff-max-tokens").is_none());
    assert_eq!(second.await.expect("an answer").headers["x-handoff-max-tokens"], "800");
    // What they did not use is there again.
    assert_eq!(world.call(&greedy, 10, 1).await.status, 200);
    assert_eq!(world.settled(EPOCH).await.spent_usd, usd("0.00006"));
    let state = world.state().await;
    assert!(!of(&state, EPOCH).expect("the epoch").exhausted, "a refused call is no exhaustion");
}

#[tokio::test]
async fn case_m09_what_is_reported_is_what_is_enforced_and_what_was_written() {
    let mut world = World::new("1").await;
    let costs = [(100, 50), (3, 0), (0, 7), (200, 999)];
    for (input, output) in costs {
        world.call(&worst(), input, output).await;
    }
    let epoch = world.settled(EPOCH).await;
    // $1 and $10 per million tokens are 1,000 and 10,000 nano-dollars per token.
    let sum: i64 = costs.iter().map(|(input, output)| *input as i64 * 1000 + *output as i64 * 10_000).sum();
    assert_eq!(epoch.spent_usd.nano(), sum);
    assert_eq!(epoch.totals.tokens.input, 303);
    assert_eq!(epoch.totals.tokens.output, 1056);
    let report = epoch.report.expect("news");
    assert!(epoch.totals.covers(&report.totals));
    let closed = world.close(EPOCH).await;
    assert!(closed.closed);
    let last = closed.reports.last().expect("a closing report");
    assert_eq!((last.totals, last.closing), (epoch.totals, true));
}

/// H-79
#[tokio::test]
async fn case_m21_a_model_without_a_price_is_refused_before_the_call() {
    let mut world = World::new("1").await;
    let refused = world.door().post(CHAT, &worst().replace("\"m\"", "\"other\"")).await;
    assert_eq!((refused.status.as_u16(), refused.code().as_str()), (422, "price_unknown"));
    let image = r#"{"model":"m","messages":[{"role":"user","content":[{"type":"image_url"}]}]}"#;
    assert_eq!(world.door().post(CHAT, image).await.code(), "price_unknown");
    assert!(world.upstream.is_idle());
    // Zero is a price where an operator says so.
    assert_eq!(world.call(&worst().replace("\"m\"", "\"free\""), 9, 9).await.status, 200);
    assert_eq!(world.settled(EPOCH).await.spent_usd, usd("0"));
}

#[tokio::test]
async fn case_m22_sums_are_exact() {
    let mut world = World::new("1").await;
    for _ in 0..25 {
        world.call(&worst(), 40, 0).await;
    }
    assert_eq!(world.settled(EPOCH).await.spent_usd, usd("0.001"));
}

#[tokio::test]
async fn an_upstream_that_counts_more_than_it_may_is_charged_as_far_as_the_limit_reaches() {
    let mut world = World::new("0.02").await;
    world.call(&worst(), 200, 1500).await;
    let epoch = world.settled(EPOCH).await;
    assert_eq!((epoch.spent_usd, epoch.overrun_usd), (usd("0.0152"), usd("0")));
    world.call(&body(Some(300), false, 200), 200, 1500).await;
    let epoch = world.settled(EPOCH).await;
    assert_eq!((epoch.spent_usd, epoch.overrun_usd), (usd("0.02"), usd("0.0104")));
}
