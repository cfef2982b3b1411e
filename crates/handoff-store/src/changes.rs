//! What a batch changed: one entry per row that an adapter has to write.

use std::collections::BTreeSet;

use handoff_core::grid::CommandKind;
use handoff_core::reply::Reply;
use handoff_core::state::Session;
use handoff_core::transfer::{Authorization, Transfer};
use handoff_protocol::id::RequestId;
use handoff_protocol::request::Operation;
use handoff_protocol::{Digest, NanoUsd, ProjectId, Timestamp, TokenId, TransferId};

use crate::rows::Row;

/// Everything that one transaction writes.
#[derive(Debug)]
pub(crate) struct Changes {
    /// The store's time at which it was decided.
    pub(crate) at: Timestamp,
    pub(crate) sessions: Vec<SessionChange>,
    pub(crate) transfers: Vec<TransferChange>,
    pub(crate) authorizations: Vec<AuthorizationChange>,
    pub(crate) increments: Vec<Increment>,
    pub(crate) tokens: Vec<SpentToken>,
    pub(crate) requests: Vec<(RequestKey, Remembered)>,
    /// In the order in which they became true.
    pub(crate) rows: Vec<Row>,
}

/// A session as it is now, and the version that the decision was made on.
#[derive(Debug)]
pub(crate) struct SessionChange {
    pub(crate) before: Option<u64>,
    pub(crate) after: Session,
}

/// A transfer as it was and is, with all that hangs on it.
#[derive(Debug)]
pub(crate) struct TransferChange {
    pub(crate) project: ProjectId,
    pub(crate) before: Option<Transfer>,
    pub(crate) after: Transfer,
}

/// An authorisation that was given, or came to its end.
#[derive(Debug)]
pub(crate) struct AuthorizationChange {
    pub(crate) project: ProjectId,
    pub(crate) transfer: TransferId,
    pub(crate) authorization: Authorization,
}

/// Money that was spent outside of any epoch.
#[derive(Debug)]
pub(crate) struct Increment {
    pub(crate) project: ProjectId,
    pub(crate) transfer: TransferId,
    /// The seq of its usage event.
    pub(crate) seq: u64,
    pub(crate) cost: NanoUsd,
    pub(crate) detail: String,
}

/// A token that was spent.
#[derive(Debug)]
pub(crate) struct SpentToken {
    pub(crate) project: ProjectId,
    pub(crate) transfer: TransferId,
    pub(crate) token: TokenId,
    pub(crate) operation: Operation,
    pub(crate) expires_at: Timestamp,
}

/// What makes a request the same.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RequestKey {
    pub(crate) project: ProjectId,
    pub(crate) principal: String,
    pub(crate) command: CommandKind,
    pub(crate) id: RequestId,
}

/// An accepted request.
#[derive(Debug, Clone)]
pub(crate) struct Remembered {
    pub(crate) body: Digest,
    pub(crate) transfer: Option<TransferId>,
    pub(crate) reply: Reply,
}

impl Changes {
    pub(crate) const fn new(at: Timestamp) -> Self {
        Self {
            at,
            sessions: Vec::new(),
            transfers: Vec::new(),
            authorizations: Vec::new(),
            increments: Vec::new(),
            tokens: Vec::new(),
            requests: Vec::new(),
            rows: Vec::new(),
        }
    }

    /// Whether there is nothing to write.
    pub(crate) fn is_empty(&self) -> bool {
        self.sessions.is_empty() && self.requests.is_empty() && !self.is_seen()
    }

    /// Whether somebody may be waiting for it. A renewal alone moves a deadline, every few seconds for every
    /// session, and nobody waits for that.
    pub(crate) fn is_seen(&self) -> bool {
        !self.transfers.is_empty() || !self.rows.is_empty()
    }

    /// The projects that it touches.
    pub(crate) fn projects(&self) -> BTreeSet<ProjectId> {
        let of_sessions = self.sessions.iter().map(|change| change.after.project);
        let of_requests = self.requests.iter().map(|(key, _)| key.project);
        of_sessions
            .chain(self.transfers.iter().map(|change| change.project))
            .chain(of_requests)
            .chain(self.rows.iter().map(|row| row.project))
            .collect()
    }
}
