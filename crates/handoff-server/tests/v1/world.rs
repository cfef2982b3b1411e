//! A control plane on a socket in a temporary directory, whose clock a test moves, and a node that a test plays.

use std::sync::Arc;
use std::time::Duration;

use ed25519_dalek::{Signer as _, SigningKey};
use handoff_client::{Client, ClientError};
use handoff_core::Policy;
use handoff_protocol::document::SnapshotInput;
use handoff_protocol::node::{
    Claim, Claimed, Desired, Destination, Receipt, Register, Usage, UsageAnswer, receipt_message,
};
use handoff_protocol::request::{
    Activate, IssueToken, Operation, Provision, Push, Stage, Staged, TokenText, TransferView,
};
use handoff_protocol::{ErrorCode, IncarnationId, NanoUsd, NodeId, Status, Totals, TransferId};
use handoff_server::{ServeOptions, Server};
use handoff_service::{Ledger, Service, ServiceConfig, TokenKeys};
use handoff_snapshot::DirectoryBlobs;
use handoff_store::{MemoryLedger, OpenOptions, SqliteLedger, SystemClock};
use handoff_testkit::clock::ManualClock;
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::faulty::Faulty;

/// No test waits longer for anything.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
pub(crate) const SECRET: [u8; 32] = [7; 32];

/// A control plane that stops when it is dropped.
pub(crate) struct World {
    pub(crate) client: Client,
    pub(crate) clock: ManualClock,
    pub(crate) home: Arc<TempDir>,
    pub(crate) ledger: Arc<dyn Ledger>,
    pub(crate) policy: Policy,
    pub(crate) service: Service,
    shutdown: CancellationToken,
    running: JoinHandle<()>,
}

pub(crate) fn keys() -> TokenKeys {
    TokenKeys::new(SECRET.to_vec().into(), []).expect("long enough")
}

pub(crate) fn amount(text: &str) -> NanoUsd {
    text.parse().expect("an amount")
}

impl World {
    /// On the memory ledger.
    pub(crate) async fn new() -> Self {
        Self::with(|_| {}).await
    }

    /// With other settings.
    pub(crate) async fn with(change: impl FnOnce(&mut ServiceConfig)) -> Self {
        let clock = ManualClock::default();
        let policy = Policy::default();
        let ledger = Arc::new(MemoryLedger::new(policy.clone(), Arc::new(clock.reader())));
        let home = Arc::new(tempfile::tempdir().expect("a directory"));
        Self::start(home, ledger, clock, policy, change).await
    }

    /// On a ledger that fails when it is told to.
    pub(crate) async fn with_faults() -> (Self, Arc<Faulty>) {
        let (clock, policy) = (ManualClock::default(), Policy::default());
        let ledger = Arc::new(MemoryLedger::new(policy.clone(), Arc::new(clock.reader())));
        let faulty = Arc::new(Faulty::over(ledger));
        let home = Arc::new(tempfile::tempdir().expect("a directory"));
        let ledger: Arc<dyn Ledger> = Arc::<Faulty>::clone(&faulty);
        (Self::start(home, ledger, clock, policy, |_| {}).await, faulty)
    }

    /// By the host's clock, with other rules' settings.
    pub(crate) async fn in_real_time(policy: Policy) -> Self {
        let ledger = Arc::new(MemoryLedger::new(policy.clone(), Arc::new(SystemClock::default())));
        let home = Arc::new(tempfile::tempdir().expect("a directory"));
        Self::start(home, ledger, ManualClock::default(), policy, |_| {}).await
    }

    /// On an SQLite file in this directory, which may have been used before.
    pub(crate) async fn on_disk(home: Arc<TempDir>, clock: ManualClock) -> Self {
        let policy = Policy::default();
        let options = OpenOptions { clock: Arc::new(clock.reader()), ..OpenOptions::default() };
        let path = home.path().join("handoff.db");
        let ledger = Arc::new(SqliteLedger::open(path, policy.clone(), options).expect("opens"));
        Self::start(home, ledger, clock, policy, |_| {}).await
    }

    /// Whose disk has no room for blobs.
    pub(crate) async fn on_a_full_disk() -> Self {
        let (clock, policy) = (ManualClock::default(), Policy::default());
        let ledger = Arc::new(MemoryLedger::new(policy.clone(), Arc::new(clock.reader())));
        let home = Arc::new(tempfile::tempdir().expect("a directory"));
        let blobs = DirectoryBlobs::open(home.path().join("blobs"), u64::MAX).expect("opens");
        Self::start_over(home, ledger, blobs, (clock, policy), |_| {}).await
    }

