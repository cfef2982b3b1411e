//! The demo keeps its promises, and says so in one document.

use std::process::Command;

use serde_json::Value;

/// H-96
#[test]
fn the_demo_keeps_every_promise_and_leaves_nothing() {
    let output =
        Command::new(env!("CARGO_BIN_EXE_handoff")).args(["demo", "--json"]).output().expect("it runs");
    let progress = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{progress}");
    let document: Value = serde_json::from_slice(&output.stdout).expect("one document");
    assert_eq!(document["schema"], "handoff.demo.v1");
    let words = ["staged", "provisioned", "pushed", "active", "insolvent", "terminated"];
    assert_eq!(document["statuses"], serde_json::json!(words));
    let promises = document["promises"].as_array().expect("a list");
    assert!(promises.len() >= 8 && promises.iter().all(|promise| promise["ok"] == true), "{promises:?}");
    assert_eq!(document["ledger"]["sum_usd"], document["ledger"]["spent_usd"]);
    assert!(progress.contains("story, not a system claim"), "narration is marked");
    assert!(progress.contains("scripted"), "the model says what it is");
}
