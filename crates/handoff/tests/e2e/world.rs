//! A state directory with short times, a model server and a source agent; and a conscience: nothing may be left.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use handoff_client::Client;
use handoff_protocol::listing::{TransferQuery, ViewQuery};
use handoff_protocol::request::{EventType, Terminate, TransferView};
use handoff_protocol::{NanoUsd, Status, TransferId, session_dir};
use handoff_scripted_model::{Record, Script, read_log};

use crate::processes::{kill, of_this_world, sandbox_agent, sandbox_processes};

/// How long anything may take on a busy machine with two cores.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Leases of three seconds, so that what runs out runs out soon.
const SETTINGS: &str = r#"
idle_exit_ms = 600000
[policy]
grace_ms = 1000
tick_ms = 1000
lease_ms = 6000
renew_ms = 700
[node]
allow_degraded = false
checkpoint_every_ms = 2000
"#;

pub(crate) struct World {
    directory: Option<tempfile::TempDir>,
    root: PathBuf,
    model: Child,
    agent: Child,
}

impl World {
    /// A source that is at work.
    pub(crate) fn new() -> Self {
        let (directory, root) = place();
        let (model, url) = start_model(&root, &["--request-log", text(&root.join("requests.jsonl"))]);
        let agent = start_agent(&root, &url);
        let world = Self { directory: Some(directory), root, model, agent };
        until("the source works", || world.log().len() > 3);
        world
    }

    /// A source that has played so many turns of a script, was killed, and works on where it was.
    pub(crate) fn after_turns(script: &Script, turns: usize) -> Self {
        let (directory, root) = place();
        let path = root.join("script.json");
        std::fs::write(&path, serde_json::to_vec(script).expect("data")).expect("written");
        let script = ["--script", text(&path)];
        // The first model keeps no log: it would hold a digest of every message of every request.
        let (model, url) = start_model(&root, &script);
        let agent = start_agent(&root, &url);
        let mut world = Self { directory: Some(directory), root, model, agent };
        world.until_within(4 * PATIENCE, "the turns are played", || world.turns() >= turns);
        stop(&mut world.agent);
        stop(&mut world.model);
        let log = world.root.join("requests.jsonl");
        let (model, url) = start_model(&world.root, &[&script[..], &["--request-log", text(&log)]].concat());
        world.model = model;
        world.agent = start_agent(&world.root, &url);
        world.until("the source works on", || world.log().len() > 1);
        world
    }

    /// This world's `$HANDOFF_HOME`.
    pub(crate) fn home(&self) -> PathBuf {
        self.root.join("home")
    }

    /// The state directory of the source.
    pub(crate) fn source_state(&self) -> PathBuf {
        self.root.join("source")
    }

    /// The workspace of the source.
    pub(crate) fn source_workspace(&self) -> PathBuf {
        self.root.join("workspace")
    }

    /// Where the node keeps this transfer's destination.
    pub(crate) fn destination(&self, transfer: TransferId) -> PathBuf {
        self.root.join(format!("home/node/destinations/{transfer}-1"))
    }

