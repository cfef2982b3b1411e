//! Why a use-case failed, and the problem that every surface shows for it.

use handoff_core::Refusal;
use handoff_core::ledger::LedgerError;
use handoff_protocol::port::BlobError;
use handoff_protocol::request::Operation;
use handoff_protocol::{ApprovalId, ErrorCode, NodeId, Problem, Status, Timestamp, TransferId};
use handoff_snapshot::SealError;
use handoff_snapshot::fetch::FetchError;

use crate::token::InvalidToken;

/// A use-case that failed. What changed nothing says so by its code.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    /// The registry refused it, or failed.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// Whoever asks may not do this.
    #[error("{principal} may not {what}")]
    Forbidden {
        /// Who asked.
        principal: String,
        /// What for.
        what: &'static str,
    },
    /// There is no such thing.
    #[error("there is no {what}")]
    NotFound {
        /// What was named.
        what: String,
    },
    /// A field has an impossible value.
    #[error("{field}: {why}")]
    InvalidArgument {
        /// Which field.
        field: &'static str,
        /// What is wrong with it.
        why: String,
    },
    /// A person or a policy must approve it first.
    #[error(
        "{} on transfer {transfer} waits for approval {approval}, which can be decided until {expires_at}",
        operation.as_str()
    )]
    AuthorizationRequired {
        /// Which transfer.
        transfer: TransferId,
        /// Which operation.
        operation: Operation,
        /// What waits.
        approval: ApprovalId,
        /// Until when it can be decided.
        expires_at: Timestamp,
    },
    /// A person said no.
    #[error("{} on transfer {transfer} was declined in approval {approval}", operation.as_str())]
    ApprovalDeclined {
        /// Which transfer.
        transfer: TransferId,
        /// Which operation.
        operation: Operation,
        /// What was declined.
        approval: ApprovalId,
    },
    /// The text is not a token of ours.
    #[error(transparent)]
    InvalidToken(#[from] InvalidToken),
    /// The input cannot be sealed.
    #[error(transparent)]
    Seal(#[from] SealError),
    /// The snapshot that was named is not there as it should be.
    #[error("snapshot: {0}")]
    Snapshot(#[from] FetchError),
    /// A blob that a snapshot names has not been uploaded.
    #[error("{missing} of the snapshot's blobs are not stored here, {first} among them")]
    BlobsMissing {
        /// How many.
        missing: usize,
        /// The first of them.
        first: handoff_protocol::Digest,
    },
    /// The blob store failed.
    #[error(transparent)]
    Blob(#[from] BlobError),
    /// The input is larger than an argument may be.
    #[error("the snapshot given inline has {bytes} bytes; at most {most} fit into an argument")]
    TooLarge {
        /// What it has.
        bytes: usize,
        /// What it may have.
        most: usize,
    },
    /// Credential references that do not resolve at the destination.
    #[error("transfer {transfer}: the destination cannot resolve {}", missing.join(", "))]
    CredentialUnresolved {
        /// Which transfer.
        transfer: TransferId,
        /// Which references.
        missing: Vec<String>,
    },
    /// The snapshot was replaced while the push was waited for.
    #[error("transfer {transfer} carries another snapshot now; this push is void")]
    PushVoid {
        /// Which transfer.
        transfer: TransferId,
    },
    /// The destination did not take the session.
    #[error("transfer {transfer} did not resume: {why}; it is {status}, and the source stays frozen")]
    NotResumed {
        /// Which transfer.
        transfer: TransferId,
        /// Where it stands.
        status: Status,
        /// Why.
        why: String,
    },
    /// An earlier call's authorisation is still open.
    #[error("transfer {transfer} has an open authorisation until {deadline}")]
    StillOpen {
        /// Which transfer.
        transfer: TransferId,
        /// Until when.
        deadline: Timestamp,
    },
    /// The receipt is not signed by the node's key.
    #[error("the receipt is not signed by the key of node {node}")]
    SignatureRefused {
        /// Which node.
        node: NodeId,
    },
    /// A node's id is known with another key.
    #[error("node {node} is registered with another key")]
    NodeKeyConflict {
        /// Which node.
        node: NodeId,
    },
    /// Too much is open already.
    #[error("too many {what}")]
    TooMany {
        /// Of what.
        what: &'static str,
    },
    /// The control plane goes down while the call waits.
    #[error("the control plane is stopping; whether this was done is answered by the same call later")]
    Stopping,
    /// A task failed, or an answer does not fit its command. Always a bug.
    #[error("{0}")]
    Internal(String),
}

impl From<Refusal> for ServiceError {
    fn from(refusal: Refusal) -> Self {
        Self::Ledger(refusal.into())
    }
}

impl ServiceError {
    /// The refusal behind it, if the machine refused.
    pub fn refusal(&self) -> Option<&Refusal> {
        if let Self::Ledger(LedgerError::Refused(refusal)) = self { Some(refusal) } else { None }
    }

    /// The stable code.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Ledger(error) => ledger_code(error),
            Self::Forbidden { .. } | Self::ApprovalDeclined { .. } | Self::NodeKeyConflict { .. } => {
                ErrorCode::Forbidden
            }
            Self::NotFound { .. } => ErrorCode::NotFound,
            Self::InvalidArgument { .. } => ErrorCode::InvalidArgument,
            Self::AuthorizationRequired { .. } => ErrorCode::AuthorizationRequired,
            Self::InvalidToken(_) => ErrorCode::TokenInvalid,
            Self::Seal(error) => error.code(),
            Self::Snapshot(error) => snapshot_code(error),
            Self::BlobsMissing { .. } => ErrorCode::SnapshotInvalid,
            Self::Blob(error) => blob_code(error),
            Self::TooLarge { .. } => ErrorCode::PayloadTooLarge,
            Self::CredentialUnresolved { .. } => ErrorCode::CredentialUnresolved,
            Self::PushVoid { .. } => ErrorCode::StaleSnapshot,
            Self::NotResumed { .. } => ErrorCode::NotResumed,
            Self::StillOpen { .. } => ErrorCode::AlreadyAuthorized,
            Self::SignatureRefused { .. } => ErrorCode::SignatureRefused,
            Self::TooMany { .. } => ErrorCode::RateLimited,
            Self::Stopping => ErrorCode::StoreUnavailable,
            Self::Internal(_) => ErrorCode::Internal,
        }
    }

    /// The body that every surface answers with. What failed inside is logged, not shown.
    pub fn problem(&self) -> Problem {
        match self {
            Self::Ledger(LedgerError::Refused(refusal)) => refusal.problem(),
            Self::Ledger(LedgerError::Broken { .. }) | Self::Internal(_) => Problem::new(
                ErrorCode::Internal,
                ErrorCode::Internal.sentence(),
                "see the log of `handoff serve`",
            ),
            Self::AuthorizationRequired { transfer, approval, expires_at, .. } => {
                let hint = format!(
                    "an orchestrator decides with `handoff approve {approval}` before {expires_at}; then repeat \
                     the same call"
                );
                Problem::new(self.code(), self.to_string(), hint).of_transfer(*transfer)
            }
            Self::NotResumed { transfer, status, .. } => {
                let mut problem = Problem::new(self.code(), self.to_string(), self.hint());
                (problem.transfer_id, problem.status) = (Some(*transfer), Some(*status));
                problem
            }
            Self::ApprovalDeclined { transfer, .. }
            | Self::CredentialUnresolved { transfer, .. }
            | Self::PushVoid { transfer }
            | Self::StillOpen { transfer, .. } => {
                Problem::new(self.code(), self.to_string(), self.hint()).of_transfer(*transfer)
            }
            Self::Ledger(
                LedgerError::RequestConflict
                | LedgerError::VersionMismatch { .. }
                | LedgerError::Full
                | LedgerError::Unavailable(_),
            )
            | Self::Forbidden { .. }
            | Self::NotFound { .. }
            | Self::InvalidArgument { .. }
            | Self::InvalidToken(_)
            | Self::Seal(_)
            | Self::Snapshot(_)
            | Self::BlobsMissing { .. }
            | Self::Blob(_)
            | Self::TooLarge { .. }
            | Self::SignatureRefused { .. }
            | Self::NodeKeyConflict { .. }
            | Self::TooMany { .. }
            | Self::Stopping => Problem::new(self.code(), self.to_string(), self.hint()),
        }
    }

    fn hint(&self) -> &'static str {
        match self {
            Self::Ledger(error) => ledger_hint(error),
            Self::Forbidden { .. } => "ask somebody with the role for it",
            Self::NotFound { what } if what.contains("approval") => {
                "check the id: `handoff approve` lists what waits"
            }
            Self::NotFound { .. } => "check the id; list with `handoff status`",
            Self::InvalidArgument { .. } => "correct the field and repeat",
            Self::AuthorizationRequired { .. } => "have it approved, then repeat the same call",
            Self::ApprovalDeclined { .. } => "ask whoever declined it, or name other figures",
            Self::InvalidToken(_) => "ask an orchestrator for a new token",
            Self::Seal(_) => "correct the input at the place that is named",
            Self::Snapshot(_) | Self::BlobsMissing { .. } => {
                "upload every blob of the snapshot, its manifest last, then repeat"
            }
            Self::Blob(BlobError::Full) => "make room on the control plane's disk, then repeat",
            Self::Blob(_) => "upload the bytes under their own digest, then repeat",
            Self::TooLarge { .. } => "seal it where it is, upload its blobs, and stage it by its digest",
            Self::CredentialUnresolved { .. } => {
                "have the destination's operator configure the store or the reference, then push again"
            }
            Self::PushVoid { .. } => "push again",
            Self::NotResumed { .. } => {
                "activate again with a new token and a new request id, or terminate and let the source return"
            }
            Self::StillOpen { .. } => "wait for its outcome: repeat the same call, or get_status",
            Self::SignatureRefused { .. } => "sign with the key that the node registered",
            Self::NodeKeyConflict { .. } => "give the node a new id, or restore its key",
            Self::TooMany { .. } => "wait, then repeat",
            Self::Stopping => "repeat the same call with the same request id",
            Self::Internal(_) => "see the log of `handoff serve`",
        }
    }
}

