//! Streams: passed on as they come, read beside it.

use crate::world::{CHAT, EPOCH, World, body, usd};

const FIRST: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"H\u{e9}\"}}],\"usage\":null}\n\n";
const SECOND: &str =
    ": note\n\ndata: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}],\"usage\":null}\n\n";
const USAGE: &str = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":40,\"completion_tokens\":7}}\n\n";
const DONE: &str = "data: [DONE]\n\n";
/// What 40 tokens in and 7 out cost.
const COST: &str = "0.00011";

fn streamed() -> String {
    body(Some(500), true, 200)
}

fn with_usage() -> String {
    streamed().replacen('{', "{\"stream_options\":{\"include_usage\":true},", 1)
}

#[tokio::test]
async fn case_m12_usage_is_asked_for_and_the_extra_chunk_is_stripped() {
    let mut world = World::new("1").await;
    for (text, asked_for_it) in [(streamed(), false), (with_usage(), true)] {
        let door = world.door();
        let calling = tokio::spawn(async move { door.post(CHAT, &text).await });
        let mut asked = world.upstream.asked().await;
        assert_eq!(asked.json()["stream_options"]["include_usage"], true);
        asked.begin_stream().await;
        asked.send(format!("{FIRST}{SECOND}{USAGE}{DONE}").as_bytes()).await;
        asked.end_stream().await;
        let answer = calling.await.expect("an answer");
        assert!(answer.complete);
        let extra = if asked_for_it { USAGE } else { "" };
        assert_eq!(answer.text(), format!("{FIRST}{SECOND}{extra}{DONE}"));
        assert_eq!(answer.headers["content-type"], "text/event-stream");
    }
    assert_eq!(world.settled(EPOCH).await.spent_usd, usd("0.00022"));
}

#[tokio::test]
async fn case_m15_a_stream_split_at_every_byte_offset_gives_the_same_usage() {
    let mut world = World::new("1").await;
    let stream = format!("{FIRST}{USAGE}{DONE}").replace('\n', "\r\n");
    let stripped = format!("{FIRST}{DONE}").replace('\n', "\r\n");
    let offsets: Vec<usize> = (0..=stream.len()).collect();
    for at in &offsets {
        let (head, tail) = stream.as_bytes().split_at(*at);
        let door = world.door();
        let calling = tokio::spawn(async move { door.post(CHAT, &streamed()).await });
        let mut asked = world.upstream.asked().await;
        asked.begin_stream().await;
        for piece in [head, tail].into_iter().filter(|piece| !piece.is_empty()) {
            asked.send(piece).await;
        }
        asked.end_stream().await;
        assert_eq!(calling.await.expect("an answer").text(), stripped, "{at}");
    }
    let epoch = world.settled(EPOCH).await;
    let calls = offsets.len() as i64;
    assert_eq!(epoch.spent_usd.nano(), calls * usd(COST).nano());
    assert_eq!(epoch.totals.tokens.output, 7 * offsets.len() as u64);
    assert_eq!(epoch.estimated_calls, 0);
}

#[tokio::test]
async fn case_m16_the_first_event_arrives_before_the_second_is_produced() {
    let mut world = World::new("1").await;
    for text in [streamed(), with_usage()] {
        let door = world.door();
        let calling = tokio::spawn(async move { door.begin(CHAT, &text).await });
        let mut asked = world.upstream.asked().await;
        asked.begin_stream().await;
        let mut reading = calling.await.expect("a head");
        asked.send(FIRST.as_bytes()).await;
        let first = reading.next().await.expect("an event").expect("no error");
        assert_eq!(first, FIRST.as_bytes());
        // Only now the second one is made.
        asked.send(format!("{USAGE}{DONE}").as_bytes()).await;
        asked.end_stream().await;
        assert!(reading.all().await.complete);
    }
    assert_eq!(world.settled(EPOCH).await.spent_usd, usd("0.00022"));
}

#[tokio::test]
async fn the_money_is_back_before_the_caller_sees_the_end() {
    // $0.0052 are held of $0.0053: a second call fits only once the first one is settled.
    let mut world = World::new("0.0053").await;
    for _ in 0..2 {
        let door = world.door();
        let calling = tokio::spawn(async move { door.begin(CHAT, &streamed()).await });
        let mut asked = world.upstream.asked().await;
        asked.begin_stream().await;
        asked.send(format!("{FIRST}{USAGE}{DONE}").as_bytes()).await;
        let mut reading = calling.await.expect("a head");
        assert_eq!(reading.status, 200);
        let mut seen = Vec::new();
        while !seen.ends_with(DONE.as_bytes()) {
            seen.extend_from_slice(&reading.next().await.expect("more").expect("no error"));
        }
        // The upstream keeps its connection open: that holds nobody up.
        world.settled(EPOCH).await;
        asked.end_stream().await;
    }
}