    async fn start(
        home: Arc<TempDir>,
        ledger: Arc<dyn Ledger>,
        clock: ManualClock,
        policy: Policy,
        change: impl FnOnce(&mut ServiceConfig),
    ) -> Self {
        let blobs = DirectoryBlobs::open(home.path().join("blobs"), 0).expect("opens");
        Self::start_over(home, ledger, blobs, (clock, policy), change).await
    }

    async fn start_over(
        home: Arc<TempDir>,
        ledger: Arc<dyn Ledger>,
        blobs: DirectoryBlobs,
        (clock, policy): (ManualClock, Policy),
        change: impl FnOnce(&mut ServiceConfig),
    ) -> Self {
        let shutdown = CancellationToken::new();
        let mut service = ServiceConfig::new("control-plane-of-a-test", policy.clone(), keys());
        change(&mut service);
        let options = ServeOptions {
            ledger: Arc::clone(&ledger),
            blobs: Arc::new(blobs),
            service,
            socket: home.path().join("handoff.sock"),
            shutdown: shutdown.clone(),
        };
        let server = Server::bind(options).await.expect("starts");
        let client = Client::unix(server.socket()).with_deadline(PATIENCE);
        let service = server.service().clone();
        let running = tokio::spawn(server.run());
        Self { client, clock, home, ledger, policy, service, shutdown, running }
    }

    pub(crate) fn socket(&self) -> std::path::PathBuf {
        self.home.path().join("handoff.sock")
    }

    /// An orderly stop.
    pub(crate) async fn stop(self) -> Arc<TempDir> {
        self.shutdown.cancel();
        let Self { running, home, service, ledger, .. } = self;
        drop((service, ledger));
        tokio::time::timeout(PATIENCE, running).await.expect("stops in time").expect("no panic");
        home
    }

    pub(crate) async fn stage(&self, is_final: bool) -> Staged {
        self.client.stage(Stage { is_final, ..minimal() }).await.expect("staged")
    }

    pub(crate) async fn token(&self, transfer: TransferId, operation: Operation) -> TokenText {
        let body =
            IssueToken { transfer_id: transfer, operation, ttl_ms: None, max_budget_usd: None, tier: None };
        self.client.issue_token(body).await.expect("an orchestrator mints").token
    }

    /// A registered node.
    pub(crate) async fn node(&self, number: u8) -> Node {
        let node = Node {
            id: NodeId::from_u128(number.into()),
            key: SigningKey::from_bytes(&[number; 32]),
            client: self.client.clone().as_node(NodeId::from_u128(number.into())),
        };
        node.client.register(&node.registration()).await.expect("registered");
        node
    }

    pub(crate) async fn provision(&self, transfer: TransferId, budget: &str) -> TransferView {
        let token = Some(self.token(transfer, Operation::ProvisionRuntime).await);
        let body = Provision { token, ..provision(budget) };
        self.client.provision(transfer, body).await.expect("provisioned")
    }

    /// A staged, provisioned and pushed transfer.
    pub(crate) async fn pushed(&self, node: &Node) -> TransferView {
        let staged = self.stage(true).await;
        self.provision(staged.transfer_id, "1").await;
        self.push(staged.transfer_id, node).await
    }

    pub(crate) async fn push(&self, transfer: TransferId, node: &Node) -> TransferView {
        let push = self.client.push(transfer, Push::default());
        let work = async {
            let entry = node.wait_for(transfer, |entry| entry.push).await;
            node.client.receipt(transfer, &node.receipt(&entry)).await.expect("counts");
        };
        let (view, ()) = tokio::join!(push, work);
        view.expect("pushed")
    }

    /// A transfer that a destination has claimed.
    pub(crate) async fn active(&self, node: &Node) -> (TransferView, Claimed) {
        let pushed = self.pushed(node).await;
        let token = Some(self.token(pushed.transfer, Operation::Activate).await);
        let activate = self.client.activate(pushed.transfer, Activate { token, ..Activate::default() });
        let (view, claimed) = tokio::join!(activate, node.claim(pushed.transfer));
        (view.expect("active"), claimed)
    }

    pub(crate) async fn status(&self, transfer: TransferId) -> Status {
        self.client.transfer(transfer, Default::default()).await.expect("there").status
    }
}