fn ledger_code(error: &LedgerError) -> ErrorCode {
    match error {
        LedgerError::Refused(refusal) => refusal.code(),
        LedgerError::RequestConflict => ErrorCode::IdempotencyConflict,
        LedgerError::VersionMismatch { .. } => ErrorCode::PreconditionFailed,
        LedgerError::Full => ErrorCode::StorageFull,
        LedgerError::Unavailable(_) => ErrorCode::StoreUnavailable,
        LedgerError::Broken { .. } => ErrorCode::Internal,
    }
}

fn ledger_hint(error: &LedgerError) -> &'static str {
    match error {
        LedgerError::Refused(_) => "ask get_status what comes next",
        LedgerError::RequestConflict => "use a new request id for another request",
        LedgerError::VersionMismatch { .. } => "read it again, and repeat with its present version",
        LedgerError::Full => "make room on the store's disk; nothing was changed",
        LedgerError::Unavailable(_) => "repeat with the same request id: that answers whether it was done",
        LedgerError::Broken { .. } => "see the log of `handoff serve`",
    }
}

/// Uploading is the caller's work: what is missing or differs is said of the snapshot, not of the store.
fn snapshot_code(error: &FetchError) -> ErrorCode {
    match error {
        FetchError::Blobs(BlobError::NotFound(_)) => ErrorCode::SnapshotInvalid,
        other => other.code(),
    }
}

