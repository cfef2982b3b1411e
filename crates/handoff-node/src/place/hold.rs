//! Holding the session: renew, meter, listen, checkpoint, until something else is wanted.

use handoff_agent::control::{FromAgent, ToAgent};
use handoff_gateway::meter::Mode;
use handoff_protocol::node::{ObservedState, UsageCommand};
use handoff_sandbox::control::ToInit;
use tokio::time::{Instant, sleep_until};

use super::{Place, StepError};
use crate::init_link::Inbound;
use crate::meter_task::MeterNews;
use crate::plan::Sandbox;

/// What wakes a holder.
enum Wake {
    Wanted,
    Inbound(Inbound),
    Renewal,
    Meter(MeterNews),
    Checkpoint,
}

impl Place {
    pub(super) async fn hold(&mut self) -> Result<(), StepError> {
        if self.link.is_none() {
            self.sandbox = Sandbox::Dead;
            return Ok(());
        }
        // A step that failed between the claim and `go` left a holder that nobody meters yet.
        if self.meter.is_none() {
            self.watch_meter();
        }
        loop {
            match self.next_wake().await {
                Wake::Wanted => return Ok(()),
                Wake::Inbound(inbound) => {
                    self.heard(inbound).await?;
                    if self.sandbox != Sandbox::Alive {
                        return Ok(());
                    }
                }
                Wake::Renewal => {
                    self.renew().await?;
                    if self.record.holding.is_none() {
                        return Ok(());
                    }
                }
                Wake::Meter(news) => self.metered(news).await?,
                Wake::Checkpoint => self.checkpoint_running().await?,
            }
        }
    }

    async fn next_wake(&mut self) -> Wake {
        let link = self.link.as_mut().expect("looked at before, and only an end takes it");
        let meter = self.meter.as_mut().expect("looked at before");
        // An agent that stands still has nothing new to store.
        let still = self.frozen || self.dry || self.final_for.is_some();
        tokio::select! {
            biased;
            () = sleep_until(self.renewing.at) => Wake::Renewal,
            changed = self.wanted.changed() => {
                if changed.is_err() {
                    std::future::pending::<()>().await;
                }
                Wake::Wanted
            }
            inbound = link.next() => Wake::Inbound(inbound),
            news = meter.next() => Wake::Meter(news),
            () = sleep_until(self.renewing.checkpoint_at), if !still => Wake::Checkpoint,
        }
    }

    async fn heard(&mut self, inbound: Inbound) -> Result<(), StepError> {
        match inbound {
            Inbound::Agent(line) => self.agent_said(&line).await,
            Inbound::LeaseRanOut => {
                tracing::warn!(place = %self.key(), "the lease ran out: the agent stands still");
                // Grace goes on as grace. What the gateway does not hear now it hears with the next renewal.
                if !self.frozen
                    && let Err(error) = self.stand(Mode::Frozen).await
                {
                    tracing::warn!(place = %self.key(), %error, "the meter was not told");
                }
                Ok(())
            }
            end @ (Inbound::Exited(_) | Inbound::Gone) => {
                self.note_end(&end);
                Ok(())
            }
        }
    }

    /// The agent's lines are hostile: only what this node waits for has an effect.
    async fn agent_said(&mut self, line: &str) -> Result<(), StepError> {
        match serde_json::from_str::<FromAgent>(line) {
            Ok(FromAgent::SnapshotRequested { call_id, is_final }) => {
                self.checkpoint_running().await?;
                if is_final {
                    let outcome = "stored as a checkpoint; no move is pending, so the session goes on here";
                    let done = ToAgent::SnapshotDone { call_id, outcome: outcome.to_owned() };
                    let link = self.link()?;
                    link.tell_agent(&done).await?;
                }
                Ok(())
            }
            Ok(FromAgent::Failed { reason }) => {
                tracing::warn!(place = %self.key(), reason, "the agent cannot go on by itself");
                Ok(())
            }
            Ok(other) => {
                tracing::debug!(place = %self.key(), ?other, "the agent");
                Ok(())
            }
            Err(_) => Ok(()),
        }
    }

    async fn metered(&mut self, news: MeterNews) -> Result<(), StepError> {
        match news {
            MeterNews::Dry if !self.dry && !self.frozen => {
                self.stand_still(Mode::Frozen).await?;
                self.dry = true;
                Ok(())
            }
            MeterNews::Solvent if self.dry => self.thaw().await,
            MeterNews::Answer(UsageCommand::Terminate) | MeterNews::Dry | MeterNews::Solvent => Ok(()),
            MeterNews::Answer(UsageCommand::Continue | UsageCommand::Wait | UsageCommand::Insolvent) => {
                Ok(())
            }
            MeterNews::NotAdmitted { limit_usd } => self.admit_again(limit_usd).await,
        }
    }

    /// The budget is used up: stand still within grace, and let open calls settle.
    pub(super) async fn freeze(&mut self) -> Result<(), StepError> {
        self.stand_still(Mode::WindingDown).await?;
        self.frozen = true;
        self.dry = false;
        self.checkpointed = false;
        let _ = self.observe(ObservedState::Frozen, Some("insolvent".to_owned())).await;
        Ok(())
    }

    /// A raise: the agent goes on once the meter says that a tick fits again.
    pub(super) async fn thaw_after_raise(&mut self) -> Result<(), StepError> {
        self.stand(Mode::Frozen).await?;
        self.frozen = false;
        self.dry = true;
        self.watch_meter();
        Ok(())
    }

    async fn thaw(&mut self) -> Result<(), StepError> {
        self.stand(Mode::Running).await?;
        let link = self.link()?;
        link.command(&ToInit::Thaw).await?;
        self.dry = false;
        self.renewing.checkpoint_at = Instant::now() + self.shared.options.checkpoint_every;
        let _ = self.observe(ObservedState::Running, None).await;
        Ok(())
    }

    pub(super) async fn stand_still(&mut self, mode: Mode) -> Result<(), StepError> {
        let link = self.link()?;
        link.command(&ToInit::Freeze).await?;
        self.stand(mode).await
    }
}

impl Place {
    /// A holder's meter is watched for as long as it holds.
    pub(super) fn watch_meter(&mut self) {
        if let Some(holding) = self.record.holding {
            let shared = self.shared.clone();
            let task = crate::meter_task::MeterTask::start(shared, self.key(), holding.epoch, self.dry);
            self.meter = Some(task);
        }
    }
}
