//! One destination between stand-ins: a control plane and a gateway that answer over their real sockets, an init
//! that speaks its real lines, and a driver that only remembers. What happened stands in one list, in order.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use handoff_client::{Client, ClientBlobs};
use handoff_gateway::GatewayClient;
use handoff_gateway::control::{EpochState, MeterState};
use handoff_protocol::node::{Checkpoint, Destination, LeaseCommand, Renewed, Want};
use handoff_protocol::{
    Digest, ErrorCode, IncarnationId, NanoUsd, Problem, SessionId, Tier, Totals, TransferId,
};
use handoff_sandbox::control::{AgentState, Cause, FromInit, SOCKET, Status, ToInit};
use handoff_sandbox::lease::Reasons;
use handoff_sandbox::{
    Absence, Driver, Isolation, Leftovers, Name, Process, Spec, StartError, Started, Usage,
};
use handoff_snapshot::{DirectoryBlobs, SealContext};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Notify, watch};
use tokio_util::task::AbortOnDropHandle;

use crate::identity::Identity;
use crate::kept::Kept;
use crate::place::Place;
use crate::plan::Sandbox;
use crate::record::{Holding, Record, SandboxRecord};
use crate::shared::{Lease, NodeOptions, Shared};

pub(super) const TRANSFER: TransferId = TransferId::from_u128(1);
pub(super) const SUCCESSOR: TransferId = TransferId::from_u128(2);
pub(super) const HOLDING: Holding = Holding { epoch: 2, incarnation: IncarnationId::from_u128(5) };
const NAME: &str = "the-sandbox";

/// How one call of a verb goes, instead of well.
#[derive(Debug, Clone)]
pub(super) enum Fault {
    /// It is done, and the answer is lost.
    AnswerLost,
    /// It is refused.
    Refused(ErrorCode),
    /// There is no answer.
    Hangs,
}

/// What the stand-ins know and what happened.
#[derive(Debug, Default)]
pub(super) struct Facts {
    pub(super) happened: Vec<String>,
    blobs: BTreeMap<String, Vec<u8>>,
    /// The last accepted snapshot.
    pub(super) last: Option<String>,
    /// By verb: how its next calls go.
    pub(super) faults: BTreeMap<&'static str, VecDeque<Fault>>,
    pub(super) renewal: Option<(LeaseCommand, Option<TransferId>)>,
    pub(super) finals: Vec<Value>,
    pub(super) closes: Vec<Value>,
    /// The gateway has this destination.
    pub(super) opened: bool,
    /// An init runs, whether it answers or not.
    pub(super) init_runs: bool,
    /// Sandboxes that are found by their marks.
    pub(super) marked: Vec<Name>,
    /// They do not end.
    pub(super) stays: bool,
    /// Epochs that the gateway has open.
    pub(super) epochs: Vec<u64>,
    /// Why the destination is said to have failed.
    pub(super) reasons: Vec<String>,
}

impl Facts {
    pub(super) fn at(&self, what: &str) -> Option<usize> {
        self.happened.iter().position(|found| found == what)
    }

    pub(super) fn count(&self, what: &str) -> usize {
        self.happened.iter().filter(|found| *found == what).count()
    }
}

pub(super) type Known = Arc<Mutex<Facts>>;

/// Something happened in some world.
pub(super) static NEWS: Notify = Notify::const_new();

/// What a stand-in answers, or nothing.
type Answer = Option<(u16, Vec<u8>)>;

pub(super) struct World {
    pub(super) facts: Known,
    pub(super) home: tempfile::TempDir,
    pub(super) wanted: watch::Sender<Destination>,
    shared: Arc<Shared>,
    _servers: [AbortOnDropHandle<()>; 2],
}