    /// How often the model has answered the source.
    fn turns(&self) -> usize {
        let bytes = std::fs::read(self.source_state().join(session_dir::MESSAGES)).unwrap_or_default();
        bytes.split(|byte| *byte == b'\n').filter(|line| line.starts_with(br#"{"role":"assistant""#)).count()
    }

    /// Starts a command in the background.
    pub(crate) fn start(&self, words: &[&str]) -> Child {
        spawn(&self.root, words[0], words)
    }

    /// A client of this state directory's control plane.
    pub(crate) fn client(&self) -> Client {
        Client::unix(self.root.join("home/handoff.sock")).retrying(Duration::from_secs(20))
    }

    /// What the model server was asked.
    pub(crate) fn log(&self) -> Vec<Record> {
        read_log(&self.root.join("requests.jsonl")).unwrap_or_default()
    }

    /// Requests of this epoch and later ones.
    fn requests_from(&self, epoch: u64) -> usize {
        self.log().iter().filter(|record| epoch_of(record) >= Some(epoch)).count()
    }

    /// The first request of an epoch.
    pub(crate) fn first_request_of(&self, epoch: u64) -> Option<Record> {
        self.log().into_iter().find(|record| epoch_of(record) == Some(epoch))
    }

    /// Waits for a condition, and shows the logs when it does not come true.
    pub(crate) fn until(&self, what: &str, holds: impl FnMut() -> bool) {
        self.until_within(PATIENCE, what, holds);
    }

    fn until_within(&self, patience: Duration, what: &str, mut holds: impl FnMut() -> bool) {
        let deadline = Instant::now() + patience;
        while !holds() {
            assert!(Instant::now() < deadline, "not in time: {what}\n{}", self.logs());
            pause();
        }
    }

    /// SIGKILL to the process that has a role.
    pub(crate) fn kill_role(&self, role: &str) {
        let lock = self.root.join(format!("home/{role}.lock"));
        let pid = std::fs::read_to_string(lock).expect("the role runs").trim().parse().expect("a pid");
        kill(pid);
    }

    /// SIGKILL to the agent in the sandbox of this transfer.
    pub(crate) fn kill_destination_agent(&self, transfer: TransferId) {
        let mut found = None;
        until("the destination's agent runs", || {
            found = sandbox_agent(&transfer.to_string());
            found.is_some()
        });
        kill(found.expect("just found"));
    }

    /// Waits until some transfer stands in one of these, and returns it.
    pub(crate) async fn wait_for(&self, statuses: &[Status]) -> TransferView {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let query = TransferQuery::default().in_status(statuses);
            if let Ok(page) = self.client().transfers(&query).await
                && let Some(view) = page.transfers.into_iter().next()
            {
                return view;
            }
            assert!(Instant::now() < deadline, "no transfer became {statuses:?}\n{}", self.logs());
            tokio::time::timeout(Duration::from_millis(10), std::future::pending::<()>()).await.ok();
        }
    }

    /// Waits for a child of this world, and expects success.
    pub(crate) fn expect_success(&self, mut child: Child, what: &str) {
        let deadline = Instant::now() + PATIENCE;
        let status = loop {
            if let Some(status) = child.try_wait().expect("a child") {
                break status;
            }
            assert!(Instant::now() < deadline, "{what} does not end\n{}", self.logs());
            pause();
        };
        assert!(status.success(), "{what}: {status}\n{}", self.logs());
    }

    /// The session goes on in exactly one place, in this epoch or a later one; then it is ended, the books close
    /// and balance, and nothing is left.
    pub(crate) async fn conclude(mut self, transfer: TransferId, least_epoch: u64) {
        let epoch = self.client().transfer(transfer, ViewQuery::default()).await.expect("it is there").epoch;
        assert!(epoch >= least_epoch, "epoch {epoch}");
        let before = self.requests_from(epoch);
        self.until("the destination goes on", || self.requests_from(epoch) > before + 1);
        self.terminate(transfer).await;
        let view = self.closed(transfer).await;
        let budget = view.budget.expect("it had a budget");
        assert_eq!(sum_of_reports(&view), budget.spent_usd);
        assert!(budget.spent_usd > NanoUsd::ZERO && budget.spent_usd <= budget.allocated_usd);
        assert_eq!(budget.leased_usd, NanoUsd::ZERO, "an open hold");
        assert!(view.events.iter().zip(1..).all(|(event, seq)| event.seq == seq), "gaps");
        let epochs: Vec<u64> = self
            .log()
            .iter()
            .map(|record| record.epoch.as_ref().map_or(0, |epoch| epoch.parse().expect("a number")))
            .collect();
        assert!(epochs.is_sorted(), "a request of an earlier epoch after one of a later: {epochs:?}");
        until("the source has ended", || self.agent.try_wait().expect("a child").is_some());
        self.strike();
        assert_eq!(
            sandbox_processes(&transfer.to_string()),
            Vec::<i32>::new(),
            "processes of the destination"
        );
    }

    /// Ends a transfer, as an orchestrator does.
    pub(crate) async fn terminate(&self, transfer: TransferId) {
        let body = Terminate { request_id: None, reason: "the test is over".to_owned() };
        self.client().terminate(transfer, body).await.expect("terminated");
    }

    /// The books of a transfer close without anybody's help, and nothing of its destination is left.
    pub(crate) async fn closes(self, transfer: TransferId) {
        let deadline = Instant::now() + PATIENCE;
        while self
            .client()
            .transfers(&TransferQuery { unclosed: true, ..Default::default() })
            .await
            .is_ok_and(|page| page.transfers.iter().any(|view| view.transfer == transfer))
        {
            assert!(Instant::now() < deadline, "it does not close\n{}", self.logs());
            tokio::time::timeout(Duration::from_millis(50), std::future::pending::<()>()).await.ok();
        }
        assert_eq!(
            sandbox_processes(&transfer.to_string()),
            Vec::<i32>::new(),
            "processes of the destination"
        );
        assert!(!self.destination(transfer).exists(), "files of the destination");
    }

    async fn closed(&self, transfer: TransferId) -> TransferView {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let query = ViewQuery { after: Some(0), limit: Some(1000), ..ViewQuery::default() };
            let view = self.client().transfer(transfer, query).await.expect("it is there");
            if view.budget.is_some_and(|budget| budget.closed) {
                return view;
            }
            assert!(Instant::now() < deadline, "the books do not close: {view:?}\n{}", self.logs());
            tokio::time::timeout(Duration::from_millis(50), std::future::pending::<()>()).await.ok();
        }
    }

