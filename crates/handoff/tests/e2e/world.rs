//! A state directory with short times, a model server and a source agent; and a conscience: nothing may be left.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use handoff_client::Client;
use handoff_protocol::listing::{TransferQuery, ViewQuery};
use handoff_protocol::request::{EventType, Terminate, TransferView};
use handoff_protocol::{NanoUsd, Status, TransferId};
use handoff_scripted_model::{Record, read_log};

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
        let directory = tempfile::Builder::new().prefix("handoff-e2e-").tempdir().expect("a directory");
        let root = directory.path().canonicalize().expect("it is there");
        for part in ["home", "workspace"] {
            std::fs::create_dir(root.join(part)).expect("made");
        }
        use std::os::unix::fs::PermissionsExt as _;
        let private = std::fs::Permissions::from_mode(0o700);
        std::fs::set_permissions(root.join("home"), private).expect("ours");
        std::fs::write(root.join("home/config.toml"), SETTINGS).expect("written");
        let address = root.join("address");
        let log = root.join("requests.jsonl");
        let words = ["--address-file", text(&address), "--request-log", text(&log)];
        let model = spawn(&root, "model", &[&["scripted-model"], &words[..]].concat());
        until("the model listens", || address.exists());
        let url = std::fs::read_to_string(&address).expect("an address");
        let policy =
            handoff_gateway::Policy::scripted_text(url.trim_end_matches("/v1"), "scripted", "1.00", "4.00");
        std::fs::write(root.join("home/gateway.toml"), policy).expect("written");
        let workspace = root.join("workspace");
        let words = ["--workspace", text(&workspace), "--model-url", &url, "--max-tokens", "400"];
        let agent =
            spawn(&root, "agent", &[&["agent", "--name", "source", "--task", "work"], &words[..]].concat());
        let world = Self { directory: Some(directory), root, model, agent };
        until("the source works", || world.log().len() > 3);
        world
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
        let of = |record: &Record| record.epoch.as_ref().and_then(|text| text.parse::<u64>().ok());
        self.log().iter().filter(|record| of(record) >= Some(epoch)).count()
    }

    /// Waits for a condition, and shows the logs when it does not come true.
    fn until(&self, what: &str, mut holds: impl FnMut() -> bool) {
        let deadline = Instant::now() + PATIENCE;
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
            found = destination_agent(transfer);
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
        assert_eq!(destination_processes(transfer), Vec::<i32>::new(), "processes of the destination");
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
        assert_eq!(destination_processes(transfer), Vec::<i32>::new(), "processes of the destination");
        let place = format!("home/node/destinations/{transfer}-1");
        assert!(!self.root.join(place).exists(), "files of the destination");
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
        for child in [&mut self.model, &mut self.agent] {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.strike();
        for pid in pids().into_iter().filter(|pid| cmdline(*pid).contains("sandbox-init")) {
            // A failed test may leave a sandbox; its init carries this world's binary and directory.
            if of_this_world(pid, &self.root) {
                kill(pid);
            }
        }
        drop(self.directory.take());
    }
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

fn kill(pid: i32) {
    if let Some(pid) = rustix::process::Pid::from_raw(pid) {
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }
}

fn pids() -> Vec<i32> {
    let entries = std::fs::read_dir("/proc").expect("mounted");
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect()
}

fn cmdline(pid: i32) -> String {
    let bytes = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&bytes).replace('\0', " ")
}

fn parent(pid: i32) -> Option<i32> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse().ok()
}

fn of_this_world(pid: i32, root: &Path) -> bool {
    let needle = text(root).as_bytes();
    ["environ", "cmdline"].iter().any(|file| {
        let bytes = std::fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
        bytes.windows(needle.len()).any(|window| window == needle)
    })
}

/// The init, and everything below it, of a transfer's sandboxes.
fn destination_processes(transfer: TransferId) -> Vec<i32> {
    let name = transfer.to_string();
    let ours = |pid: &i32| cmdline(*pid).contains("sandbox-init") && cmdline(*pid).contains(&name);
    pids().into_iter().filter(ours).collect()
}

fn destination_agent(transfer: TransferId) -> Option<i32> {
    let inits = destination_processes(transfer);
    let is_agent = |pid: &i32| cmdline(*pid).contains("--wait-for-go");
    pids().into_iter().filter(is_agent).find(|pid| parent(*pid).is_some_and(|parent| inits.contains(&parent)))
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
