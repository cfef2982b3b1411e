//! Why an agent does not start, or cannot go on.

use std::path::{Path, PathBuf};

use handoff_protocol::{SessionId, TransferId};

/// Why an agent does not start, or cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The session stopped here for a transfer.
    #[error(
        "session {session_id} is frozen for transfer {transfer_id} since epoch {epoch}: it may not run here"
    )]
    Frozen {
        /// The session.
        session_id: SessionId,
        /// The transfer.
        transfer_id: TransferId,
        /// The epoch it was frozen in.
        epoch: u64,
    },
    /// The session runs elsewhere for good.
    #[error("session {session_id} was taken over by transfer {transfer_id}: it never runs here again")]
    Retired {
        /// The session.
        session_id: SessionId,
        /// The transfer.
        transfer_id: TransferId,
    },
    /// Another agent runs this session.
    #[error("another agent runs the session in {0}")]
    InUse(PathBuf),
    /// Another live agent has this name.
    #[error("an agent named '{0}' is running")]
    NameTaken(String),
    /// A file of the session is not what it must be.
    #[error("{file}: {why}")]
    Corrupt {
        /// The file, within the session directory.
        file: String,
        /// What is wrong, and where.
        why: String,
    },
    /// A new session would overwrite something.
    #[error("{0} is not empty")]
    NotEmpty(PathBuf),
    /// A file cannot be read or written.
    #[error("{path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The options do not fit.
    #[error("{0}")]
    Options(String),
    /// The control channel cannot be had.
    #[error("the control channel: {0}")]
    Control(#[source] std::io::Error),
}

impl AgentError {
    pub(crate) fn file(path: &Path, source: std::io::Error) -> Self {
        Self::File { path: path.to_owned(), source }
    }

    pub(crate) fn corrupt(file: &str, why: String) -> Self {
        Self::Corrupt { file: file.to_owned(), why }
    }
}
