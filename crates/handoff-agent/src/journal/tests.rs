//! What a start finds in a session directory, however the last one ended.

use super::*;
use crate::message::{tool_result, user};

const ASKED: &str = r#"{"role":"assistant","content":null,"tool_calls":[{"id":"a","type":"function","function":{"name":"t","arguments":"{}"}}]}"#;

struct Dir(tempfile::TempDir);

impl Dir {
    fn with(messages: &[u8], boundary: Option<(u64, usize, TurnState)>) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::write(dir.path().join(MESSAGES), messages).expect("written");
        if let Some((count, bytes, turn)) = boundary {
            let boundary = Boundary { step: 7, messages_bytes: bytes as u64, messages: count, turn };
            let text = serde_json::to_vec(&boundary).expect("plain data");
            std::fs::write(dir.path().join(BOUNDARY), text).expect("written");
        }
        Self(dir)
    }

    fn open(&self) -> Result<Loaded, AgentError> {
        Journal::lock(self.0.path())?.load()
    }

    fn why(&self) -> String {
        self.open().map(|_| ()).expect_err("refused").to_string()
    }

    fn messages(&self) -> String {
        std::fs::read_to_string(self.0.path().join(MESSAGES)).expect("text")
    }
}

fn lines(messages: &[&str]) -> String {
    messages.iter().map(|message| format!("{message}\n")).collect()
}

fn open_call() -> TurnState {
    TurnState::ToolsOpen { calls: vec!["a".into()] }
}

#[test]
fn a_torn_message_is_cut_back_and_whole_ones_stay() {
    let hi = user("hi");
    let certain = lines(&[&hi]);
    for torn in ["", "{\"role\":\"assi", "{\"role\":\"assistant\",\"content\":\"x\"}", "\0\0\0\0\n", "{}\n"] {
        let dir =
            Dir::with((certain.clone() + torn).as_bytes(), Some((1, certain.len(), TurnState::ModelNext)));
        let loaded = dir.open().expect("loads");
        assert_eq!(dir.messages(), certain);
        assert_eq!((loaded.now.clone(), loaded.now.step), (loaded.durable, 7));
        assert!(loaded.recovered.model_next);
    }
    let whole = certain.clone() + &lines(&[ASKED]);
    let dir = Dir::with((whole.clone() + "{").as_bytes(), Some((1, certain.len(), TurnState::ModelNext)));
    let loaded = dir.open().expect("loads");
    assert_eq!(dir.messages(), whole);
    assert_eq!((loaded.now.step, loaded.now.messages, loaded.durable.messages), (8, 2, 1));
    assert_eq!(loaded.now.turn, open_call());
    assert!(!loaded.recovered.may_have_run, "the boundary that lets it run was not written");
}

#[test]
fn case_s03_an_open_call_at_the_boundary_may_have_run() {
    let text = lines(&[&user("hi"), ASKED]);
    let dir = Dir::with(text.as_bytes(), Some((2, text.len(), open_call())));
    let recovered = dir.open().expect("loads").recovered;
    assert!(recovered.may_have_run);
    assert_eq!(recovered.open.len(), 1);
    // Its result is there, but the boundary is not: nothing is open any more.
    let done = text.clone() + &lines(&[&tool_result(&recovered.open[0], "x")]);
    let dir = Dir::with(done.as_bytes(), Some((2, text.len(), open_call())));
    let recovered = dir.open().expect("loads").recovered;
    assert_eq!((recovered.open.len(), recovered.may_have_run, recovered.model_next), (0, false, true));
}

#[test]
fn without_a_boundary_every_line_counts_and_one_is_written() {
    let text = lines(&[&user("hi"), ASKED]);
    for text in [text.clone(), text.trim_end().to_owned()] {
        let dir = Dir::with(text.as_bytes(), None);
        let loaded = dir.open().expect("loads");
        assert_eq!((loaded.now.step, loaded.now.messages), (1, 2));
        assert!(loaded.recovered.may_have_run);
        assert!(dir.messages().ends_with("}\n"));
        drop(loaded);
        let again = dir.open().expect("loads");
        assert_eq!(again.durable, again.now);
        assert_eq!(again.now.messages_bytes, dir.messages().len() as u64);
    }
    let dir = Dir::with(b"", None);
    assert_eq!(dir.open().expect("loads").now.turn, TurnState::Idle);
}