/// A node that a test plays.
pub(crate) struct Node {
    pub(crate) id: NodeId,
    pub(crate) key: SigningKey,
    pub(crate) client: Client,
}

impl Node {
    pub(crate) fn registration(&self) -> Register {
        Register {
            node_id: self.id,
            name: "a node of a test".to_owned(),
            public_key: hex(&self.key.verifying_key().to_bytes()),
            capacity: handoff_protocol::node::Capacity { cpu_millis: 8_000, memory_bytes: 8 << 30 },
            isolation: [("memory".to_owned(), "nothing".to_owned())].into(),
            version: "0".to_owned(),
        }
    }

    pub(crate) async fn desired(&self) -> Desired {
        self.client.desired(self.id, None, 0).await.expect("a list")
    }

    /// The transfer's entry, once it is as wanted.
    pub(crate) async fn wait_for(
        &self,
        transfer: TransferId,
        fits: impl Fn(&Destination) -> bool,
    ) -> Destination {
        let look = async {
            let mut after = None;
            loop {
                let desired = self.client.desired(self.id, after, 10).await.expect("a list");
                let found = desired
                    .destinations
                    .into_iter()
                    .find(|entry| entry.transfer_id == transfer && fits(entry));
                match found {
                    Some(entry) => return entry,
                    None => after = Some(desired.revision),
                }
            }
        };
        tokio::time::timeout(PATIENCE, look).await.expect("the list becomes as wanted")
    }

    pub(crate) fn receipt(&self, entry: &Destination) -> Receipt {
        let message = receipt_message(entry.transfer_id, entry.generation, self.id, entry.snapshot);
        Receipt {
            request_id: format!("receipt-{}-{}", entry.transfer_id, entry.generation).parse().expect("an id"),
            node_id: self.id,
            generation: entry.generation,
            digest: entry.snapshot,
            bytes_fetched: 0,
            bytes_total: 0,
            missing_references: Vec::new(),
            signature: hex(&self.key.sign(&message).to_bytes()),
        }
    }

    pub(crate) async fn claim(&self, transfer: TransferId) -> Claimed {
        let entry = self.wait_for(transfer, |entry| entry.authorization.is_some()).await;
        self.try_claim(&entry).await.expect("claimed")
    }

    pub(crate) async fn try_claim(&self, entry: &Destination) -> Result<Claimed, ClientError> {
        self.try_claim_as(entry, incarnation()).await
    }

    pub(crate) async fn try_claim_as(
        &self,
        entry: &Destination,
        incarnation: IncarnationId,
    ) -> Result<Claimed, ClientError> {
        let claim = Claim {
            incarnation,
            generation: entry.generation,
            authorization: entry.authorization.map(|offer| offer.id),
            digest: entry.snapshot,
        };
        self.client.claim(entry.transfer_id, &claim).await
    }

    pub(crate) async fn report(
        &self,
        transfer: TransferId,
        epoch: u64,
        seq: u64,
        spent: &str,
    ) -> UsageAnswer {
        let usage = usage(epoch, seq, spent);
        self.client.usage(transfer, &usage).await.expect("counts")
    }
}

pub(crate) fn usage(epoch: u64, seq: u64, spent: &str) -> Usage {
    let totals = Totals { model_usd: amount(spent), ..Totals::default() };
    Usage { epoch, seq, totals, closing: false, exhausted: false, limit_usd: None, prev_hash: None }
}

/// The incarnation that a test's node claims with.
pub(crate) fn incarnation() -> IncarnationId {
    IncarnationId::from_u128(1)
}

pub(crate) fn minimal() -> Stage {
    let input: SnapshotInput = serde_json::from_str(
        r#"{"source_host":"laptop","message_history":[{"role":"user","content":"hello"}]}"#,
    )
    .expect("the minimal input");
    Stage {
        request_id: None,
        session_id: None,
        expected_epoch: None,
        snapshot: None,
        input: Some(input),
        source_host: None,
        is_final: false,
        abandon_source: false,
        labels: Default::default(),
    }
}

pub(crate) fn provision(budget: &str) -> Provision {
    Provision {
        request_id: None,
        token: None,
        tier: "sandbox-small".into(),
        budget_usd: amount(budget),
        carve: false,
        node_id: None,
    }
}

/// The code of a refusal.
pub(crate) fn refused<T: std::fmt::Debug>(answer: Result<T, ClientError>) -> ErrorCode {
    let error = answer.expect_err("refused");
    error.code().unwrap_or_else(|| panic!("no problem: {error}"))
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
