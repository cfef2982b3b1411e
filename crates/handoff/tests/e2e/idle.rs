//! A control plane in the background comes and goes by itself. No command notices, except where somebody must
//! correct something first: then it is said at once.

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::processes::Leash;
use crate::world::{PATIENCE, place, until};

/// How long a control plane may take to start.
const START_WITHIN: Duration = Duration::from_secs(20);

/// A state directory whose background processes are ended with it.
struct Background {
    _directory: tempfile::TempDir,
    root: PathBuf,
}

impl Background {
    fn with_settings(settings: &str) -> Self {
        let (directory, root) = place();
        std::fs::write(root.join("home/config.toml"), settings).expect("written");
        Self { _directory: directory, root }
    }

    fn home(&self) -> PathBuf {
        self.root.join("home")
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_handoff"));
        command.args(words).env("HANDOFF_HOME", self.home()).env("XDG_CONFIG_HOME", &self.root);
        command.stdin(Stdio::null());
        command
    }

    fn say(&self, words: &[&str]) -> Output {
        self.command(words).output().expect("it runs")
    }

    /// What the background processes have written.
    fn log(&self) -> String {
        std::fs::read_to_string(self.home().join("log/supervise.log")).unwrap_or_default()
    }

    /// How often a control plane has begun to serve in the background.
    fn starts(&self) -> usize {
        self.log().lines().filter(|line| line.contains("serving")).count()
    }

    /// A command that must not fail.
    fn succeeds(&self, words: &[&str]) {
        let said = self.say(words);
        assert!(said.status.success(), "{}: {}\n{}", said.status, errors(&said), self.log());
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.say(&["serve", "--stop"]);
    }
}

fn errors(said: &Output) -> String {
    String::from_utf8_lossy(&said.stderr).into_owned()
}

/// H-94
#[test]
fn no_command_fails_because_the_control_plane_is_just_ending() {
    let background = Background::with_settings("idle_exit_ms = 1000\n");
    let log = std::fs::File::create(background.root.join("serve.log")).expect("a log");
    let mut command = background.command(&["serve"]);
    command.stdout(log.try_clone().expect("a log")).stderr(log);
    let by_hand = Leash::on(command.spawn().expect("it starts"));
    until("it serves", || background.home().join("handoff.sock").exists());
    let ending = std::thread::spawn(move || by_hand.end());
    let deadline = Instant::now() + PATIENCE;
    while background.starts() < 4 {
        assert!(Instant::now() < deadline, "it does not end by itself");
        background.succeeds(&["session", "list"]);
    }
    ending.join().expect("it ended");
}

/// H-94
#[test]
fn commands_at_the_same_time_share_one_control_plane() {
    let background = Background::with_settings("idle_exit_ms = 1000\n");
    let deadline = Instant::now() + PATIENCE;
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while background.starts() < 3 {
                    assert!(Instant::now() < deadline, "it does not end by itself");
                    background.succeeds(&["session", "list"]);
                }
            });
        }
    });
}

/// H-106
#[test]
fn what_somebody_must_correct_is_said_at_once() {
    for (file, text, what) in [
        ("config.toml", "x = 1\n", "config.toml, line 1: unknown field `x`"),
        ("handoff.sock", "", "handoff.sock is not a place for a socket"),
        ("handoff.db", "not a store, but long enough for one", "handoff.db is not a store"),
    ] {
        let background = Background::with_settings("");
        std::fs::write(background.home().join(file), text).expect("written");
        let began = Instant::now();
        let said = background.say(&["session", "list", "--json"]);
        assert!(began.elapsed() < START_WITHIN / 2, "{:?}", began.elapsed());
        let document: Value = serde_json::from_slice(&said.stdout).expect("exactly one document");
        assert_eq!((document["code"].as_str(), said.status.code()), (Some("misconfigured"), Some(2)));
        assert!(document["message"].as_str().expect("a message").contains(what), "{document}");
        let stopped = background.say(&["serve", "--stop"]);
        assert_eq!(String::from_utf8_lossy(&stopped.stdout), "nothing was running\n");
        assert_eq!(background.say(&["serve"]).status.code(), said.status.code(), "as in the foreground");
    }
}