#[test]
fn case_s10_a_session_that_ends_with_an_answer_waits() {
    let text = lines(&[&user("hi"), r#"{"role":"assistant","content":"done"}"#]);
    let loaded = Dir::with(text.as_bytes(), None).open().expect("loads");
    assert_eq!((loaded.now.turn, loaded.recovered.model_next), (TurnState::Idle, false));
}

#[test]
fn case_s08_damage_before_the_boundary_is_named_by_its_line() {
    let good = user("x");
    let hole = format!("{good}\n{}\n{good}\n", "\0".repeat(300));
    let dir = Dir::with(hole.as_bytes(), Some((3, hole.len(), TurnState::ModelNext)));
    assert!(dir.why().contains("line 2"), "{}", dir.why());
    assert!(Dir::with(hole.as_bytes(), None).why().contains("line 2"));
    let text = lines(&[&good, &good]);
    for (count, bytes, said) in [
        (2, text.len() + 1, "the boundary speaks of"),
        (1, text.len(), "2 messages"),
        (1, 5, "within a message"),
    ] {
        let why = Dir::with(text.as_bytes(), Some((count, bytes, TurnState::Idle))).why();
        assert!(why.contains(said), "{why}");
    }
}

#[test]
fn case_s16_and_s15_keys_stay_in_order_and_what_is_ambiguous_is_refused() {
    let odd = r#"{"b":1,"a":2,"role":"user","content":"\u0000 \ud83d","n":117.63331139400017}"#;
    let dir = Dir::with(lines(&[odd]).as_bytes(), None);
    let loaded = dir.open().expect("loads");
    assert_eq!(dir.messages(), lines(&[odd]));
    assert_eq!(loaded.outgoing.messages(), odd.replace("\\ud83d", "\\ufffd"));
    let twice = r#"{"role":"user","content":"x","a":1,"a":2}"#;
    assert!(Dir::with(lines(&[twice]).as_bytes(), None).why().contains("stands twice"));
    let deep = format!(r#"{{"role":"user","content":"x","x":{}{}}}"#, "[".repeat(5000), "]".repeat(5000));
    assert!(Dir::with(lines(&[&deep]).as_bytes(), None).why().contains("nested deeper"));
}

#[test]
fn one_session_has_one_agent() {
    let dir = Dir::with(b"", None);
    let first = dir.open().expect("loads");
    assert!(matches!(dir.open(), Err(AgentError::InUse(_))));
    drop(first);
    assert!(dir.open().is_ok());
}

#[test]
fn the_system_prompt_may_be_a_text_blocks_or_absent() {
    let dir = Dir::with(b"", None);
    for (prompt, expected) in [
        ("\"be\\ud83d\"", r#"{"role":"system","content":"be\ufffd"}"#),
        (
            " [{\"type\":\"text\",\"text\":\"x\"}]\n",
            r#"{"role":"system","content":[{"type":"text","text":"x"}]}"#,
        ),
        ("null", ""),
        ("", ""),
    ] {
        std::fs::write(dir.0.path().join(SYSTEM_PROMPT), prompt).expect("written");
        assert_eq!(dir.open().expect("loads").system, expected);
    }
    std::fs::write(dir.0.path().join(SYSTEM_PROMPT), "7").expect("written");
    assert!(dir.why().contains("neither"));
}

#[test]
fn what_is_appended_is_found_again() {
    let dir = Dir::with(b"", None);
    let mut loaded = dir.open().expect("loads");
    let message = user("木\0😀");
    loaded.journal.append(&message).expect("appended");
    let boundary = Boundary {
        step: 0,
        messages_bytes: message.len() as u64 + 1,
        messages: 1,
        turn: TurnState::ModelNext,
    };
    loaded.journal.write_boundary(&boundary).expect("written");
    drop(loaded);
    let again = dir.open().expect("loads");
    assert_eq!((again.durable, again.now), (boundary.clone(), boundary));
}
