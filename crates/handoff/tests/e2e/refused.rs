//! A move that cannot succeed is refused before anything is staged, in one document, and the source works on.

use std::process::{Command, Output};

use serde_json::Value;

use crate::world::World;

fn say(world: &World, words: &[&str]) -> (Output, Value) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_handoff"));
    command.args(words).arg("--json").env("HANDOFF_HOME", world.home());
    let output = command.output().expect("it runs");
    let document = serde_json::from_slice(&output.stdout).expect("exactly one document");
    (output, document)
}

#[test]
fn what_the_destination_would_refuse_is_refused_at_once() {
    let world = World::new();
    let policy = world.home().join("gateway.toml");
    let whole = std::fs::read_to_string(&policy).expect("there");
    for (text, code) in
        [("", "move_blocked"), (&whole.replace("[[price]]", "[[other]]")[..], "misconfigured")]
    {
        std::fs::write(&policy, text).expect("written");
        let (output, document) = say(&world, &["move"]);
        assert_eq!(document["code"], code, "{document}");
        assert!(matches!(output.status.code(), Some(2 | 3)), "{}", output.status);
        let (output, document) = say(&world, &["plan"]);
        assert_eq!((document["schema"].as_str(), output.status.code()), (Some("handoff.plan.v1"), Some(0)));
        assert_eq!(document["blocked"]["code"], code);
    }
    std::fs::write(&policy, whole).expect("written");
    let nowhere = "nod_00000000000000000000000001";
    let (output, document) = say(&world, &["move", "--tier", "nosuch"]);
    assert_eq!((document["code"].as_str(), output.status.code()), (Some("tier_unknown"), Some(3)));
    let (output, document) = say(&world, &["move", "--node", nowhere]);
    assert_eq!((document["code"].as_str(), output.status.code()), (Some("no_node"), Some(4)), "{document}");
    let (_, document) = say(&world, &["move", "--resume"]);
    assert_eq!(document["moved"], false, "nothing was begun");
    let before = world.log().len();
    world.until("the source works on", || world.log().len() > before);
}

/// H-6: what a refused resume had staged would stand in the way of the next.
#[tokio::test]
async fn a_refused_resume_ends_what_it_staged() {
    let world = World::new();
    let (output, moved) = say(&world, &["move"]);
    assert!(output.status.success(), "{moved}");
    let transfer: handoff_protocol::TransferId =
        moved["transfer"]["transfer"].as_str().expect("an id").parse().expect("an id");
    let session = moved["session_id"].as_str().expect("an id").to_owned();
    let (_, busy) = say(&world, &["resume", &session, "--budget", "1"]);
    assert_eq!(busy["code"], "session_busy");
    assert_eq!(busy["transfer_id"], transfer.to_string(), "it names what stands in the way");
    world.terminate(transfer).await;
    let (_, poor) = say(&world, &["resume", &session, "--budget", "0.000001"]);
    assert_eq!(poor["code"], "budget_too_small", "{poor}");
    let pending = world.client().session(session.parse().expect("an id")).await.expect("there").pending;
    assert_eq!(pending, None);
}
