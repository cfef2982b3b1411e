//! What the node tells a destination's account: run, until when, up to how much, stand still, end.

use handoff_protocol::{IncarnationId, NanoUsd};

use super::{Account, Inner, Lease};
use crate::journal::{Durable, JournalError};
use crate::meter::{MeterRefusal, Mode, Moment, Phase, Record, Terms};

/// Why the account does not do what the node says.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AccountRefusal {
    /// The meter refuses.
    #[error(transparent)]
    Meter(#[from] MeterRefusal),
    /// It cannot be made durable.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The lease is counted in another boot of the machine.
    #[error("the lease is counted in another boot of this machine")]
    OtherBoot,
    /// The epoch has not been admitted since the gateway started.
    #[error("the epoch has not been admitted since the gateway started")]
    NotAdmitted,
}

impl Account {
    /// Changes grace and wind-down.
    pub(crate) async fn revise(&self, terms: Terms) -> Result<(), AccountRefusal> {
        self.decide(|inner, _| Ok(inner.meter.revise(terms)?)).await
    }

    /// Lets an epoch run until then, up to a limit.
    pub(crate) async fn admit(
        &self,
        epoch: u64,
        incarnation: IncarnationId,
        limit_usd: NanoUsd,
        run_until_ms: u64,
        boot_id: &str,
    ) -> Result<(), AccountRefusal> {
        if boot_id != self.clock.boot_id() {
            return Err(AccountRefusal::OtherBoot);
        }
        self.decide(|inner, now| {
            let mut records = inner.count(now.boot_ms);
            let admitted = inner.meter.admit(epoch, incarnation, limit_usd, now);
            match admitted {
                Ok(mut more) => records.append(&mut more),
                Err(refusal) => {
                    inner.keep(&records);
                    return Err(refusal.into());
                }
            }
            let before = inner.lease.filter(|lease| lease.epoch == epoch);
            let run_until_ms = before.map_or(run_until_ms, |lease| lease.run_until_ms.max(run_until_ms));
            inner.lease = Some(Lease { epoch, run_until_ms });
            Ok(records)
        })
        .await
    }

    /// Prolongs the lease; a proof of life.
    pub(crate) fn lease(&self, epoch: u64, run_until_ms: u64, boot_id: &str) -> Result<(), AccountRefusal> {
        if boot_id != self.clock.boot_id() {
            return Err(AccountRefusal::OtherBoot);
        }
        let mut inner = self.lock();
        let lease = inner.lease.ok_or(AccountRefusal::NotAdmitted)?;
        if lease.epoch != epoch {
            return Err(MeterRefusal::StaleEpoch { asked: epoch, present: Some(lease.epoch) }.into());
        }
        // The time after the old deadline was spent frozen: count it before the new one is known.
        let records = inner.count(self.clock.boot_ms());
        inner.keep(&records);
        inner.lease = Some(Lease { epoch, run_until_ms: lease.run_until_ms.max(run_until_ms) });
        drop(inner);
        self.changed();
        Ok(())
    }

    /// Raises the limit of an epoch.
    pub(crate) async fn raise_limit(&self, epoch: u64, limit_usd: NanoUsd) -> Result<(), AccountRefusal> {
        self.decide(|inner, _| Ok(inner.meter.raise_limit(epoch, limit_usd)?)).await
    }

    /// Says what time counts as from now on.
    pub(crate) async fn stand(&self, mode: Mode) -> Result<(), AccountRefusal> {
        self.decide(|inner, now| {
            // Without a lease it is the node's word that the agent has been alive until now.
            let run_until_ms = inner.lease.map_or(now.boot_ms, |lease| lease.run_until_ms);
            Ok(inner.meter.stand(mode, now, run_until_ms))
        })
        .await
    }

    /// Ends an epoch: no new calls, no more ticks. Running counts until `at_boot_ms`, or as far as the lease
    /// reaches; without either nothing is known of the time since the last count.
    pub(crate) async fn begin_close(
        &self,
        epoch: u64,
        at_boot_ms: Option<u64>,
    ) -> Result<(), AccountRefusal> {
        self.decide(|inner, now| {
            let mut records = Vec::new();
            let lease = inner.lease.filter(|lease| lease.epoch == epoch);
            let alive_until = at_boot_ms.map(|at| at.min(now.boot_ms));
            if lease.is_some() {
                records = inner.count(alive_until.unwrap_or(now.boot_ms));
                inner.lease = None;
            } else if let Some(at) = alive_until
                && inner.meter.live() == Some(epoch)
                && inner.meter.standing().is_some_and(|standing| standing.boot_id == now.boot_id)
            {
                // This gateway never admitted it: it is the node's word that the agent was alive until then.
                records = inner.meter.elapse(at, at);
            }
            records.append(&mut inner.meter.begin_close(epoch));
            Ok(records)
        })
        .await
    }

    /// Whether no call of an epoch is under way.
    pub(crate) fn has_no_open_hold(&self, epoch: u64) -> bool {
        self.lock().meter.epochs().get(&epoch).is_none_or(|epoch| epoch.open.is_empty())
    }

    /// Whether an epoch's closing report is sealed.
    pub(crate) fn is_closed(&self, epoch: u64) -> bool {
        self.lock().meter.epochs().get(&epoch).is_some_and(|epoch| epoch.phase == Phase::Closed)
    }

    /// When the ticker has to come next.
    pub(crate) fn next_tick_ms(&self) -> Option<u64> {
        let inner = self.lock();
        let lease = inner.lease?;
        let due = inner.meter.next_tick_ms()?;
        let mode = inner.meter.standing()?.mode;
        // Once the lease is over the agent's init has frozen it: nothing runs until the next lease.
        let leased = mode == Mode::WindingDown || self.clock.boot_ms() < lease.run_until_ms;
        leased.then_some(due)
    }

    /// Counts the time that has passed.
    pub(crate) fn tick(&self) {
        let mut inner = self.lock();
        let records = inner.count(self.clock.boot_ms());
        inner.keep(&records);
        drop(inner);
        if !records.is_empty() {
            self.changed();
        }
    }

    /// Decides under the lock, and waits until what was decided is durable.
    async fn decide(
        &self,
        decide: impl FnOnce(&mut Inner, Moment<'_>) -> Result<Vec<Record>, AccountRefusal>,
    ) -> Result<(), AccountRefusal> {
        let durable: Durable = {
            let mut inner = self.lock();
            let records = decide(&mut inner, self.now())?;
            inner.journal.append_durably(&records)
        };
        self.changed();
        let durable = durable.await.unwrap_or_else(|_| Err(JournalError::ended()));
        Ok(durable?)
    }
}

impl Inner {
    fn count(&mut self, boot_ms: u64) -> Vec<Record> {
        match self.lease {
            Some(lease) => self.meter.elapse(boot_ms, lease.run_until_ms),
            None => Vec::new(),
        }
    }
}