    /// The ends of all logs, for a failure's message.
    fn logs(&self) -> String {
        let mut all = String::new();
        for name in
            ["move.log", "agent.log", "home/log/supervise.log", "home/log/node.log", "home/log/gateway.log"]
        {
            let text = std::fs::read_to_string(self.root.join(name)).unwrap_or_default();
            let lines: Vec<&str> = text.lines().rev().take(12).collect();
            all.push_str(&format!("--- {name}\n"));
            lines.iter().rev().for_each(|line| all.push_str(&format!("{line}\n")));
        }
        all
    }

    fn strike(&mut self) {
        for role in ["supervise", "serve", "node", "gateway"] {
            let lock = self.root.join(format!("home/{role}.lock"));
            let pid = std::fs::read_to_string(lock).ok().and_then(|pid| pid.trim().parse().ok());
            if let Some(pid) = pid.filter(|pid| of_this_world(*pid, &self.root)) {
                kill(pid);
            }
        }
        stop(&mut self.model);
        stop(&mut self.agent);
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.strike();
        // A failed test may leave sandboxes: each is named after its destination's directory.
        for entry in std::fs::read_dir(self.root.join("home/node/destinations")).into_iter().flatten() {
            let name = entry.expect("an entry").file_name().to_string_lossy().into_owned();
            sandbox_processes(&name).into_iter().for_each(kill);
        }
        drop(self.directory.take());
    }
}

/// A state directory with short times, and an empty workspace.
pub(crate) fn place() -> (tempfile::TempDir, PathBuf) {
    use std::os::unix::fs::PermissionsExt as _;
    let directory = tempfile::Builder::new().prefix("handoff-e2e-").tempdir().expect("a directory");
    let root = directory.path().canonicalize().expect("it is there");
    for part in ["home", "workspace"] {
        std::fs::create_dir(root.join(part)).expect("made");
    }
    let private = std::fs::Permissions::from_mode(0o700);
    std::fs::set_permissions(root.join("home"), private).expect("ours");
    std::fs::write(root.join("home/config.toml"), SETTINGS).expect("written");
    (directory, root)
}

/// A model server, allowed and priced for this state directory; and its address.
fn start_model(root: &Path, words: &[&str]) -> (Child, String) {
    let address = root.join("address");
    let _ = std::fs::remove_file(&address);
    let listen = ["scripted-model", "--address-file", text(&address)];
    let model = spawn(root, "model", &[&listen[..], words].concat());
    until("the model listens", || address.exists());
    let url = std::fs::read_to_string(&address).expect("an address");
    let base = url.trim_end_matches("/v1");
    let policy = handoff_gateway::Policy::scripted_text(base, "scripted", "1.00", "4.00");
    std::fs::write(root.join("home/gateway.toml"), policy).expect("written");
    (model, url)
}

/// A source agent that works on a task, or goes on with it.
fn start_agent(root: &Path, url: &str) -> Child {
    let (workspace, state) = (root.join("workspace"), root.join("source"));
    let place = ["agent", "--name", "source", "--workspace", text(&workspace), "--state", text(&state)];
    let task = ["--task", "work", "--model-url", url, "--max-tokens", "400"];
    spawn(root, "agent", &[&place[..], &task[..]].concat())
}

fn epoch_of(record: &Record) -> Option<u64> {
    record.epoch.as_ref()?.parse().ok()
}

fn stop(child: &mut Child) {
    let _ = child.kill();
    let _ = child.wait();
}

fn spawn(root: &Path, log: &str, words: &[&str]) -> Child {
    let out = std::fs::File::create(root.join(format!("{log}.log"))).expect("a log");
    let mut command = Command::new(env!("CARGO_BIN_EXE_handoff"));
    command.args(words).env("HANDOFF_HOME", root.join("home")).current_dir(root);
    command.stdin(Stdio::null()).stdout(out.try_clone().expect("a log")).stderr(out);
    command.spawn().expect("the binary runs")
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a plain path")
}

/// Waits for a condition.
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "not in time: {what}");
        pause();
    }
}

/// Lets others run for a moment.
fn pause() {
    let never = std::sync::Mutex::new(());
    let guard = never.lock().expect("nobody else");
    let _ = std::sync::Condvar::new().wait_timeout(guard, Duration::from_millis(10));
}

/// What all reports together say was spent: the last of each epoch, and the wind-down with it.
fn sum_of_reports(view: &TransferView) -> NanoUsd {
    let mut last = std::collections::BTreeMap::new();
    for event in view.events.iter().filter(|event| event.kind == EventType::UsageReported) {
        let epoch = event.detail.get("epoch").expect("a report has an epoch").clone();
        let spent: NanoUsd = event.detail["spent_usd"].parse().expect("an amount");
        last.insert(epoch, spent);
    }
    last.into_values().sum()
}