impl World {
    pub(super) async fn new() -> Self {
        let home = tempfile::tempdir().expect("a directory");
        let facts = Known::default();
        let (plane, gateway) = (home.path().join("plane"), home.path().join("gateway"));
        let servers =
            [serve(&plane, facts.clone(), control_plane), serve(&gateway, facts.clone(), gateway_says)];
        let snapshot = seal(&facts);
        let identity = Identity::load_or_make(home.path()).expect("made");
        let client = Client::unix(&plane).as_node(identity.id());
        let blobs = DirectoryBlobs::open(home.path().join("blobs"), 0).expect("opened");
        let options = NodeOptions {
            home: home.path().to_owned(),
            control_plane: plane,
            gateway: gateway.clone(),
            executable: "/nowhere".into(),
            name: "here".to_owned(),
            allow_degraded: false,
            checkpoint_every: Duration::from_secs(60),
            reserve_bytes: 0,
        };
        let shared = Shared {
            options,
            identity,
            control_plane_blobs: ClientBlobs::new(client.clone()),
            client,
            gateway: GatewayClient::new(&gateway),
            kept: Kept::new(blobs.clone()),
            blobs,
            driver: Arc::new(Memory(facts.clone())),
            boot_id: handoff_sandbox::boot_id(),
            lease: Lease { lease_ms: 30_000, renew_ms: 10_000 },
        };
        let (wanted, _) = watch::channel(running(snapshot));
        Self { facts, home, wanted, shared: Arc::new(shared), _servers: servers }
    }

    /// What is known by now.
    pub(super) fn facts(&self) -> MutexGuard<'_, Facts> {
        lock(&self.facts)
    }

    /// The next calls of a verb go so.
    pub(super) fn fault(&self, verb: &'static str, faults: impl IntoIterator<Item = Fault>) {
        self.facts().faults.entry(verb).or_default().extend(faults);
    }

    pub(super) fn dir(&self) -> std::path::PathBuf {
        crate::record::directory(self.home.path(), TRANSFER, 1)
    }

    /// A node that has just started opens what stands on disk.
    pub(super) fn open(&self) -> Place {
        Place::open(self.shared.clone(), self.wanted.subscribe()).expect("opened")
    }

    /// A destination that holds the session: restored from its snapshot, with a sandbox.
    pub(super) async fn holder(&self) -> Place {
        let mut place = self.open();
        let wanted = self.wanted.borrow().clone();
        place.fetch(&wanted).await.expect("fetched");
        place.restore(&wanted).await.expect("restored");
        let incarnation = HOLDING.incarnation;
        place.record.sandbox = Some(SandboxRecord { name: NAME.to_owned(), incarnation });
        place.record.agent_token = Some(Digest::of(b"token"));
        place.record.holding = Some(HOLDING);
        place.renewing.go_due = false;
        place.save().await.expect("saved");
        place.sandbox = Sandbox::Alive;
        place.door_open = true;
        let mut facts = self.facts();
        (facts.init_runs, facts.opened) = (true, true);
        facts.happened.clear();
        drop(facts);
        place
    }

    /// The agent works: its workspace is another one now.
    pub(super) fn work(&self, what: &str) {
        std::fs::write(self.dir().join("workspace/work"), what).expect("written");
    }

    /// Two starts of the destination, and one of another destination of the same transfer.
    pub(super) fn names(&self) -> Vec<Name> {
        let names = ["1-first", "1-second", "11-first"].map(|start| format!("{TRANSFER}-{start}"));
        names.iter().map(|name| name.parse().expect("a name")).collect()
    }

    pub(super) fn record(&self) -> Record {
        Record::load(&self.dir()).expect("readable").expect("there")
    }

    /// An init that answers, at the place where one listens.
    pub(super) fn init(&self) -> AbortOnDropHandle<()> {
        let listener = UnixListener::bind(self.dir().join(SOCKET)).expect("bound");
        let facts = self.facts.clone();
        AbortOnDropHandle::new(tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                answer_node(stream, facts.clone()).await;
            }
        }))
    }
}

fn lock(known: &Known) -> MutexGuard<'_, Facts> {
    known.lock().expect("no panic while it is held")
}

