//! A session of the size that people really have: made by running the loop, moved in mid-task.

use std::collections::BTreeMap;
use std::path::Path;

use handoff_protocol::{Digest, Status, session_dir};
use handoff_scripted_model::{AtEnd, Script, Step};

use crate::world::World;

const TURNS: usize = 500;
const BYTES: usize = 5_000_000;

/// Small turns first: every turn sends all before it once more, and what is tested is the size of the session,
/// not the speed of a connection. The last step is repeated for ever, so the task is never over.
fn script() -> Script {
    let note = r#"{"path":"notes/{step}.md","content":"Schritt {step}: größer, 木, 😀, \"quoted\", \\ and a tab\t"}"#;
    let small = r#"{"command":"cat notes/*.md | tail -n 12"}"#;
    let large = r#"{"command":"awk 'BEGIN { for (i = 0; i < 1300; i++) printf \"%d  {step}  Überprüfung 検査 😀 %d\\n\", i, i * {step} }' > out; cat out"}"#;
    let last = r#"{"command":"echo {step} {round} >> rounds; tail -n 1 out"}"#;
    let turn = |number| match number {
        0..400 if number % 2 == 0 => Step::call("write_file", note),
        0..400 => Step::call("run_shell", small),
        400..TURNS => Step::call("run_shell", large),
        _ => Step { delay_ms: Some(5), ..Step::call("run_shell", last) },
    };
    let said = |number| Step { text: format!("Turn {number}: ich rechne weiter. 木 😀"), ..turn(number) };
    let steps = (0..=TURNS).map(said).collect();
    Script { chunk_bytes: 400, at_end: AtEnd::LoopFrom { step: TURNS }, ..Script::of("large", steps) }
}

#[tokio::test]
async fn a_session_of_500_turns_and_5_megabytes_moves_in_mid_task() {
    let world = World::after_turns(&script(), TURNS);
    let moving = world.start(&["move", "--budget", "100.00"]);
    world.expect_success(moving, "the move");
    let view = world.wait_for(&[Status::Active]).await;
    world.until("the destination asks the model", || world.first_request_of(2).is_some());

    let history =
        std::fs::read(world.source_state().join(session_dir::MESSAGES)).expect("what the source left");
    assert!(history.len() > BYTES, "{} bytes", history.len());
    let history: Vec<Digest> =
        history.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).map(Digest::of).collect();
    assert!(history.len() > 2 * TURNS, "{} messages", history.len());
    let asked = world.first_request_of(2).expect("just seen").message_digests;
    assert_eq!(&asked[..history.len()], &history[..], "the conversation is not the source's, byte for byte");

    let (left, found) =
        (files(&world.source_workspace()), files(&world.destination(view.transfer).join("workspace")));
    assert!(left.len() > 200, "{} files", left.len());
    for (name, bytes) in left.iter().filter(|(name, _)| *name != "rounds") {
        assert_eq!(found.get(name), Some(bytes), "{name}");
    }
    assert!(found["rounds"].starts_with(&left["rounds"]), "the task goes on where it was");
    world.conclude(view.transfer, 2).await;
}

fn files(root: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut open = vec![root.to_owned()];
    while let Some(directory) = open.pop() {
        for entry in std::fs::read_dir(&directory).expect("a directory") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                open.push(path);
            } else {
                let name = path.strip_prefix(root).expect("below it").to_string_lossy().into_owned();
                found.insert(name, std::fs::read(&path).expect("a file"));
            }
        }
    }
    found
}
