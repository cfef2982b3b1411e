//! The gateway in front of the scripted model server, as the demo has it.

use handoff_gateway::Policy;
use handoff_protocol::Digest;
use handoff_scripted_model::{MODEL, Options, ScriptedModel, builtin, read_log};

use crate::world::{EPOCH, World, tier, usd};

const PATH: &str = "/scripted/v1/chat/completions";

#[tokio::test]
async fn the_scripted_model_answers_through_the_gateway_and_is_metered_and_told_the_epoch() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("requests.ndjson");
    let script = builtin("inventory").expect("a script");
    let options = Options { log: Some(log.clone()), ..Options::of(script) };
    let model = ScriptedModel::start(options).await.expect("a model");
    let text = Policy::scripted_text(&model.base_url(), MODEL, "1", "10");
    let world = World::staged(&|_| text.clone(), tier(0, 0)).await;
    world.admit(EPOCH, usd("1")).await.expect("admitted");
    // Bytes that a parser would change: they must arrive as they were written.
    let message = "{\"role\" : \"user\",\"content\":\"\\u00e9 1\", \"x\":117.63331139400017}";
    let mut spent = usd("0");
    for stream in [false, true] {
        let body = format!("{{\"model\":\"{MODEL}\",\"stream\":{stream},\"messages\":[{message}]}}");
        let answer = world.door().post(PATH, &body).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert_eq!(answer.headers["x-handoff-scripted"], "true");
        assert!(!answer.text().contains("\"choices\":[]"));
        let epoch = world.settled(EPOCH).await;
        assert!(epoch.spent_usd > spent && epoch.estimated_calls == 0);
        spent = epoch.spent_usd;
    }
    model.stop().await;
    let requests = read_log(&log).expect("a log");
    assert_eq!(requests.len(), 2);
    let mut charged = usd("0");
    for request in requests {
        assert_eq!(request.epoch, Some(EPOCH.to_string()));
        assert!(!request.authorization, "the agent's own authority stays here");
        assert_eq!(request.message_digests, [Digest::of(message.as_bytes())]);
        let usage = request.usage.expect("it says what was used");
        let nano = usage.prompt_tokens * 1_000 + usage.completion_tokens * 10_000;
        charged = charged.plus(handoff_protocol::NanoUsd::from_nano(i64::try_from(nano).expect("small")));
    }
    assert_eq!(spent, charged, "the model's own log and the ledger agree");
}
