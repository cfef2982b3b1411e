//! Loops that are cut off at every point, and go on.

use std::process::{Command, Stdio};
use std::time::Duration;

use handoff_agent::control::Control;
use handoff_agent::machine::Effect;
use handoff_agent::{AgentOptions, INTERRUPTED, Place};
use handoff_scripted_model::{AtEnd, Script, Step};

use crate::world::{World, assert_one_conversation, endpoint, until, within};

fn script() -> Script {
    let append = |text: &str| format!(r#"{{"path":"log","content":"{text}\n"}}"#);
    let steps = vec![
        Step::call("append_file", &append("one")).and_call("append_file", &append("two")),
        Step { text: "näher".into(), ..Step::call("run_shell", r#"{"command":"echo three >> log"}"#) },
        Step::call("read_file", r#"{"path":"log"}"#),
        Step::say("done"),
    ];
    Script { at_end: AtEnd::Idle { text: "idle".into() }, ..Script::of("t", steps) }
}

/// The history is the reference's, but for results that say that they are not known, and what is read later.
fn assert_same_but_for_interruptions(world: &World, reference: &[String]) {
    let messages = world.messages();
    assert_eq!(messages.len(), reference.len(), "{messages:#?}");
    let mut interrupted = false;
    for (message, expected) in messages.iter().zip(reference) {
        if message != expected {
            let read = interrupted && expected.contains("one");
            assert!(message.contains(INTERRUPTED) || read, "{message}\ninstead of\n{expected}");
            interrupted = true;
        }
    }
    let log = world.file("log");
    for line in ["one", "two", "three"] {
        let times = log.lines().filter(|written| *written == line).count();
        assert!(times <= 1, "'{line}' was written {times} times");
        assert!(times == 1 || interrupted, "'{line}' is missing");
    }
    assert_eq!(world.boundary().step, 4);
    assert_one_conversation(&world.requests());
}

#[tokio::test]
async fn cut_off_after_any_effect_it_goes_on_where_it_was() {
    let reference = World::playing(script()).await;
    reference.run_until_idle().await;
    let expected = reference.messages();
    let mut unknown = 0;
    for effects in 1.. {
        let world = World::playing(script()).await;
        let Some(last) = world.cut_off_after(effects).await else {
            assert!(effects > 20, "only {effects} effects");
            break;
        };
        world.run_until_idle().await;
        assert_same_but_for_interruptions(&world, &expected);
        let interrupted = world.messages() != expected;
        unknown += usize::from(interrupted);
        let in_tool = matches!(last, Effect::RunTool { .. } | Effect::WriteBoundary(_));
        assert!(in_tool || !interrupted, "after {last:?} nothing is unknown");
    }
    assert!(unknown >= 4, "each of the four tools was cut off at least once");
}

#[tokio::test]
async fn cut_off_again_and_again_it_still_arrives() {
    let reference = World::playing(script()).await;
    reference.run_until_idle().await;
    for effects in [2, 3, 5, 7] {
        let world = World::playing(script()).await;
        let mut starts = 0;
        while world.cut_off_after(effects).await.is_some() {
            starts += 1;
            assert!(starts < 100, "it gets nowhere");
        }
        assert_same_but_for_interruptions(&world, &reference.messages());
    }
}

/// Not a test of its own: the agent in a process that [`killed_for_real_it_goes_on_where_it_was`] kills.
#[test]
fn an_agent_in_a_process_of_its_own() {
    let Ok(dir) = std::env::var("HANDOFF_TEST_AGENT_DIR") else { return };
    let dir = std::path::Path::new(&dir);
    let endpoint = endpoint(dir);
    let place = Place::Source { register: None };
    let options =
        AgentOptions::new(dir.join("session"), dir.join("workspace"), endpoint, Control::None, place);
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(handoff_agent::run(options)).expect("it runs until it is killed");
}

#[tokio::test]
async fn killed_for_real_it_goes_on_where_it_was() {
    let step = Step::call("run_shell", r#"{"command":"echo {step} >> log"}"#);
    let script = Script { at_end: AtEnd::LoopFrom { step: 0 }, ..Script::of("t", vec![step]) };
    let world = World::playing(script).await;
    let mut kills = 0;
    while world.boundary().step < 40 {
        let mut child = Command::new(std::env::current_exe().expect("this test"))
            .args(["--exact", "killed::an_agent_in_a_process_of_its_own", "--nocapture"])
            .env("HANDOFF_TEST_AGENT_DIR", world.dir.path())
            .stdout(Stdio::null())
            .spawn()
            .expect("a process");
        let goal = world.boundary().step + 3 + kills % 3;
        until(|| world.boundary().step >= goal).await;
        // Somewhere within the next step, at another place each time.
        let mut places = tokio::time::interval(Duration::from_micros(1 + 700 * (kills % 7)));
        places.tick().await;
        places.tick().await;
        child.kill().expect("killed");
        within(async { child.wait().expect("ended") }).await;
        kills += 1;
    }
    assert!(kills >= 5);
    let messages = world.messages();
    let log = world.file("log");
    for step in 0..world.boundary().step {
        let times = log.lines().filter(|line| **line == step.to_string()).count();
        let result =
            messages.iter().find(|message| message.contains(&format!("\"call_{step}_0\",\"content\"")));
        let unknown = result.is_none_or(|result| result.contains(INTERRUPTED));
        assert!(times == 1 || (times == 0 && unknown), "step {step} ran {times} times: {result:?}");
    }
    world.run_once_more().await;
    assert_one_conversation(&world.requests());
}
