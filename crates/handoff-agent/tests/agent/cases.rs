//! Faults that people have met with comparable software, each with its number in `cases/`.

use handoff_agent::INTERRUPTED;
use handoff_agent::control::FromAgent;
use handoff_protocol::SessionId;
use handoff_protocol::document::TurnState;
use handoff_protocol::session_dir::{MESSAGES, SYSTEM_PROMPT, Standing};
use handoff_scripted_model::{Script, ScriptedCall, Step};

use crate::world::{World, assert_one_conversation, restore};

async fn restored(script: Script, system_prompt: &str, messages: &[&str], turn: TurnState) -> World {
    let world = World::empty(script).await;
    restore(&world.session(), system_prompt, messages, turn);
    let holder = Standing::Holder { session_id: SessionId::from_u128(1), epoch: 1 };
    handoff_agent::standing::write(&world.session(), &holder).expect("written");
    world
}

const ASKED: &str = r#"{"role":"assistant","content":null,"tool_calls":[{"id":"a","type":"function","function":{"name":"read_file","arguments":"{\"path\":\"\\ud83d\"}"}}]}"#;

#[tokio::test]
async fn case_s01_and_s02_odd_text_is_kept_and_only_the_copy_is_mended() {
    let messages = [
        r#"{"role":"user","content":"\ud83d alone","k\ud83d":["\ude00"],"n":117.63331139400017}"#,
        ASKED,
        r#"{"role":"tool","tool_call_id":"a","content":"nul \u0000 and \ud83d"}"#,
    ];
    let script = Script::of("t", vec![Step::say("unused"), Step::say("fine")]);
    let world = restored(script, r#""be \ud83d brief""#, &messages, TurnState::ModelNext).await;
    let stored = std::fs::read(world.session().join(MESSAGES)).expect("there");
    let agent = world.start();
    let mut line = agent.connect().await;
    line.tell(&handoff_agent::control::ToAgent::Status).await;
    line.hear_until(|told| matches!(told, FromAgent::Status(_)).then_some(())).await;
    crate::world::until(|| world.boundary().turn == TurnState::Idle).await;
    agent.stop().await;
    assert_one_conversation(&world.requests());
    let after = std::fs::read(world.session().join(MESSAGES)).expect("there");
    assert!(after.starts_with(&stored), "stored bytes are never rewritten");
    let prompt = std::fs::read(world.session().join(SYSTEM_PROMPT)).expect("there");
    assert_eq!(prompt, br#""be \ud83d brief""#);
}

#[tokio::test]
async fn case_s03_an_open_call_is_closed_and_the_first_request_is_valid() {
    let messages = [r#"{"role":"user","content":"hi"}"#, ASKED];
    let script = Script::of("t", vec![Step::say("unused"), Step::say("I see")]);
    let turn = TurnState::ToolsOpen { calls: vec!["a".into()] };
    let world = restored(script, "null", &messages, turn).await;
    world.run_until_idle().await;
    let found = world.messages();
    let closed = format!(r#"{{"role":"tool","tool_call_id":"a","content":"{INTERRUPTED}"}}"#);
    assert_eq!((found[1].as_str(), found[2].as_str()), (ASKED, closed.as_str()));
    let requests = world.requests();
    assert_eq!((requests.len(), requests[0].status, requests[0].messages), (1, 200, 3));
}

#[tokio::test]
async fn case_s04_two_calls_without_ids_are_answered_each() {
    let call = |text: &str| ScriptedCall {
        id: Some(String::new()),
        name: "append_file".into(),
        arguments: serde_json::Map::new(),
        raw_arguments: Some(format!(r#"{{"path":"log","content":"{text}"}}"#)),
    };
    let twice = Step { tool_calls: vec![call("one "), call("two ")], ..Step::default() };
    let world = World::playing(Script::of("t", vec![twice.clone(), twice, Step::say("done")])).await;
    world.run_until_idle().await;
    assert_eq!(world.file("log"), "one two one two ");
    assert_one_conversation(&world.requests());
    assert_eq!(world.requests().len(), 3);
    let stored = world.messages();
    assert_eq!(stored[1].matches(r#""id":"""#).count(), 2, "stored as it was said");
    assert!(stored[2].contains(r#""tool_call_id":"""#));
}

#[tokio::test]
async fn case_s05_and_s07_foreign_fields_and_empty_blocks_stay_in_the_store() {
    let messages = [
        r#"{"role":"user","content":[{"type":"text","text":""},{"type":"text","text":"hi"}]}"#,
        r#"{"role":"assistant","content":[{"type":"text","text":""}],"thinking":{"thinking":"abc","signature":"s=="},"tool_calls":[{"id":"a","type":"function","function":{"name":"t","arguments":"{}"}}]}"#,
        r#"{"role":"tool","tool_call_id":"a","content":""}"#,
        r#"{"role":"user","content":"  "}"#,
    ];
    let script = Script::of("t", vec![Step::say("unused"), Step::say("fine")]);
    let world = restored(script, "null", &messages, TurnState::ModelNext).await;
    world.run_until_idle().await;
    assert_eq!(world.messages()[..4], messages);
    let requests = world.requests();
    assert_eq!((requests.len(), requests[0].status, requests[0].messages), (1, 200, 4));
}

#[tokio::test]
async fn case_s16_the_order_of_keys_reaches_the_model_as_stored() {
    let message = r#"{"z":1,"role":"user","b":{"y":1,"x":-0},"content":"hi"}"#;
    let script = Script::of("t", vec![Step::say("fine")]);
    let world = restored(script, "null", &[message], TurnState::ModelNext).await;
    world.run_until_idle().await;
    let digest = handoff_protocol::Digest::of(message.as_bytes());
    assert_eq!(world.requests()[0].message_digests, [digest]);
}

#[tokio::test]
async fn halves_of_a_character_in_two_chunks_become_one() {
    let step = Step {
        text: "so 😀".into(),
        split_surrogates: true,
        ..Step::call("write_file", r#"{"path":"a","content":"木😀"}"#)
    };
    let world = World::playing(Script::of("t", vec![step, Step::say("ok")])).await;
    world.run_until_idle().await;
    assert_eq!(world.file("a"), "木😀");
    let said: serde_json::Value = serde_json::from_str(&world.messages()[1]).expect("JSON");
    assert_eq!(said["content"], "so 😀");
}
