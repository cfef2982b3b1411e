//! The port to the registry: the one place where commands are applied and remembered.

use std::collections::BTreeMap;

use async_trait::async_trait;
use handoff_protocol::document::Facts;
use handoff_protocol::id::RequestId;
use handoff_protocol::node::Capacity;
use handoff_protocol::request::{EventView, Labels};
use handoff_protocol::{Digest, NodeId, ProjectId, SessionId, Status, Timestamp, TransferId};

use crate::command::{Actor, Command};
use crate::placement::Room;
use crate::refusal::Refusal;
use crate::reply::Reply;
use crate::state::Session;
use crate::transfer::Transfer;

/// A command with who gives it and under which request id.
#[derive(Debug, Clone)]
pub struct Envelope {
    /// Whose sessions it may touch.
    pub project: ProjectId,
    /// Who gives it.
    pub actor: Actor,
    /// Its request id, for commands that carry one; the body's digest is computed without the token.
    pub request: Option<Request>,
    /// If-Match: the transfer's version must be this one.
    pub expected_version: Option<u64>,
    /// The command.
    pub command: Command,
}

/// What makes a repetition recognisable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The caller's id, scoped to (principal, command).
    pub id: RequestId,
    /// Digest of the body without the token.
    pub body: Digest,
}

/// What an accepted command is answered with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applied {
    /// The machine's answer.
    pub reply: Reply,
    /// Whether this was the repetition of an accepted request.
    pub replayed: bool,
    /// The store's time at which it was decided.
    pub at: Timestamp,
}

/// Why a command was not applied.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// The machine said no.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The request id was used with another body.
    #[error("this request id was used with another body")]
    RequestConflict,
    /// The version named in the request is not the present one.
    #[error("the transfer's version is {present}")]
    VersionMismatch {
        /// The present one.
        present: u64,
    },
    /// There is no room to store it. Nothing was changed.
    #[error("the store has no room left")]
    Full,
    /// The store does not answer. Whether it was applied is unknown until it is asked again.
    #[error("the store does not answer")]
    Unavailable(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// What the store holds cannot be read: always a bug or a damaged file.
    #[error("the store holds something unreadable: {what}")]
    Broken {
        /// Which row or column.
        what: String,
    },
}

/// A session with one of its transfers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// The session.
    pub session: Session,
    /// The transfer.
    pub transfer: Transfer,
}

/// Transfers as a list gives them. One whose rows do not read keeps nobody from the others.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Listed {
    /// Those that read, newest first.
    pub found: Vec<Found>,
    /// How many more were met that do not read; the store's log names them.
    pub unreadable: u64,
}

impl Listed {
    /// Whether there is none, readable or not.
    pub const fn is_empty(&self) -> bool {
        self.found.is_empty() && self.unreadable == 0
    }
}

/// Which transfers to list. Newest first.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    /// Only these statuses; empty means all.
    pub statuses: Vec<Status>,
    /// Only this session's.
    pub session: Option<SessionId>,
    /// Only those assigned to this node, now or in an earlier generation that is not proved absent.
    pub node: Option<NodeId>,
    /// Only those whose ledger is not closed.
    pub unclosed: bool,
    /// Only those older than this one: the cursor.
    pub before: Option<TransferId>,
    /// At most so many; 0 means the store's own limit.
    pub limit: usize,
}

/// A node as the registry keeps it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeRecord {
    /// Its id.
    pub id: NodeId,
    /// Whose it is.
    pub project: ProjectId,
    /// A name for people.
    pub name: String,
    /// The key of its receipts: 32 bytes.
    pub public_key: [u8; 32],
    /// What it offers.
    pub capacity: Capacity,
    /// What each limit is enforced by there.
    pub isolation: Facts,
    /// When it was last heard of.
    pub seen_at: Timestamp,
}

/// An audit row that no command writes: a token was minted, access was denied, a refusal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditEntry {
    /// Whose.
    pub project: ProjectId,
    /// About which transfer, if any.
    pub transfer: Option<TransferId>,
    /// What kind of row.
    pub kind: &'static str,
    /// Who did it.
    pub actor: Actor,
    /// Figures and names; never content, never a token's text.
    pub detail: Facts,
}

/// A row of the audit log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditRow {
    /// Its place in its chain, from 1, over usage events and audit rows together.
    pub link: u64,
    /// What kind of row.
    pub kind: String,
    /// When.
    pub at: Timestamp,
    /// Who did it.
    pub actor: String,
    /// Figures and names.
    pub detail: Facts,
    /// The chain's hash up to and with this row.
    pub hash: Digest,
}

