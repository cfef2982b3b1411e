//! The gateway in front of the scripted model server, as the demo has it.

use handoff_gateway::Policy;
use handoff_scripted_model::{MODEL, Options, ScriptedModel, builtin};

use crate::world::{EPOCH, World, tier, usd};

#[tokio::test]
async fn the_scripted_model_answers_through_the_gateway_and_is_metered() {
    let script = builtin("inventory").expect("a script");
    let model = ScriptedModel::start(Options::of(script)).await.expect("a model");
    let text = Policy::scripted_text(&model.base_url(), MODEL, "1", "10");
    let world = World::staged(&|_| text.clone(), tier(0, 0)).await;
    world.admit(EPOCH, usd("1")).await.expect("admitted");
    let mut spent = usd("0");
    for stream in [false, true] {
        let body = format!(
            "{{\"model\":\"{MODEL}\",\"stream\":{stream},\"messages\":[{{\"role\":\"user\",\"content\":\"go\"}}]}}"
        );
        let answer = world.door().post("/scripted/v1/chat/completions", &body).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert_eq!(answer.headers["x-handoff-scripted"], "true");
        assert!(!answer.text().contains("\"choices\":[]"));
        let epoch = world.settled(EPOCH).await;
        assert!(epoch.spent_usd > spent && epoch.estimated_calls == 0);
        spent = epoch.spent_usd;
    }
    model.stop().await;
}