fn running(snapshot: Digest) -> Destination {
    Destination {
        transfer_id: TRANSFER,
        session_id: SessionId::from_u128(3),
        generation: 1,
        version: 1,
        want: Want::Running,
        authorization: None,
        snapshot,
        push: false,
        tier: Tier::defaults()[0].clone(),
        epoch: Some(HOLDING.epoch),
        holder: Some(HOLDING.incarnation),
        lease_over: false,
        tick_ms: 10_000,
        grace_ms: 60_000,
        wind_down_usd: NanoUsd::ZERO,
    }
}

/// A small session, stored at the control plane and accepted.
fn seal(facts: &Known) -> Digest {
    let input = r#"{"source_host":"there","message_history":[{"role":"user","content":"go"}]}"#;
    let input = handoff_snapshot::parse_input(input.as_bytes()).expect("an input");
    let sealed = handoff_snapshot::seal(&input, &SealContext::default()).expect("sealed");
    let mut facts = lock(facts);
    for blob in sealed.blobs {
        facts.blobs.insert(blob.digest.to_string(), blob.bytes);
    }
    facts.last = Some(sealed.digest.to_string());
    sealed.digest
}

/// A driver whose sandbox is a word.
#[derive(Debug)]
struct Memory(Known);

impl Driver for Memory {
    fn probe(&self) -> Isolation {
        Isolation::default()
    }

    fn start(&self, spec: &Spec) -> Result<Started, StartError> {
        Err(StartError::NameTaken(spec.name.clone()))
    }

    fn adopt(&self, _: &Name) -> Option<Process> {
        let me = i32::try_from(std::process::id()).expect("ids are small");
        lock(&self.0).init_runs.then(|| Process::open_now(me).expect("this process runs"))
    }

    fn usage(&self, _: &Name) -> Usage {
        Usage::default()
    }

    fn teardown(&self, name: &Name, dir: &Path) -> Result<Absence, Box<Leftovers>> {
        let mut facts = lock(&self.0);
        if facts.stays {
            return Err(Box::new(left(name)));
        }
        facts.init_runs = false;
        facts.marked.retain(|marked| marked != name);
        facts.happened.push("teardown".to_owned());
        let _ = std::fs::remove_file(dir.join(SOCKET));
        Ok(Absence { name: name.clone(), usage: Usage::default() })
    }

    fn leftovers(&self, prefix: &str) -> io::Result<Vec<Leftovers>> {
        let facts = lock(&self.0);
        let found = facts.marked.iter().filter(|name| name.as_str().starts_with(prefix));
        Ok(found.map(left).collect())
    }
}

/// Something of a sandbox.
fn left(name: &Name) -> Leftovers {
    Leftovers {
        name: name.clone(),
        processes: vec![1],
        mounts: vec![],
        cgroups: vec![],
        sockets: vec![],
        why: None,
    }
}

async fn answer_node(stream: UnixStream, facts: Known) {
    let (read, mut write) = stream.into_split();
    let mut lines = BufReader::new(read).lines();
    let mut reasons = Reasons::default();
    let mut cause = Cause::Connected;
    loop {
        let said = FromInit::Status(status(cause, reasons));
        if say(&mut write, &said).await.is_err() {
            return;
        }
        cause = Cause::Command;
        let Ok(Some(line)) = lines.next_line().await else { return };
        match serde_json::from_str(&line).expect("a command") {
            ToInit::Kill => return,
            ToInit::Freeze => reasons.command = true,
            ToInit::Thaw => reasons.command = false,
            ToInit::Lease(_) | ToInit::Status => {}
            ToInit::Agent { line } => {
                let told: Value = serde_json::from_str(&line).expect("a line");
                let word = told["type"].as_str().expect("it has a type").to_owned();
                lock(&facts).happened.push(format!("agent {word}"));
                // An agent that is frozen says nothing.
                if word == "quiesce" && !reasons.command {
                    let asked = json!({"type": "snapshot_requested", "call_id": "c", "final": true});
                    let turn = json!({"at": "idle"});
                    let boundary = json!({"step": 1, "messages_bytes": 1, "messages": 1, "turn": turn});
                    let stopped = json!({"type": "quiesced", "boundary": boundary, "frozen": false});
                    for line in [asked, stopped] {
                        let line = FromInit::Agent { line: line.to_string() };
                        say(&mut write, &line).await.expect("heard");
                    }
                }
            }
        }
        let frozen = if reasons.command { "init freezes" } else { "init runs" };
        lock(&facts).happened.push(frozen.to_owned());
        NEWS.notify_waiters();
    }
}