fn blob_code(error: &BlobError) -> ErrorCode {
    match error {
        BlobError::NotFound(_) => ErrorCode::NotFound,
        BlobError::Mismatch(_) => ErrorCode::ChecksumMismatch,
        BlobError::Full => ErrorCode::StorageFull,
        BlobError::Unavailable(_) => ErrorCode::StoreUnavailable,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_ledger_error_has_its_code_and_a_hint() {
        let transfer = TransferId::from_u128(1);
        for (error, code) in [
            (LedgerError::Refused(Refusal::NoTransfer { transfer }), ErrorCode::NotFound),
            (LedgerError::Refused(Refusal::LeaseOver), ErrorCode::LeaseOver),
            (LedgerError::RequestConflict, ErrorCode::IdempotencyConflict),
            (LedgerError::VersionMismatch { present: 3 }, ErrorCode::PreconditionFailed),
            (LedgerError::Full, ErrorCode::StorageFull),
            (LedgerError::Unavailable("away".into()), ErrorCode::StoreUnavailable),
            (LedgerError::Broken { what: "row 1".to_owned() }, ErrorCode::Internal),
        ] {
            let problem = ServiceError::from(error).problem();
            assert_eq!(problem.code, code);
            assert!(!problem.hint.is_empty() && !problem.message.contains("row 1"), "{problem:?}");
        }
    }

    #[test]
    fn who_needs_an_approval_learns_its_id_and_the_command() {
        let approval = ApprovalId::from_u128(9);
        let problem = ServiceError::AuthorizationRequired {
            transfer: TransferId::from_u128(1),
            operation: Operation::Activate,
            approval,
            expires_at: Timestamp::from_unix_ms(0),
        }
        .problem();
        assert_eq!(problem.code, ErrorCode::AuthorizationRequired);
        assert!(problem.hint.contains(&format!("handoff approve {approval}")));
        assert!(problem.hint.contains("1970-01-01T00:00:00.000Z"));
    }
}
