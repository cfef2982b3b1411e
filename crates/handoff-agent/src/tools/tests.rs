//! The tools in a real workspace.

use std::os::unix::fs::symlink;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::*;

struct World {
    dir: tempfile::TempDir,
    tools: Arc<Tools>,
}

impl World {
    fn new() -> Self {
        Self::with(ToolLimits::default(), ToolState::default())
    }

    fn with(limits: ToolLimits, state: ToolState) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let root = dir.path().join("workspace");
        std::fs::create_dir(&root).expect("made");
        let workspace = Workspace::open(&root, vec!["/home/somebody/project".into()]).expect("opened");
        Self { dir, tools: Arc::new(Tools::new(workspace, limits, state)) }
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.dir.path().join("workspace").join(name)
    }

    async fn run(&self, name: &str, arguments: &str) -> String {
        self.run_until(name, arguments, CancellationToken::new()).await
    }

    async fn run_until(&self, name: &str, arguments: &str, cancel: CancellationToken) -> String {
        let call = ToolCall { id: "\"a\"".into(), name: name.into(), arguments: arguments.into() };
        self.tools.clone().run(call, cancel).await
    }
}

#[tokio::test]
async fn files_are_written_appended_read_and_listed() {
    let world = World::new();
    let wrote = world.run("write_file", r#"{"path":"a/b/c.txt","content":"é\u0000\n"}"#).await;
    assert_eq!(wrote, "wrote 4 bytes; a/b/c.txt has 4 bytes");
    world.run("append_file", r#"{"path":"a/b/c.txt","content":"more"}"#).await;
    assert_eq!(world.run("read_file", r#"{"path":"a/b/c.txt"}"#).await, "é\0\nmore");
    let cut = world.run("read_file", r#"{"path":"a/b/c.txt","offset":4,"max_bytes":2}"#).await;
    assert_eq!(cut, "mo\n[2 of 4 bytes shown]");
    world.run("write_file", r#"{"path":"a/b/c.txt","content":"x"}"#).await;
    assert_eq!(std::fs::read(world.path("a/b/c.txt")).expect("there"), b"x");
    let listed = world.run("list_files", r#"{"depth":3}"#).await;
    let lines: Vec<_> = listed.lines().map(|line| line.split(' ').next_back().expect("a path")).collect();
    assert_eq!(lines, ["a", "a/b", "a/b/c.txt"]);
    assert!(listed.contains("file 1 a/b/c.txt"));
    let state = world.tools.state();
    assert_eq!((state.calls["write_file"], state.calls["read_file"]), (2, 2));
    assert!(state.files.contains("a/b/c.txt"));
}

#[tokio::test]
async fn nothing_outside_of_the_workspace_is_reached() {
    let world = World::new();
    std::fs::write(world.dir.path().join("secret"), "s3cret").expect("written");
    symlink(world.dir.path(), world.path("out")).expect("linked");
    symlink("../secret", world.path("link")).expect("linked");
    symlink("/proc/self/cwd", world.path("magic")).expect("linked");
    std::fs::create_dir(world.path("in")).expect("made");
    symlink("in", world.path("alias")).expect("linked");
    for path in ["../secret", "out/secret", "link", "/etc/passwd", "in/../../secret", "magic/x"] {
        for (tool, rest) in
            [("read_file", ""), ("write_file", r#","content":"x""#), ("append_file", r#","content":"x""#)]
        {
            let said = world.run(tool, &format!(r#"{{"path":"{path}"{rest}}}"#)).await;
            assert!(said.starts_with("error: "), "{tool} {path}: {said}");
            assert!(!said.contains("s3cret"));
        }
    }
    assert_eq!(std::fs::read_to_string(world.dir.path().join("secret")).expect("there"), "s3cret");
    assert!(!world.dir.path().join("x").exists());
    assert!(world.run("list_files", r#"{"path":".."}"#).await.starts_with("error: "));
    let wrote = world.run("write_file", r#"{"path":"alias/x","content":"1"}"#).await;
    assert!(wrote.starts_with("wrote"), "a link within the workspace is fine: {wrote}");
}

#[tokio::test]
async fn case_s24_what_is_no_regular_file_is_never_waited_for() {
    let world = World::new();
    let fifo = world.path("fifo");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, 0o600.into(), 0).expect("made");
    for (tool, rest) in [("read_file", ""), ("write_file", r#","content":"x""#)] {
        let run = world.run(tool, &format!(r#"{{"path":"fifo"{rest}}}"#)).await;
        assert!(run.starts_with("error: fifo"), "{run}");
    }
    assert!(world.run("read_file", r#"{"path":"."}"#).await.starts_with("error: "));
}

#[tokio::test]
async fn case_s13_paths_of_another_host_mean_this_workspace() {
    let world = World::new();
    world.run("write_file", r#"{"path":"/home/somebody/project/a","content":"x"}"#).await;
    assert!(world.path("a").exists());
    let state = ToolState { cwd: "gone/here".into(), ..ToolState::default() };
    let moved = World::with(ToolLimits::default(), state);
    let said = moved.run("run_shell", r#"{"command":"pwd"}"#).await;
    assert!(said.starts_with("note: the directory 'gone/here' is not here"), "{said}");
    assert!(said.contains(&moved.path("").display().to_string().trim_end_matches('/').to_owned()));
    assert_eq!(moved.tools.state().cwd, ".");
}

#[tokio::test]
async fn a_command_has_its_output_its_end_and_its_directory() {
    let world = World::new();
    let said = world.run("run_shell", r#"{"command":"echo out; echo err >&2; exit 3"}"#).await;
    assert_eq!(said, "exit 3\nout\n--- standard error\nerr\n");
    world.run("run_shell", r#"{"command":"mkdir -p d/e"}"#).await;
    world.run("run_shell", r#"{"command":"touch here","cwd":"d/e"}"#).await;
    assert!(world.path("d/e/here").exists());
    assert_eq!(world.tools.state().cwd, "d/e");
    let said = world.run("run_shell", r#"{"command":"ls; kill -9 $$"}"#).await;
    assert_eq!(said, "ended by signal 9\nhere\n");
    assert!(world.run("run_shell", r#"{"command":"ls","cwd":"/"}"#).await.starts_with("error: "));
}

#[tokio::test]
async fn a_command_is_bounded_in_time_and_output() {
    let limits = ToolLimits { output_bytes: 100, shell_ms: 60_000, ..ToolLimits::default() };
    let world = World::with(limits, ToolState::default());
    let said = world.run("run_shell", r#"{"command":"yes | head -c 1000000"}"#).await;
    assert!(said.ends_with("[100 of 1000000 bytes shown]"), "{said}");
    let said = world.run("run_shell", r#"{"command":"echo a; sleep 600","timeout_ms":200}"#).await;
    assert_eq!(said, "killed after 200 ms\na\n");
}

#[tokio::test]
async fn what_a_command_leaves_running_ends_with_it() {
    let world = World::new();
    let begun = Instant::now();
    let said = world.run("run_shell", r#"{"command":"sleep 600 & echo $!"}"#).await;
    assert!(begun.elapsed() < Duration::from_secs(60));
    let pid: u32 = said.lines().nth(1).expect("a pid").parse().expect("a number");
    let gone = || match std::fs::read_to_string(format!("/proc/{pid}/stat")) {
        // Ended, and not yet taken note of by whoever it was left to.
        Ok(stat) => stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('Z')),
        Err(_) => true,
    };
    let deadline = Instant::now() + Duration::from_secs(10);
    while !gone() {
        assert!(Instant::now() < deadline, "process {pid} still runs");
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_cancelled_command_is_over_when_the_call_returns() {
    let world = World::new();
    let cancel = CancellationToken::new();
    let command = r#"{"command":"touch begun; while :; do echo x >> log; done"}"#;
    let running = world.run_until("run_shell", command, cancel.clone());
    tokio::pin!(running);
    while !world.path("begun").exists() {
        assert!(tokio::time::timeout(Duration::from_millis(5), &mut running).await.is_err());
    }
    cancel.cancel();
    running.await;
    let size = |world: &World| std::fs::metadata(world.path("log")).map(|log| log.len()).unwrap_or(0);
    let after = size(&world);
    world.run("run_shell", r#"{"command":"sleep 0.05"}"#).await;
    assert_eq!(size(&world), after);
}

#[tokio::test]
async fn case_s33_a_command_sees_no_more_of_the_environment_than_it_needs() {
    let world = World::new();
    let said = world.run("run_shell", r#"{"command":"env"}"#).await;
    // The runner of this test has set these; they are not on the list.
    assert!(std::env::vars().any(|(name, _)| name.starts_with("CARGO")));
    assert!(!said.contains("CARGO"), "{said}");
    assert!(said.contains("PATH="));
}

#[tokio::test]
async fn calls_that_cannot_be_understood_are_answered() {
    let world = World::new();
    for (tool, arguments, said) in [
        ("read_file", "{", "are not valid"),
        ("read_file", "{}", "missing field `path`"),
        ("read_file", r#"{"path":"x","force":true}"#, "unknown field"),
        ("read_file", r#"{"path":"absent"}"#, "No such file"),
        ("fly", "{}", "there is no tool 'fly'"),
        ("list_files", "", "(empty)"),
    ] {
        let answer = world.run(tool, arguments).await;
        assert!(answer.contains(said), "{tool} {arguments}: {answer}");
    }
    // A lone surrogate in the arguments is written as U+FFFD.
    world.run("write_file", r#"{"path":"s","content":"\ud83d"}"#).await;
    assert_eq!(std::fs::read_to_string(world.path("s")).expect("there"), "\u{fffd}");
}

#[test]
fn the_offered_tools_are_the_ones_there_are() {
    let offered: serde_json::Value = serde_json::from_str(OFFERED).expect("JSON");
    let names: Vec<_> =
        offered.as_array().expect("a list").iter().map(|tool| &tool["function"]["name"]).collect();
    let known =
        ["read_file", "write_file", "append_file", "list_files", "run_shell", crate::self_snapshot::NAME];
    assert_eq!(names, known);
}