fn status(cause: Cause, reasons: Reasons) -> Status {
    Status {
        cause,
        incarnation: HOLDING.incarnation,
        boot_id: handoff_sandbox::boot_id(),
        now_ms: handoff_sandbox::boot_ms(),
        agent: AgentState::Running,
        lease: None,
        frozen_at_ms: None,
        frozen: reasons.command,
        reasons,
        lines_dropped: 0,
        refused: None,
    }
}

async fn say(write: &mut (impl tokio::io::AsyncWrite + Unpin), message: &FromInit) -> io::Result<()> {
    let mut line = serde_json::to_vec(message).expect("plain data");
    line.push(b'\n');
    write.write_all(&line).await
}

/// HTTP, as far as two programs of ours need it.
fn serve(
    socket: &Path,
    facts: Known,
    answer: fn(&mut Facts, &str, &str, &[u8]) -> Answer,
) -> AbortOnDropHandle<()> {
    let listener = UnixListener::bind(socket).expect("bound");
    AbortOnDropHandle::new(tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve_one(stream, facts.clone(), answer));
        }
    }))
}

async fn serve_one(stream: UnixStream, facts: Known, answer: fn(&mut Facts, &str, &str, &[u8]) -> Answer) {
    let (read, mut write) = stream.into_split();
    let mut read = BufReader::new(read);
    while let Some((method, path, body)) = request(&mut read).await {
        let verb = path.rsplit('/').next().expect("a path has a last word").to_owned();
        let verb = if path.contains("/blobs/") { format!("{method} blob") } else { verb };
        if verb == "meter" && !body.windows(9).any(|words| words == b"\"after\":0") {
            // There is never any news of the meter.
            return std::future::pending().await;
        }
        let fault = lock(&facts).faults.get_mut(&*verb).and_then(VecDeque::pop_front);
        let answered = match fault {
            Some(Fault::Refused(code)) => {
                let problem = Problem::new(code, "no", "wait");
                Some((code.http_status(), serde_json::to_vec(&problem).expect("plain data")))
            }
            Some(Fault::Hangs) => std::future::pending().await,
            Some(Fault::AnswerLost) => {
                answer(&mut lock(&facts), &method, &path, &body);
                None
            }
            None => answer(&mut lock(&facts), &method, &path, &body),
        };
        NEWS.notify_waiters();
        let Some((status, body)) = answered else { return };
        let head = format!(
            "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        let body = if method == "HEAD" { Vec::new() } else { body };
        if write.write_all(&[head.into_bytes(), body].concat()).await.is_err() {
            return;
        }
    }
}

async fn request(read: &mut (impl tokio::io::AsyncBufRead + Unpin)) -> Option<(String, String, Vec<u8>)> {
    let (mut head, mut length) = (Vec::new(), 0);
    loop {
        let mut line = String::new();
        if read.read_line(&mut line).await.ok()? == 0 {
            return None;
        }
        let line = line.trim_end().to_owned();
        if line.is_empty() {
            break;
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().expect("a number");
        }
        head.push(line);
    }
    let mut body = vec![0; length];
    read.read_exact(&mut body).await.ok()?;
    let mut words = head.first()?.split(' ');
    Some((words.next()?.to_owned(), words.next()?.to_owned(), body))
}

fn good(body: &Value) -> Answer {
    Some((200, body.to_string().into_bytes()))
}

fn refused(code: ErrorCode) -> Answer {
    let problem = Problem::new(code, "no", "wait");
    Some((code.http_status(), serde_json::to_vec(&problem).expect("plain data")))
}

/// The rules that matter here: what follows, what is known, and what a renewal is answered.
fn control_plane(facts: &mut Facts, method: &str, path: &str, body: &[u8]) -> Answer {
    if let Some((_, digest)) = path.split_once("/blobs/") {
        if method == "PUT" {
            facts.happened.push("put".to_owned());
            facts.blobs.insert(digest.to_owned(), body.to_vec());
            return good(&json!({}));
        }
        return match facts.blobs.get(digest) {
            Some(bytes) => Some((200, bytes.clone())),
            None => refused(ErrorCode::NotFound),
        };
    }
    let verb = path.rsplit('/').next().expect("a last word");
    facts.happened.push(verb.to_owned());
    match verb {
        "checkpoint" => {
            let sent: Checkpoint = serde_json::from_slice(body).expect("a checkpoint");
            let digest = sent.digest.to_string();
            let follows = sent.follows.map(|digest| digest.to_string());
            if facts.last.as_ref() != Some(&digest) && follows != facts.last {
                return refused(ErrorCode::StaleSnapshot);
            }
            facts.last = Some(digest);
            good(&json!({"accepted": true}))
        }
        "renew" => {
            let (command, for_transfer) = facts.renewal.unwrap_or((LeaseCommand::Run, None));
            let renewed = Renewed { lease_ms: 30_000, command, for_transfer };
            good(&serde_json::to_value(renewed).expect("plain data"))
        }
        "snapshot" => {
            let sent: Value = serde_json::from_slice(body).expect("JSON");
            facts.last = sent["snapshot"].as_str().map(str::to_owned);
            facts.finals.push(sent);
            good(&json!({
                "transfer_id": SUCCESSOR, "session_id": SessionId::from_u128(3), "epoch": 2,
                "snapshot": facts.last, "status": "staged"
            }))
        }
        "observed" => {
            let sent: Value = serde_json::from_slice(body).expect("JSON");
            facts.reasons.extend(sent["reason"].as_str().map(str::to_owned));
            good(&json!({"accepted": true}))
        }
        "usage" => good(&json!({"accepted_seq": 1, "limit_usd": "1", "command": "continue"})),
        _ => good(&json!({"accepted": true})),
    }
}

fn open_epoch(epoch: u64) -> EpochState {
    EpochState {
        epoch,
        incarnation: HOLDING.incarnation,
        report: None,
        totals: Totals::default(),
        limit_usd: NanoUsd::ZERO,
        spent_usd: NanoUsd::ZERO,
        held_usd: NanoUsd::ZERO,
        holds_open: 0,
        indeterminate_calls: 0,
        indeterminate_usd: NanoUsd::ZERO,
        estimated_calls: 0,
        overrun_usd: NanoUsd::ZERO,
        exhausted: false,
        closing: false,
        closed: false,
    }
}

fn gateway_says(facts: &mut Facts, _: &str, path: &str, body: &[u8]) -> Answer {
    let verb = path.rsplit('/').next().expect("a last word");
    facts.happened.push(format!("gateway {verb}"));
    match verb {
        "open" => facts.opened = true,
        "close" if !facts.opened => return refused(ErrorCode::NotFound),
        "close" => {
            facts.closes.push(serde_json::from_slice(body).expect("JSON"));
            return good(&json!({"closed": true, "reports": []}));
        }
        "meter" => {
            let state = MeterState {
                revision: 1,
                admitted: true,
                frozen: false,
                epochs: facts.epochs.iter().map(|epoch| open_epoch(*epoch)).collect(),
                last_error: None,
            };
            return good(&serde_json::to_value(state).expect("plain data"));
        }
        _ => {}
    }
    good(&json!({"done": true}))
}
