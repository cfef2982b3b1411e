//! Waiting for the ledger to change: no interval, no polling.

use std::sync::Arc;
use std::time::Duration;

use handoff_core::ledger::Ledger;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::error::ServiceError;

/// Waits for changes until a deadline. The revision is taken before the caller looks, so that a change between
/// its look and its wait is not missed.
pub(crate) struct Watch {
    ledger: Arc<dyn Ledger>,
    stopping: CancellationToken,
    until: Instant,
    revision: u64,
}

/// Why a wait ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum News {
    /// Something changed: look again.
    Changed,
    /// The time is over.
    TimeOver,
}

impl Watch {
    pub(crate) fn new(ledger: Arc<dyn Ledger>, stopping: CancellationToken, wait: Duration) -> Self {
        let revision = ledger.revision();
        Self { ledger, stopping, until: Instant::now() + wait, revision }
    }

    /// The revision that the next look is at least as new as.
    pub(crate) fn revision(&self) -> u64 {
        self.revision
    }

    /// Waits for the next change.
    ///
    /// # Errors
    /// [`ServiceError::Stopping`] when the control plane goes down first.
    pub(crate) async fn news(&mut self) -> Result<News, ServiceError> {
        self.news_before(self.until).await
    }

    /// The same, but not longer than `earlier` from now.
    pub(crate) async fn news_within(&mut self, earlier: Duration) -> Result<News, ServiceError> {
        self.news_before(self.until.min(Instant::now() + earlier)).await
    }

    /// Waits for so long, whatever changes meanwhile.
    ///
    /// # Errors
    /// [`ServiceError::Stopping`] when the control plane goes down first.
    pub(crate) async fn pause(&self, length: Duration) -> Result<News, ServiceError> {
        tokio::select! {
            biased;
            () = self.stopping.cancelled() => Err(ServiceError::Stopping),
            () = tokio::time::sleep(length) => Ok(News::TimeOver),
        }
    }

    /// Whether the whole time is over.
    pub(crate) fn is_over(&self) -> bool {
        Instant::now() >= self.until
    }

    async fn news_before(&mut self, until: Instant) -> Result<News, ServiceError> {
        tokio::select! {
            biased;
            () = self.stopping.cancelled() => Err(ServiceError::Stopping),
            revision = self.ledger.changed(self.revision) => {
                self.revision = revision;
                Ok(News::Changed)
            }
            () = tokio::time::sleep_until(until) => Ok(News::TimeOver),
        }
    }
}
