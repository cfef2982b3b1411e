//! The world in which stories happen: a store, a clock that a story moves, a node, and who acts.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use handoff_core::command::{Actor, Command, Role};
use handoff_core::grid::CommandKind;
use handoff_core::ledger::{Applied, Envelope, Found, Ledger, LedgerError, NodeRecord, Request};
use handoff_core::{Policy, Refusal, Reply, Session};
use handoff_protocol::node::Capacity;
use handoff_protocol::{Digest, ErrorCode, NodeId, ProjectId, Status, TransferId};
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use super::Store;
use crate::clock::ManualClock;

/// The principal that stages sessions and holds them as their source.
pub const SOURCE: &str = "laptop";

/// A store with a clock, one project and one node.
pub struct World {
    /// The store's time.
    pub clock: ManualClock,
    /// The settings that it was opened with.
    pub policy: Policy,
    /// The project that everything happens in, unless a story says otherwise.
    pub project: ProjectId,
    /// A node with room for a hundred small destinations.
    pub node: NodeId,
    /// Before the store, so that it is closed when what the store stands on goes away.
    ledger: Mutex<Option<Arc<dyn Ledger>>>,
    store: tokio::sync::Mutex<Box<dyn Store>>,
    is_durable: bool,
    accepted: Mutex<Vec<(Envelope, Reply)>>,
    kinds: Mutex<BTreeSet<CommandKind>>,
}

impl World {
    /// Opens the store and registers the node.
    pub async fn start(store: Box<dyn Store>) -> Self {
        let world = Self {
            clock: ManualClock::default(),
            policy: Policy::default(),
            project: fresh(),
            node: fresh(),
            is_durable: store.is_durable(),
            store: tokio::sync::Mutex::new(store),
            ledger: Mutex::new(None),
            accepted: Mutex::default(),
            kinds: Mutex::default(),
        };
        world.open().await;
        world.register(world.node).await;
        world
    }

    /// The same world over another store: the same clock, project and node.
    pub async fn twin(&self, store: Box<dyn Store>) -> Self {
        let twin = Self {
            clock: self.clock.clone(),
            policy: self.policy.clone(),
            project: self.project,
            node: self.node,
            is_durable: store.is_durable(),
            store: tokio::sync::Mutex::new(store),
            ledger: Mutex::new(None),
            accepted: Mutex::default(),
            kinds: Mutex::default(),
        };
        twin.open().await;
        twin.register(twin.node).await;
        twin
    }

    async fn open(&self) {
        let opened = self.store.lock().await.open(self.policy.clone(), &self.clock).await;
        *self.ledger.lock().unwrap_or_else(PoisonError::into_inner) = Some(opened);
    }

    /// The store.
    pub fn ledger(&self) -> Arc<dyn Ledger> {
        let ledger = self.ledger.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(ledger.as_ref().expect("a world's store is open between its steps"))
    }

    /// Whether the store's contents outlive it.
    pub const fn is_durable(&self) -> bool {
        self.is_durable
    }

    /// Closes the store and opens it again. Does nothing for a store that does not outlive itself.
    pub async fn reopen(&self) {
        if self.is_durable() {
            let closed = self.ledger.lock().unwrap_or_else(PoisonError::into_inner).take();
            drop(closed);
            self.open().await;
        }
    }

    /// Registers a node with room for a hundred small destinations.
    pub async fn register(&self, node: NodeId) {
        let small = &self.policy.tiers[0];
        let capacity = Capacity {
            cpu_millis: 100 * u64::from(small.cpu_millis),
            memory_bytes: 100 * small.memory_bytes,
        };
        self.register_with(node, capacity).await;
    }

    /// Registers a node with this much room.
    pub async fn register_with(&self, node: NodeId, capacity: Capacity) {
        self.ledger().register_node(self.node_record(node, capacity)).await.expect("a node can register");
    }

    /// What a node says of itself.
    pub fn node_record(&self, node: NodeId, capacity: Capacity) -> NodeRecord {
        NodeRecord {
            id: node,
            project: self.project,
            name: format!("host of {node}"),
            public_key: *Digest::of(node.to_string().as_bytes()).as_bytes(),
            capacity,
            isolation: [("memory".to_owned(), "cgroup v2".to_owned())].into(),
            seen_at: self.clock.now(),
        }
    }

