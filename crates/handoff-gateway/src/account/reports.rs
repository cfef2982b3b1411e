//! What an account says about itself. A report is handed out only once it is durable, so that a number never
//! gets another body after a crash.

use std::time::Duration;

use handoff_protocol::NanoUsd;
use handoff_protocol::node::Usage;

use super::lease::AccountRefusal;
use super::{Account, Inner};
use crate::control::{EpochState, MeterState};
use crate::journal::JournalError;
use crate::meter::{Epoch, Meter, Mode, Phase};

impl Account {
    /// The state, as soon as its revision is another one than `after`, or after `wait` at the latest.
    pub(crate) async fn state(&self, after: u64, wait: Duration) -> MeterState {
        let mut revision = self.subscribe();
        // A time-out is an answer too: the state as it is.
        let _ = tokio::time::timeout(wait, revision.wait_for(|revision| *revision != after)).await;
        let revision = *revision.borrow();
        loop {
            let durable = self.seal().await;
            let inner = self.lock();
            // Somebody else may have sealed another report meanwhile: then it is not durable yet.
            if inner.is_sealed() || durable.is_err() {
                return inner.view(revision, durable.err());
            }
        }
    }

    /// The reports of an epoch that the control plane has not accepted, all of them durable.
    pub(crate) async fn unacknowledged(&self, epoch: u64) -> Result<Vec<Usage>, JournalError> {
        loop {
            self.seal().await?;
            let inner = self.lock();
            if inner.is_sealed() {
                let found = inner.meter.epochs().get(&epoch);
                return Ok(found.map(|epoch| Vec::from(epoch.unacknowledged.clone())).unwrap_or_default());
            }
        }
    }

    /// The control plane has accepted the reports of an epoch up to `seq`.
    pub(crate) fn acknowledge(&self, epoch: u64, seq: u64) -> Result<(), AccountRefusal> {
        let mut inner = self.lock();
        let records = inner.meter.acknowledge(epoch, seq)?;
        inner.keep(&records);
        drop(inner);
        self.changed();
        Ok(())
    }

    /// Epochs with a report that the control plane has not accepted, or that are not over.
    pub(crate) fn unfinished(&self) -> Vec<u64> {
        let inner = self.lock();
        let unfinished = |epoch: &Epoch| epoch.phase != Phase::Closed || !epoch.unacknowledged.is_empty();
        inner
            .meter
            .epochs()
            .iter()
            .filter(|(_, epoch)| unfinished(epoch))
            .map(|(number, _)| *number)
            .collect()
    }

    /// What each epoch has spent, the wind-down included.
    pub(crate) fn spent(&self) -> Vec<(u64, NanoUsd)> {
        let inner = self.lock();
        let tier = &inner.meter.terms().tier;
        inner.meter.epochs().iter().map(|(number, epoch)| (*number, epoch.totals(tier).spent())).collect()
    }

    /// Waits until all that was decided so far is durable, or cannot be made so.
    pub(crate) async fn flush(&self) {
        let durable = self.lock().journal.append_durably(&[]);
        if let Ok(Err(error)) = durable.await {
            tracing::error!(%error, "the journal could not be written to its end");
        }
    }

    /// Seals what is due, and waits until it and all that was sealed before is durable.
    async fn seal(&self) -> Result<(), JournalError> {
        let (durable, sealed) = {
            let mut inner = self.lock();
            let records = inner.meter.seal();
            inner.sealed += records.len() as u64;
            if inner.is_sealed() {
                return Ok(());
            }
            (inner.journal.append_durably(&records), inner.sealed)
        };
        durable.await.unwrap_or_else(|_| Err(JournalError::ended()))?;
        let mut inner = self.lock();
        inner.durably_sealed = inner.durably_sealed.max(sealed);
        Ok(())
    }
}

impl Inner {
    fn view(&self, revision: u64, error: Option<JournalError>) -> MeterState {
        let epochs = self.meter.epochs().iter();
        MeterState {
            revision,
            admitted: self.lease.is_some(),
            frozen: self.meter.standing().is_some_and(|standing| standing.mode != Mode::Running),
            epochs: epochs
                .map(|(number, epoch)| view(*number, epoch, &self.meter, self.is_sealed()))
                .collect(),
            last_error: error.or_else(|| self.journal.refusal()).map(|error| error.to_string()),
        }
    }

    /// Whether every report that has a number is durable.
    fn is_sealed(&self) -> bool {
        self.durably_sealed == self.sealed
    }
}

fn view(number: u64, epoch: &Epoch, meter: &Meter, durable: bool) -> EpochState {
    let tier = &meter.terms().tier;
    EpochState {
        epoch: number,
        incarnation: epoch.incarnation,
        report: epoch.unacknowledged.front().copied().filter(|_| durable),
        totals: epoch.totals(tier),
        limit_usd: epoch.limit_usd,
        spent_usd: epoch.spent(tier),
        held_usd: epoch.held(tier),
        holds_open: epoch.open.len() as u64,
        indeterminate_calls: epoch.indeterminate_calls,
        indeterminate_usd: epoch.indeterminate_usd,
        estimated_calls: epoch.estimated_calls,
        overrun_usd: epoch.overrun_usd,
        exhausted: epoch.exhausted,
        closing: epoch.phase != Phase::Live,
        closed: epoch.phase == Phase::Closed,
    }
}