/// What computing a chain anew finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Chain {
    /// Every row is as it was written.
    Whole {
        /// How many rows it has.
        links: u64,
        /// The hash up to and with the last of them; zeros before the first.
        head: Digest,
    },
    /// It holds up to the link before this one.
    Broken {
        /// The first link that is missing or was changed.
        link: u64,
    },
}

/// The registry. Every adapter passes the same contract suite.
#[async_trait]
pub trait Ledger: Send + Sync {
    /// Applies commands in order of arrival, in one transaction where the adapter can, each answered on its
    /// own. Cancelling the call cancels nothing: ask again with the same request id to learn the outcome.
    async fn apply(&self, commands: Vec<Envelope>) -> Vec<Result<Applied, LedgerError>>;

    /// The store's time. It never steps back.
    async fn now(&self) -> Result<Timestamp, LedgerError>;

    /// A transfer with its session.
    async fn transfer(&self, project: ProjectId, transfer: TransferId) -> Result<Option<Found>, LedgerError>;

    /// A session.
    async fn session(&self, project: ProjectId, session: SessionId) -> Result<Option<Session>, LedgerError>;

    /// Sessions, newest first, before the cursor.
    async fn sessions(
        &self,
        project: ProjectId,
        before: Option<SessionId>,
        limit: usize,
    ) -> Result<Vec<Session>, LedgerError>;

    /// Transfers with their sessions. Fewer than were asked for are all there are: one that does not read takes
    /// nobody's place.
    async fn transfers(&self, project: ProjectId, filter: &Filter) -> Result<Listed, LedgerError>;

    /// A transfer's usage events after a seq, oldest first.
    async fn events(
        &self,
        project: ProjectId,
        transfer: TransferId,
        after: u64,
        limit: usize,
    ) -> Result<Vec<EventView>, LedgerError>;

    /// A transfer's audit rows after a link, oldest first, with the chain's hashes.
    async fn audit(
        &self,
        project: ProjectId,
        transfer: TransferId,
        after: u64,
        limit: usize,
    ) -> Result<Vec<AuditRow>, LedgerError>;

    /// Computes a chain anew from its stored rows: a transfer's, or the one for the project's other rows. It
    /// finds whatever was changed, taken out or put in between; rows taken off the end show only against a
    /// head that was kept elsewhere.
    async fn verify_chain(
        &self,
        project: ProjectId,
        transfer: Option<TransferId>,
    ) -> Result<Chain, LedgerError>;

    /// Writes an audit row of its own.
    async fn record(&self, entry: AuditEntry) -> Result<(), LedgerError>;

    /// Registers a node, or renews what is known of it; it is heard of now. A known id with another key or in
    /// another project is refused with [`LedgerError::RequestConflict`].
    async fn register_node(&self, node: NodeRecord) -> Result<(), LedgerError>;

    /// Marks a node as heard of now.
    async fn see_node(&self, node: NodeId) -> Result<(), LedgerError>;

    /// All nodes.
    async fn nodes(&self, project: ProjectId) -> Result<Vec<NodeRecord>, LedgerError>;

    /// The room that each node has left.
    async fn rooms(&self, project: ProjectId) -> Result<BTreeMap<NodeId, Room>, LedgerError>;

    /// Remembers which blobs a snapshot needs, so that nothing collects them. One that is known stays as it is.
    async fn keep_snapshot(&self, project: ProjectId, snapshot: SnapshotRecord) -> Result<(), LedgerError>;

    /// What is known of a snapshot.
    async fn snapshot(
        &self,
        project: ProjectId,
        digest: Digest,
    ) -> Result<Option<SnapshotRecord>, LedgerError>;

    /// A number that rises with every applied change, but for renewals, which move a deadline and nothing else:
    /// long polls wait on it. It is higher after a restart than it ever was before.
    fn revision(&self) -> u64;

    /// Waits until the revision is higher than this one.
    async fn changed(&self, after: u64) -> u64;
}

/// A snapshot as the registry keeps it: names and sizes, never bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotRecord {
    /// The manifest's digest.
    pub digest: Digest,
    /// The blobs it needs, the manifest included.
    pub blobs: Vec<(Digest, u64)>,
    /// Credential references that it names.
    pub references: Vec<String>,
    /// Labels for people.
    pub labels: Labels,
}