    /// A command by whoever may give it, with a request id of its own where people give it.
    pub fn envelope(&self, command: Command) -> Envelope {
        let kind = command.kind();
        let roles = [Role::Node, Role::ControlPlane, Role::Source, Role::Caller, Role::Orchestrator];
        let role = roles.into_iter().find(|role| kind.permits(*role)).expect("somebody may give it");
        let by_people = !matches!(role, Role::Node | Role::ControlPlane);
        let request = by_people.then(|| Request {
            id: format!("req-{}", uuid::Uuid::now_v7()).parse().expect("a request id"),
            body: Digest::of(format!("{command:?}").as_bytes()),
        });
        let principal = if by_people { SOURCE.to_owned() } else { role.as_str().to_owned() };
        Envelope {
            project: self.project,
            actor: Actor { principal, role },
            request,
            expected_version: None,
            command,
        }
    }

    /// Has one command applied.
    pub async fn apply(&self, envelope: Envelope) -> Result<Applied, LedgerError> {
        let mut answers = self.apply_all(vec![envelope]).await;
        assert_eq!(answers.len(), 1, "one answer for one command");
        answers.remove(0)
    }

    /// Has commands applied together.
    pub async fn apply_all(&self, envelopes: Vec<Envelope>) -> Vec<Result<Applied, LedgerError>> {
        let answers = self.ledger().apply(envelopes.clone()).await;
        assert_eq!(answers.len(), envelopes.len(), "one answer for each command");
        self.remember(envelopes, &answers);
        answers
    }

    /// Has each command applied by a task of its own, all at once.
    pub async fn race(&self, envelopes: Vec<Envelope>) -> Vec<Result<Applied, LedgerError>> {
        let start = Arc::new(Barrier::new(envelopes.len()));
        let mut tasks = JoinSet::new();
        for (place, envelope) in envelopes.clone().into_iter().enumerate() {
            let (ledger, start) = (self.ledger(), Arc::clone(&start));
            tasks.spawn(async move {
                start.wait().await;
                (place, ledger.apply(vec![envelope]).await.pop().expect("one answer for one command"))
            });
        }
        let mut answers = tasks.join_all().await;
        answers.sort_by_key(|(place, _)| *place);
        let answers: Vec<_> = answers.into_iter().map(|(_, answer)| answer).collect();
        self.remember(envelopes, &answers);
        answers
    }

    fn remember(&self, envelopes: Vec<Envelope>, answers: &[Result<Applied, LedgerError>]) {
        let mut accepted = self.accepted.lock().unwrap_or_else(PoisonError::into_inner);
        let mut kinds = self.kinds.lock().unwrap_or_else(PoisonError::into_inner);
        for (envelope, answer) in envelopes.into_iter().zip(answers) {
            let Ok(applied) = answer else { continue };
            kinds.insert(envelope.command.kind());
            if envelope.request.is_some() {
                accepted.push((envelope, applied.reply.clone()));
            }
        }
    }

    /// Which commands have been accepted so far.
    pub fn accepted_kinds(&self) -> BTreeSet<CommandKind> {
        self.kinds.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Requests that were accepted, with their answers.
    pub(super) fn accepted(&self) -> Vec<(Envelope, Reply)> {
        self.accepted.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Has a command accepted.
    pub async fn accept(&self, command: Command) -> Reply {
        let what = format!("{command:?}");
        match self.apply(self.envelope(command)).await {
            Ok(applied) => applied.reply,
            Err(error) => panic!("{what} was not accepted: {error}"),
        }
    }

    /// Has a command refused.
    pub async fn refuse(&self, command: Command) -> Refusal {
        let what = format!("{command:?}");
        match self.apply(self.envelope(command)).await {
            Err(LedgerError::Refused(refusal)) => refusal,
            Ok(applied) => panic!("{what} was accepted: {:?}", applied.reply),
            Err(error) => panic!("{what} failed: {error}"),
        }
    }

    /// What a command is refused with.
    pub async fn code(&self, command: Command) -> ErrorCode {
        self.refuse(command).await.code()
    }

    /// A transfer with its session.
    pub async fn found(&self, transfer: TransferId) -> Found {
        let found = self.ledger().transfer(self.project, transfer).await.expect("the store answers");
        found.expect("the transfer is there")
    }

    /// A transfer's status.
    pub async fn status(&self, transfer: TransferId) -> Status {
        self.found(transfer).await.transfer.status
    }

    /// A transfer's session.
    pub async fn session_of(&self, transfer: TransferId) -> Session {
        self.found(transfer).await.session
    }
}

/// The code of what was refused, or none for what was accepted.
///
/// # Panics
/// When the store failed.
pub fn refusal(answer: &Result<Applied, LedgerError>) -> Option<ErrorCode> {
    match answer {
        Ok(_) => None,
        Err(LedgerError::Refused(refusal)) => Some(refusal.code()),
        Err(error) => panic!("the store failed: {error}"),
    }
}

/// A new id.
pub fn fresh<T: From<uuid::Uuid>>() -> T {
    T::from(uuid::Uuid::now_v7())
}
