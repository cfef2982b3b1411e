//! Ending: a sandbox, a holder, a destination. Each end is proved before it is reported.

use handoff_gateway::control::{Acknowledge, Close, Closed, Meter, Remove};
use handoff_gateway::meter::Mode;
use handoff_protocol::node::{Destination, ObservedState};
use handoff_protocol::{ErrorCode, IncarnationId};

use super::{Place, StepError, blocking};
use crate::plan::Sandbox;
use crate::step_error::gateway_code;

/// How long the gateway may take to settle open calls, in milliseconds.
const SETTLE_MS: u64 = 5_000;

impl Place {
    /// Ends the sandbox and proves it. What stands in its directory is no snapshot any more.
    pub(super) async fn clear(&mut self) -> Result<(), StepError> {
        self.end_sandbox().await?;
        self.record.sandbox = None;
        self.record.claim = None;
        // The agent has written since: what stands there is no longer the snapshot.
        self.record.restored = None;
        self.sandbox = Sandbox::None;
        self.door_open = false;
        self.save().await
    }

    /// Nothing of the agent writes any more, and that is proved: whether its init answers or not.
    async fn end_sandbox(&mut self) -> Result<(), StepError> {
        (self.storing, self.quiescing) = (None, None);
        if self.sandbox == Sandbox::Alive {
            self.saw_alive();
        }
        if self.record.sandbox.is_some() {
            self.sandbox = Sandbox::Dead;
        }
        if let Some(link) = self.link.take() {
            let _ = link.kill().await;
        }
        if let Some(name) = self.name() {
            let (driver, dir) = (self.shared.driver.clone(), self.dir.clone());
            let absence = blocking(move || driver.teardown(&name, &dir)).await?;
            tracing::info!(place = %self.key(), usage = ?absence.usage, "the sandbox is gone");
        }
        Ok(())
    }

    /// The holder died. What it left is stored first; then its epoch is closed and its absence reported, which
    /// ends its lease, so that a new incarnation can claim at once.
    pub(super) async fn recover(&mut self, wanted: &Destination) -> Result<(), StepError> {
        let Some(holding) = self.record.holding else { return Ok(()) };
        if self.record.sandbox.is_some() {
            self.end_sandbox().await?;
            match self.store_now().await {
                Ok(()) => {}
                // The next restore takes away what stands here, so it stands until it is stored.
                Err(error) if error.may_pass() => return Err(error),
                Err(error) => {
                    tracing::warn!(place = %self.key(), %error, "what the dead holder left is not stored");
                }
            }
            self.clear().await?;
        }
        self.close_epoch(holding.epoch).await?;
        self.report_gone(holding.incarnation).await?;
        self.let_go().await?;
        tracing::info!(place = %self.key(), want = ?wanted.want, "recovered; claiming again");
        Ok(())
    }

    /// Another incarnation is the session now, or this one may never run again: end at once.
    pub(super) async fn yield_session(&mut self) -> Result<(), StepError> {
        let holding = self.record.holding;
        self.clear().await?;
        if let Some(holding) = holding {
            self.close_epoch(holding.epoch).await?;
            match self.report_gone(holding.incarnation).await {
                Ok(()) => {}
                Err(error) if error.code().is_some() => {
                    tracing::info!(place = %self.key(), %error, "the control plane has moved on");
                }
                Err(error) => return Err(error),
            }
        }
        self.let_go().await
    }

    async fn report_gone(&self, incarnation: IncarnationId) -> Result<(), StepError> {
        self.observe_incarnation(ObservedState::Absent, None, Some(incarnation)).await
    }

    async fn let_go(&mut self) -> Result<(), StepError> {
        (self.record.holding, self.record.given) = (None, None);
        (self.meter, self.storing, self.quiescing) = (None, None, None);
        (self.frozen, self.dry, self.checkpointed, self.asked_final) = (false, false, false, None);
        self.save().await
    }