#[tokio::test]
async fn case_m05_and_m10_a_caller_that_leaves_is_charged_once_at_what_it_used() {
    let mut world = World::new("1").await;
    let door = world.door();
    let calling = tokio::spawn(async move { door.begin(CHAT, &streamed()).await });
    let mut asked = world.upstream.asked().await;
    asked.begin_stream().await;
    asked.send(FIRST.as_bytes()).await;
    let mut reading = calling.await.expect("a head");
    reading.next().await.expect("an event").expect("no error");
    drop(reading);
    // The upstream is read to its end all the same.
    asked.send(format!("{SECOND}{USAGE}{DONE}").as_bytes()).await;
    asked.end_stream().await;
    let epoch = world.settled(EPOCH).await;
    assert_eq!((epoch.spent_usd, epoch.held_usd), (usd(COST), usd("0")));
    assert_eq!((epoch.indeterminate_calls, epoch.estimated_calls), (0, 0));
}

#[tokio::test]
async fn case_m05_a_caller_that_leaves_before_the_answer_is_charged_once() {
    let mut world = World::new("1").await;
    let door = world.door();
    let calling = tokio::spawn(async move { door.post(CHAT, &body(Some(500), false, 200)).await });
    let asked = world.upstream.asked().await;
    calling.abort();
    asked.used(40, 7).await;
    assert_eq!(world.settled(EPOCH).await.spent_usd, usd(COST));
}

#[tokio::test]
async fn case_m11_a_stream_that_breaks_off_is_estimated_and_never_free() {
    let mut world = World::new("1").await;
    let door = world.door();
    let calling = tokio::spawn(async move { door.post(CHAT, &streamed()).await });
    let mut asked = world.upstream.asked().await;
    asked.begin_stream().await;
    asked.send(FIRST.as_bytes()).await;
    drop(asked);
    let answer = calling.await.expect("an answer");
    assert!(!answer.complete, "the caller sees that it broke off");
    assert_eq!(answer.text(), FIRST);
    let epoch = world.settled(EPOCH).await;
    assert_eq!((epoch.estimated_calls, epoch.indeterminate_calls), (1, 0));
    // 200 bytes in; of the output the 16 bytes of its delta.
    let delta = "{\"content\":\"H\u{e9}\"}".len() as i64;
    assert_eq!(epoch.spent_usd.nano(), 200 * 1000 + delta * 10_000);
}

#[tokio::test]
async fn case_m11_a_stream_that_ends_without_usage_is_estimated_too() {
    let mut world = World::new("1").await;
    let door = world.door();
    let calling = tokio::spawn(async move { door.post(CHAT, &streamed()).await });
    let mut asked = world.upstream.asked().await;
    asked.begin_stream().await;
    asked.send(format!("{FIRST}{DONE}").as_bytes()).await;
    asked.end_stream().await;
    assert!(calling.await.expect("an answer").complete);
    let epoch = world.settled(EPOCH).await;
    assert_eq!(epoch.estimated_calls, 1);
    assert!(epoch.spent_usd > usd("0.0002"));
}

#[tokio::test]
async fn a_call_settles_although_nobody_reads_its_answer() {
    let mut world = World::new("1").await;
    let door = world.door();
    let calling = tokio::spawn(async move { door.begin(CHAT, &streamed()).await });
    let mut asked = world.upstream.asked().await;
    asked.begin_stream().await;
    // An agent that is frozen in the middle of a long answer does not read on.
    let reading = calling.await.expect("a head");
    for _ in 0..1000 {
        asked.send(format!("data: {{\"choices\":[],\"x\":\"{}\"}}\n\n", "y".repeat(1000)).as_bytes()).await;
    }
    asked.send(format!("{USAGE}{DONE}").as_bytes()).await;
    asked.end_stream().await;
    assert_eq!(world.settled(EPOCH).await.spent_usd, usd(COST));
    // Thawed, it finds all of it.
    let answer = reading.all().await;
    assert!(answer.complete && answer.text().ends_with(DONE));
    assert!(answer.body.len() > 1_000_000);
}
