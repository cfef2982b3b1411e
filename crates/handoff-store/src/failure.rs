//! What can go wrong in a store, and how it reaches the port.

use handoff_core::InvalidPolicy;
use handoff_core::ledger::LedgerError;
use handoff_protocol::{ErrorCode, TransferId};

/// Why a store could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has it open.
    #[error("another process has {path} open")]
    StoreLocked {
        /// The store's file.
        path: String,
    },
    /// A newer program made it.
    #[error("{path} has schema {found}; this program knows {known} at most")]
    VersionUnsupported {
        /// The store's file.
        path: String,
        /// The file's schema.
        found: u32,
        /// The newest that this program knows.
        known: u32,
    },
    /// The file is something else.
    #[error("{path} is not a store of this program")]
    NotAStore {
        /// The file.
        path: String,
    },
    /// There is no room to open it safely.
    #[error("there is no room to open {path}")]
    Full {
        /// The store's file.
        path: String,
    },
    /// Nobody can decide by its policy.
    #[error("the policy is refused")]
    Policy(#[from] InvalidPolicy),
    /// The file or its folder cannot be used.
    #[error("{path} cannot be opened")]
    Unavailable {
        /// The store's file.
        path: String,
        /// Why.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl OpenError {
    /// The stable code.
    pub const fn code(&self) -> ErrorCode {
        match self {
            Self::StoreLocked { .. } => ErrorCode::StoreLocked,
            Self::VersionUnsupported { .. } => ErrorCode::VersionUnsupported,
            Self::NotAStore { .. } | Self::Policy(_) => ErrorCode::Misconfigured,
            Self::Full { .. } => ErrorCode::StorageFull,
            Self::Unavailable { .. } => ErrorCode::StoreUnavailable,
        }
    }
}

/// Why a read or a transaction did not come through. Nothing of it was kept.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// There is no room.
    #[error("no room left")]
    Full,
    /// A row does not read.
    #[error("unreadable: {0}")]
    Broken(String),
    /// A condition or key did not hold: somebody else wrote, or something is there already.
    #[error("the store changed under a decision: {0}")]
    Conflict(String),
    /// A token's key was taken.
    #[error("the token was spent")]
    TokenUsed(TransferId),
    /// The database said something else.
    #[error(transparent)]
    Database(rusqlite::Error),
    /// The store's thread is gone.
    #[error("the store is closed")]
    Closed,
}

impl Failure {
    /// Whether the fault may lie in one command of a batch, so that the others deserve a try of their own.
    pub(crate) fn may_be_one_command(&self) -> bool {
        match self {
            Self::Full | Self::Broken(_) | Self::Conflict(_) | Self::TokenUsed(_) => true,
            Self::Database(error) => {
                error.sqlite_error_code() == Some(rusqlite::ErrorCode::ConstraintViolation)
            }
            Self::Closed => false,
        }
    }
}

impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Self {
        if is_full(&error) { Self::Full } else { Self::Database(error) }
    }
}

impl From<Failure> for LedgerError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Full => Self::Full,
            Failure::Broken(what) => Self::Broken { what },
            Failure::TokenUsed(transfer) => Self::Refused(handoff_core::Refusal::TokenUsed { transfer }),
            failure @ (Failure::Conflict(_) | Failure::Database(_) | Failure::Closed) => {
                Self::Unavailable(Box::new(failure))
            }
        }
    }
}

/// Whether the disk is full. SQLite says so in two ways: directly, and as an I/O error of the index that all
/// connections share, which it must extend before a transaction begins.
pub(crate) fn is_full(error: &rusqlite::Error) -> bool {
    let code = error.sqlite_error().map(|error| error.extended_code);
    error.sqlite_error_code() == Some(rusqlite::ErrorCode::DiskFull)
        || code == Some(rusqlite::ffi::SQLITE_IOERR_SHMSIZE)
}
