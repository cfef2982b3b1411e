//! Why a step of a destination failed. It is taken again: at once when something wanted changes, else after a
//! pause.

use handoff_client::ClientError;
use handoff_gateway::ClientError as GatewayError;
use handoff_protocol::ErrorCode;
use handoff_protocol::port::BlobError;
use handoff_sandbox::{Leftovers, StartError};
use handoff_snapshot::{CaptureError, FetchError, RestoreError};

use crate::init_link::InitError;

/// A step failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StepError {
    /// The control plane refused, or does not answer.
    #[error("the control plane: {0}")]
    ControlPlane(#[from] ClientError),
    /// The gateway refused, or does not answer.
    #[error("the gateway: {0}")]
    Gateway(#[from] GatewayError),
    /// The sandbox's init does not do as told.
    #[error(transparent)]
    Init(#[from] InitError),
    /// The sandbox did not start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// Something of a sandbox is left.
    #[error(transparent)]
    Leftovers(#[from] Box<Leftovers>),
    /// The snapshot could not be brought here.
    #[error("the snapshot cannot be fetched: {0}")]
    Fetch(#[from] FetchError),
    /// The snapshot could not be unpacked.
    #[error("the snapshot cannot be restored: {0}")]
    Restore(#[from] RestoreError),
    /// The session could not be captured.
    #[error("the session cannot be captured: {0}")]
    Capture(#[from] CaptureError),
    /// The node's own blobs.
    #[error("the node's own blobs: {0}")]
    Blobs(#[from] BlobError),
    /// The node's own files.
    #[error("the node's own files: {0}")]
    File(#[from] std::io::Error),
    /// The agent did not do in time what it was asked for.
    #[error("the agent did not {0} in time")]
    AgentSilent(&'static str),
    /// The agent cannot go on.
    #[error("the agent failed: {0}")]
    AgentFailed(String),
    /// An epoch cannot be closed yet.
    #[error("a hold of epoch {0} is still open")]
    HoldOpen(u64),
}

impl StepError {
    /// The code that the control plane or the gateway gave.
    pub(crate) fn code(&self) -> Option<ErrorCode> {
        match self {
            Self::ControlPlane(error) => error.code(),
            Self::Gateway(error) => gateway_code(error),
            Self::Start(error) => Some(error.code()),
            Self::Fetch(error) => Some(error.code()),
            Self::Restore(error) => Some(error.code()),
            Self::Capture(error) => Some(error.code()),
            Self::Init(_)
            | Self::Leftovers(_)
            | Self::Blobs(_)
            | Self::File(_)
            | Self::AgentSilent(_)
            | Self::AgentFailed(_)
            | Self::HoldOpen(_) => None,
        }
    }

    /// Whether storing the session, tried again and unchanged, may succeed: nothing has answered, or only for now,
    /// or what answers does not know this transfer as it was. That may be another control plane, or one with older
    /// books; only a list that says `gone` settles it.
    pub(crate) fn may_pass(&self) -> bool {
        match self {
            Self::ControlPlane(error) => error.code().is_none_or(|code| {
                let unknown =
                    matches!(code, ErrorCode::NotFound | ErrorCode::Forbidden | ErrorCode::WrongStatus);
                code.retryable() || unknown
            }),
            Self::Gateway(error) => gateway_code(error).is_none_or(ErrorCode::retryable),
            // What stands on this host is the same the next time; where it is to go need not be.
            Self::Capture(CaptureError::Blobs(error)) => match error {
                BlobError::Unavailable(_) | BlobError::Full => true,
                BlobError::NotFound(_) | BlobError::Mismatch(_) => false,
            },
            Self::Init(_) | Self::Leftovers(_) | Self::Blobs(_) | Self::File(_) => true,
            Self::Capture(
                CaptureError::Session { .. }
                | CaptureError::Seal(_)
                | CaptureError::Moving
                | CaptureError::TooLarge { .. }
                | CaptureError::Io { .. }
                | CaptureError::Ended,
            )
            | Self::Start(_)
            | Self::Fetch(_)
            | Self::Restore(_)
            | Self::AgentSilent(_)
            | Self::AgentFailed(_)
            | Self::HoldOpen(_) => false,
        }
    }
}

/// The code that the gateway gave, where it gave one.
pub(crate) fn gateway_code(error: &GatewayError) -> Option<ErrorCode> {
    match error {
        GatewayError::Refused(problem) => Some(problem.code),
        GatewayError::Unreachable { .. } | GatewayError::Unreadable(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use handoff_protocol::{Digest, Problem};

    use super::*;

    #[test]
    fn work_is_given_up_only_where_it_is_refused_for_good() {
        let refused = |code| {
            StepError::ControlPlane(ClientError::Problem(Box::new(Problem::new(code, "no", "wait"))))
                .may_pass()
        };
        let blobs = |error| StepError::Capture(CaptureError::Blobs(error)).may_pass();
        assert!(blobs(BlobError::Full) && blobs(BlobError::Unavailable("away".into())));
        assert!(!blobs(BlobError::Mismatch(Digest::of(b""))));
        for code in [ErrorCode::StoreUnavailable, ErrorCode::StorageFull, ErrorCode::ReadOnly] {
            assert!(refused(code), "{code}: later");
        }
        for code in [ErrorCode::NotFound, ErrorCode::Forbidden, ErrorCode::WrongStatus] {
            assert!(refused(code), "{code}: another control plane may answer");
        }
        for code in [ErrorCode::StaleEpoch, ErrorCode::SessionBusy, ErrorCode::LeaseOver] {
            assert!(!refused(code), "{code}: for good");
        }
    }
}