    /// Leaves nothing: the last checkpoint, the sandbox, the books, the files, the proof.
    pub(super) async fn remove(&mut self) -> Result<(), StepError> {
        // What it has given to a successor is its last word.
        let stored = self.checkpointed || self.record.given.is_some();
        if self.record.holding.is_some() && self.sandbox == Sandbox::Alive && !stored {
            self.last_checkpoint().await;
        }
        self.clear().await?;
        // The gateway may never have heard of it: its node died between the claim and admitting it. Once it is
        // closed it is forgotten, so that it is not closed a second time after the gateway has forgotten it too.
        if let Some(holding) = self.record.holding {
            self.close_epoch(holding.epoch).await?;
            self.let_go().await?;
        }
        self.close_all().await?;
        let dir = self.dir.clone();
        blocking(move || match std::fs::symlink_metadata(&dir) {
            Ok(_) => handoff_snapshot::remove_tree(&dir),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        })
        .await?;
        self.meter = None;
        self.shared.kept.forget(self.key()).await?;
        match self.observe(ObservedState::Absent, None).await {
            // A transfer that the control plane has forgotten, or assigned elsewhere, needs no proof.
            Err(error) if error.code() == Some(ErrorCode::NotFound) => {}
            other => other?,
        }
        self.removed = true;
        tracing::info!(place = %self.key(), "removed; nothing is left");
        Ok(())
    }

    /// A transfer that was terminated without grace: what the agent did until now is still accepted while its
    /// epoch is open. Trying is enough; the checkpoint before it stands.
    async fn last_checkpoint(&mut self) {
        let stored = async {
            self.stand_still(Mode::Frozen).await?;
            self.store_now().await
        };
        if let Err(error) = stored.await {
            tracing::info!(place = %self.key(), %error, "no last checkpoint");
        }
    }

    /// Closes every epoch that the gateway knows of this destination, and has it forget the destination.
    async fn close_all(&mut self) -> Result<(), StepError> {
        if self.close_known().await? {
            self.shared.gateway.ask(&Remove { destination: self.key(), written_off: false }).await?;
        }
        Ok(())
    }

    /// Closes every epoch that the gateway knows of this destination. Returns whether it knows the destination.
    pub(super) async fn close_known(&mut self) -> Result<bool, StepError> {
        let meter = Meter { destination: self.key(), after: 0, wait_ms: 0 };
        let state = match self.shared.gateway.ask(&meter).await {
            Ok(state) => state,
            Err(error) if gateway_code(&error) == Some(ErrorCode::NotFound) => return Ok(false),
            Err(error) => return Err(error.into()),
        };
        for epoch in state.epochs {
            self.close_epoch(epoch.epoch).await?;
        }
        Ok(true)
    }

    /// Ends an epoch's spending and reports until the closing report is accepted.
    async fn close_epoch(&mut self, epoch: u64) -> Result<(), StepError> {
        // One writer of reports: from here on it is this task.
        self.meter = None;
        let at_boot_ms = self.last_alive_ms();
        let close = Close { destination: self.key(), epoch, at_boot_ms, wait_ms: SETTLE_MS };
        let closed = match self.shared.gateway.ask(&close).await {
            Err(error) if gateway_code(&error) == Some(ErrorCode::NotFound) => {
                let wanted = self.wanted.borrow().clone();
                self.open_door(&wanted).await?;
                self.shared.gateway.ask(&close).await?
            }
            closed => closed?,
        };
        self.report_all(epoch, &closed).await?;
        if closed.closed { Ok(()) } else { Err(StepError::HoldOpen(epoch)) }
    }

    async fn report_all(&mut self, epoch: u64, closed: &Closed) -> Result<(), StepError> {
        for report in &closed.reports {
            let answer = self.shared.client.usage(self.record.transfer_id, report).await?;
            let seq = answer.accepted_seq.min(report.seq);
            self.shared.gateway.ask(&Acknowledge { destination: self.key(), epoch, seq }).await?;
        }
        Ok(())
    }
}
