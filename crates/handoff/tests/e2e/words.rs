//! The command line alone: what it says, to whom, and with which exit. Nothing of it needs a session.

use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::processes::Leash;
use crate::world::{place, until};

fn handoff(home: &std::path::Path, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_handoff"));
    command.args(words).env("HANDOFF_HOME", home).stdin(Stdio::null());
    command.output().expect("it runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// H-2, H-96, H-106: what is refused here has a code, an exit that follows from it, and advice.
#[test]
fn a_local_refusal_has_a_code_an_exit_and_advice() {
    let (_directory, root) = place();
    let home = root.join("home");
    let open = root.join("open");
    std::fs::create_dir(&open).expect("made");
    std::fs::set_permissions(&open, std::os::unix::fs::PermissionsExt::from_mode(0o777)).expect("ours");
    let nowhere = std::path::PathBuf::from("/proc/nowhere");
    let transfer = "xfr_00000000000000000000000001";
    for (home, words, code, exit) in [
        (&home, &["plan"][..], "not_found", 3),
        (&home, &["plan", "--tier", "x", "--budget", "five"], "invalid_argument", 2),
        (&home, &["transfer", "push"], "invalid_argument", 2),
        (&home, &["logs", "everything"], "invalid_argument", 2),
        (&home, &["logs", transfer], "not_found", 3),
        (&home, &["agent", "--task", "t"], "invalid_argument", 2),
        (&home, &["agent", "--workspace", "/nowhere"], "invalid_argument", 2),
        (&home, &["demo", "--model-url", "http://127.0.0.1:1/v1"], "invalid_argument", 2),
        (&home, &["scripted-model", "--script", "/nowhere"], "invalid_argument", 2),
        (&home, &["approve", "--refuse"], "invalid_argument", 2),
        (&nowhere, &["status"], "misconfigured", 2),
        (&open, &["status"], "misconfigured", 2),
        (&open, &["session", "list"], "misconfigured", 2),
    ] {
        let said = handoff(home, words);
        let errors = text(&said.stderr);
        assert_eq!(said.status.code(), Some(exit), "{words:?}: {errors}");
        assert!(errors.contains("error: ") && said.stdout.is_empty(), "{words:?}: {errors}");
        let json = handoff(home, &[words, &["--json"]].concat());
        let document: Value = serde_json::from_slice(&json.stdout).expect("exactly one document");
        assert_eq!(document["schema"], "handoff.error.v1");
        assert_eq!((document["code"].as_str(), json.status.code()), (Some(code), Some(exit)), "{words:?}");
        assert_eq!(document["retryable"], false, "{document}");
        assert!(!document["hint"].as_str().expect("a hint").is_empty(), "{document}");
    }
}

/// H-97
#[test]
fn settings_that_nobody_can_run_by_start_nothing() {
    let (_directory, root) = place();
    let home = root.join("settings");
    std::fs::create_dir(&home).expect("made");
    std::fs::set_permissions(&home, std::os::unix::fs::PermissionsExt::from_mode(0o700)).expect("ours");
    for (text, said) in [
        ("reap_every_ms = 0", "reap_every_ms is 0; "),
        ("[node]\ncheckpoint_every_ms = 0", "checkpoint_every_ms is 0; "),
        ("[policy]\nlease_ms = 1\nrenew_ms = 99999999\ntick_ms = 0", "lease_ms is 1; "),
        ("[policy]\nrenew_ms = 60000", "renew_ms is 60000; "),
    ] {
        std::fs::write(home.join("config.toml"), text).expect("written");
        let refused = handoff(&home, &["serve", "--json"]);
        let document: Value = serde_json::from_slice(&refused.stdout).expect("exactly one document");
        assert_eq!((document["code"].as_str(), refused.status.code()), (Some("misconfigured"), Some(2)));
        let message = document["message"].as_str().expect("a message");
        assert!(message.contains(said) && message.contains("it may be from "), "{message}");
        assert!(!home.join("handoff.db").exists() && !home.join("handoff.sock").exists(), "{text}");
    }
}

/// H-94
#[test]
fn a_second_control_plane_is_refused_with_the_way_to_end_the_first() {
    let (_directory, root) = place();
    let home = root.join("home");
    let mut command = Command::new(env!("CARGO_BIN_EXE_handoff"));
    command.arg("serve").env("HANDOFF_HOME", &home).stdin(Stdio::null());
    let log = std::fs::File::create(root.join("serve.log")).expect("a log");
    command.stdout(log.try_clone().expect("a log")).stderr(log);
    let serve = Leash::on(command.spawn().expect("it starts"));
    until("it serves", || home.join("handoff.sock").exists());
    let second = handoff(&home, &["serve", "--json"]);
    let document: Value = serde_json::from_slice(&second.stdout).expect("exactly one document");
    assert_eq!((document["code"].as_str(), second.status.code()), (Some("store_locked"), Some(3)));
    assert!(document["hint"].as_str().expect("a hint").contains("serve --stop"), "{document}");
    for words in [&["session", "list"][..], &["status"], &["approve"], &["reap"], &["doctor"]] {
        let said = handoff(&home, &[words, &["--json"]].concat());
        let document: Value = serde_json::from_slice(&said.stdout).expect("exactly one document");
        let schema = document["schema"].as_str().expect("a schema");
        assert!(schema.starts_with("handoff.") && schema.ends_with(".v1"), "{words:?}: {document}");
    }
    serve.end();
}

#[test]
fn the_help_says_where_the_rest_is() {
    let (_directory, root) = place();
    for words in [&["--help"][..], &["help"]] {
        let said = handoff(&root, words);
        let help = text(&said.stdout);
        assert!(said.status.success(), "{words:?}");
        for word in ["agent", "transfer", "token", "--home", "HANDOFF_HOME", "Exit codes"] {
            assert!(help.contains(word), "{words:?}: {word}\n{help}");
        }
    }
}
