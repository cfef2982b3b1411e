//! Loops that are left alone.

use handoff_agent::control::{FromAgent, ToAgent};
use handoff_agent::machine::ExitReason;
use handoff_protocol::document::TurnState;
use handoff_scripted_model::{AtEnd, Failure, Script, Step, builtin};

use crate::world::{World, assert_one_conversation, until};

#[tokio::test]
async fn the_inventory_script_really_computes_and_goes_on_after_a_restart() {
    let mut script = builtin("inventory").expect("built in");
    script.delay_ms = 0;
    let world = World::playing(script).await;
    let agent = world.start();
    agent.connect().await.step(8).await;
    agent.stop().await;
    let agent = world.start();
    let mut line = agent.connect().await;
    line.step(16).await;
    let boundary = line.quiesce(5_000).await;
    assert!(boundary.step >= 16);
    assert_eq!((boundary.clone(), boundary.turn), (world.boundary(), TurnState::ModelNext));
    assert_one_conversation(&world.requests());
    let sales = world.file("data/sales-1.csv");
    assert_eq!((sales.lines().count(), sales.lines().next()), (1 + 28 * 4, Some("day,item,sold")));
    assert_eq!(world.file("data/forecast-1.csv").lines().count(), 4);
    let report = world.file("report.md");
    assert!(report.contains("## Batch 0") && report.contains("## Batch 1"), "{report}");
    let failed: Vec<_> =
        world.messages().into_iter().filter(|message| message.contains("\"error: ")).collect();
    assert!(failed.is_empty(), "{failed:?}");
    agent.stop().await;
}

#[tokio::test]
async fn requests_carry_the_conversation_and_nothing_is_asked_twice() {
    let steps = vec![Step::call("write_file", r#"{"path":"a","content":"x"}"#), Step::say("done")];
    let world = World::playing(Script::of("t", steps)).await;
    assert_eq!(world.run_until_idle().await, ExitReason::Stopped);
    let requests = world.requests();
    assert_one_conversation(&requests);
    let counts: Vec<_> = requests.iter().map(|record| (record.messages, record.step)).collect();
    assert_eq!(counts, [(2, Some(0)), (4, Some(1))]);
    assert!(requests.iter().all(|record| record.stream && record.epoch.is_none() && !record.authorization));
    let boundary = world.boundary();
    assert_eq!((boundary.step, boundary.messages, boundary.turn), (2, 4, TurnState::Idle));
    assert_eq!(world.file("a"), "x");
    // Started again, it has nothing to do.
    assert_eq!(world.run_until_idle().await, ExitReason::Stopped);
    assert_eq!(world.requests().len(), 2);
}

#[tokio::test]
async fn failures_of_the_model_change_no_history() {
    let step = Step::say("at last, in several chunks of text")
        .failing(Failure::Refuse { status: 503, retry_after_s: None, times: 1 })
        .failing(Failure::Refuse { status: 402, retry_after_s: None, times: 1 })
        .failing(Failure::Cut { after_chunks: 2, times: 1 });
    let world = World::playing(Script::of("t", vec![step])).await;
    let before = world.messages();
    let agent = world.start();
    let mut line = agent.connect().await;
    let reason = line
        .hear_until(|told| match told {
            FromAgent::Status(status) if status.activity == handoff_agent::control::Activity::OutOfBudget => {
                status.reason.clone()
            }
            _ => None,
        })
        .await;
    assert!(reason.contains("402"), "{reason}");
    assert_eq!(world.messages(), before);
    line.step(1).await;
    assert_eq!(world.messages().len(), before.len() + 1);
    let statuses: Vec<_> = world.requests().iter().map(|record| record.status).collect();
    assert_eq!(statuses, [503, 402, 200, 200]);
    agent.stop().await;
}

#[tokio::test]
async fn what_will_fail_again_is_told_and_tried_when_somebody_speaks() {
    let step = Step::say("well").failing(Failure::Refuse { status: 404, retry_after_s: None, times: 1 });
    let world = World::playing(Script::of("t", vec![step])).await;
    let agent = world.start();
    until(|| world.requests().len() == 1).await;
    let mut line = agent.connect().await;
    let stuck = |told: &FromAgent| match told {
        FromAgent::Failed { .. } => Some(()),
        FromAgent::Status(status) => {
            (status.activity == handoff_agent::control::Activity::Stuck).then_some(())
        }
        _ => None,
    };
    line.tell(&ToAgent::Status).await;
    line.hear_until(stuck).await;
    line.tell(&ToAgent::Say { text: "try again".into() }).await;
    line.step(1).await;
    assert!(world.messages()[1].contains("try again"));
    agent.stop().await;
}

#[tokio::test]
async fn an_answer_that_is_cut_at_the_limit_of_tokens_leaves_a_valid_history() {
    let script = Script {
        at_end: AtEnd::Idle { text: "ok".into() },
        ..Script::of("t", vec![Step::call("write_file", r#"{"path":"a","content":"a long enough text"}"#)])
    };
    let world = World::playing(script).await;
    let mut options = world.options();
    options.endpoint.max_tokens = Some(8);
    let agent = world.start_with(options);
    agent.connect().await.step(2).await;
    agent.stop().await;
    assert_one_conversation(&world.requests());
    assert!(world.messages()[2].contains("error: the arguments of write_file are not valid"));
    assert!(!world.workspace().join("a").exists());
}
