//! A session of the size that people really have, made by really running the loop.

use std::time::Duration;

use handoff_protocol::document::TurnState;
use handoff_scripted_model::{AtEnd, Script, Step};

use crate::world::World;

/// The turns of the session. Small ones first: every turn sends all before it once more, and what is tested is
/// the size of the session, not the speed of a connection.
fn turns() -> Vec<Step> {
    let note = r#"{"path":"notes/{step}.md","content":"Schritt {step}: größer, 木, 😀, \"quoted\", \\ and a tab\t"}"#;
    let small = r#"{"command":"cat notes/*.md | tail -n 12"}"#;
    let large = r#"{"command":"awk 'BEGIN { for (i = 0; i < 1300; i++) printf \"%d  {step}  Überprüfung 検査 😀 %d\\n\", i, i * {step} }' > out; cat out"}"#;
    let turn = |number| match number {
        0..400 if number % 2 == 0 => Step::call("write_file", note),
        0..400 => Step::call("run_shell", small),
        _ => Step::call("run_shell", large),
    };
    let said = |number| Step { text: format!("Turn {number}: ich rechne weiter. 木 😀"), ..turn(number) };
    (0..500).map(said).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_hundred_turns_and_five_megabytes_are_made_by_running_the_loop() {
    let script =
        Script { chunk_bytes: 400, at_end: AtEnd::LoopFrom { step: 0 }, ..Script::of("large", turns()) };
    let world = World::playing_unlogged(script).await;
    let agent = world.start();
    let mut line = agent.connect().await;
    let five_hundred = async { line.step(500).await };
    tokio::time::timeout(Duration::from_secs(240), five_hundred).await.expect("in time");
    let boundary = line.quiesce(10_000).await;
    assert!(boundary.step >= 500 && boundary.messages_bytes > 5_000_000, "{boundary:?}");
    assert_eq!(boundary.turn, TurnState::ModelNext);
    agent.stop().await;
    let messages = world.messages();
    assert_eq!(messages.len() as u64, boundary.messages);
    for (index, message) in messages.iter().enumerate().skip(1).step_by(2) {
        assert!(message.contains("木 😀"), "message {index}");
    }
    // A new process reads all of it, and the model still finds it valid.
    world.run_once_more().await;
    assert!(world.messages().starts_with(&messages));
}
