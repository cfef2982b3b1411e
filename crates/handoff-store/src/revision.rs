//! The number that long polls wait on.

use handoff_protocol::Timestamp;
use tokio::sync::watch;

/// Rises with every applied change. It starts at the store's time in microseconds, so that it is higher after a
/// restart than it was before: a node ignores a list with a lower revision than one it has seen.
pub(crate) struct Revision {
    present: watch::Sender<u64>,
}

impl Revision {
    pub(crate) fn starting_at(now: Timestamp) -> Self {
        let micros = now.unix_ms().max(0).unsigned_abs().saturating_mul(1000);
        Self { present: watch::Sender::new(micros) }
    }

    pub(crate) fn raise(&self) {
        self.present.send_modify(|revision| *revision += 1);
    }

    pub(crate) fn present(&self) -> u64 {
        *self.present.borrow()
    }

    pub(crate) async fn after(&self, seen: u64) -> u64 {
        let mut watch = self.present.subscribe();
        match watch.wait_for(|revision| *revision > seen).await {
            Ok(revision) => *revision,
            // The sender is `self`, which lives as long as this call.
            Err(_) => self.present(),
        }
    }
}
