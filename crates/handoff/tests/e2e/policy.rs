//! The policy file is edited under a gateway that runs.

use std::process::Command;

use serde_json::Value;

use crate::processes::Leash;
use crate::world::World;

/// What doctor says of the gateway.
fn gateway(world: &World) -> Option<(String, String)> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_handoff"));
    let output =
        command.args(["doctor", "--json"]).env("HANDOFF_HOME", world.home()).output().expect("it runs");
    let document: Value = serde_json::from_slice(&output.stdout).expect("one document");
    let checks = document["checks"].as_array().expect("a list");
    let check = checks.iter().find(|check| check["what"] == "gateway")?;
    let word = |key: &str| check[key].as_str().expect("a word").to_owned();
    Some((word("verdict"), word("detail")))
}

#[test]
fn a_running_gateway_takes_up_an_edited_policy_and_keeps_the_last_good_one() {
    let world = World::new();
    assert_eq!(gateway(&world).expect("a check").0, "note", "none runs");
    let _serve = Leash::on(world.start(&["serve"]));
    let runs_by_this = || gateway(&world).is_some_and(|(verdict, _)| verdict == "ok");
    world.until("the gateway runs", runs_by_this);
    let policy = world.home().join("gateway.toml");
    let whole = std::fs::read_to_string(&policy).expect("there");
    std::fs::write(&policy, format!("{whole}\n[limits]\ncalls = 3\n")).expect("written");
    world.until("the edited policy is in force", runs_by_this);
    // A malformed one is none that a gateway could run by; the one before is still in force when it is put back.
    std::fs::write(&policy, "colour = 1").expect("written");
    assert_eq!(gateway(&world), None);
    std::fs::write(&policy, whole).expect("written");
    world.until("the policy is in force again", runs_by_this);
}
