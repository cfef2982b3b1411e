//! Holding the session: renew, meter, listen, checkpoint, until something else is wanted.

use handoff_agent::control::FromAgent;
use handoff_gateway::meter::Mode;
use handoff_protocol::Digest;
use handoff_protocol::node::ObservedState;
use handoff_sandbox::control::ToInit;
use tokio::time::{Instant, sleep_until};

use super::store::{Purpose, Storing};
use super::{Place, StepError};
use crate::init_link::{Inbound, InitLink};
use crate::meter_task::{MeterNews, MeterTask};
use crate::plan::Sandbox;

/// What wakes a holder.
enum Wake {
    Wanted,
    Inbound(Inbound),
    Renewal,
    Meter(MeterNews),
    Checkpoint,
    Stored(Result<Option<Digest>, StepError>),
    NotQuiesced,
}

impl Place {
    pub(super) async fn hold(&mut self) -> Result<(), StepError> {
        // A step that failed between the claim and `go` left a holder that nobody meters yet.
        if self.meter.is_none() {
            self.watch_meter();
        }
        loop {
            self.connect().await?;
            if self.sandbox != Sandbox::Alive || self.record.holding.is_none() {
                return Ok(());
            }
            match self.next_wake().await {
                Wake::Wanted => return Ok(()),
                Wake::Inbound(inbound) => self.heard(inbound).await?,
                Wake::Renewal => self.renew().await?,
                Wake::Meter(news) => self.metered(news).await?,
                Wake::Checkpoint => self.checkpoint_running(),
                Wake::Stored(done) => match self.stored(done).await {
                    Err(error) if self.frozen && !self.checkpointed => return Err(error),
                    Err(error) => tracing::warn!(place = %self.key(), %error, "not stored this time"),
                    Ok(()) => {}
                },
                Wake::NotQuiesced => {
                    tracing::warn!(place = %self.key(), "the agent did not stop in time; asking again");
                    self.stop_quiescing().await?;
                }
            }
        }
    }

    /// A checkpoint while the agent works: it is not disturbed, and what moved is in the report.
    fn checkpoint_running(&mut self) {
        self.renewing.checkpoint_at = Instant::now() + self.shared.options.checkpoint_every;
        if self.storing.is_none() && self.quiescing.is_none() && self.record.given.is_none() {
            self.begin(Purpose::Checkpoint);
        }
    }

    /// The checkpoint of an agent that stands still.
    pub(super) async fn checkpoint_frozen(&mut self) -> Result<(), StepError> {
        if self.storing.is_none() && self.quiescing.is_none() && self.record.given.is_none() {
            self.begin(Purpose::Checkpoint);
        }
        self.hold().await
    }

    async fn next_wake(&mut self) -> Wake {
        // An agent that stands still has nothing new to store.
        let still = self.frozen || self.dry || self.quiescing.is_some() || self.record.given.is_some();
        let idle = self.storing.is_none();
        let until = self.quiescing.as_ref().map(|quiescing| quiescing.until);
        let (link, meter, storing) = (self.link.as_mut(), self.meter.as_mut(), self.storing.as_mut());
        tokio::select! {
            biased;
            () = sleep_until(self.renewing.at) => Wake::Renewal,
            changed = self.wanted.changed() => {
                if changed.is_err() {
                    std::future::pending::<()>().await;
                }
                Wake::Wanted
            }
            inbound = or_never(link.map(InitLink::next)) => Wake::Inbound(inbound),
            news = or_never(meter.map(MeterTask::next)) => Wake::Meter(news),
            done = or_never(storing.map(Storing::done)) => Wake::Stored(done),
            () = or_never(until.map(sleep_until)) => Wake::NotQuiesced,
            () = sleep_until(self.renewing.checkpoint_at), if idle && !still => Wake::Checkpoint,
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
            end @ (Inbound::Exited(_) | Inbound::Lost) => self.note_end(&end).await,
        }
    }

    /// The agent's lines are hostile: only what this node waits for has an effect.
    async fn agent_said(&mut self, line: &str) -> Result<(), StepError> {
        match serde_json::from_str::<FromAgent>(line) {
            Ok(FromAgent::Quiesced { .. }) => self.quiesced().await,
            Ok(FromAgent::SnapshotRequested { call_id, is_final }) => {
                if is_final {
                    self.asked_final = Some(call_id);
                    // What is being captured may be from before the call: only a later one holds it.
                    self.storing.take_if(|storing| storing.is_checkpoint());
                }
                self.checkpoint_running();
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
            MeterNews::Dry | MeterNews::Solvent => Ok(()),
            MeterNews::NotAdmitted { limit_usd } => self.admit_again(limit_usd).await,
        }
    }

    /// The budget is used up: stand still within grace, and let open calls settle.
    pub(super) async fn freeze(&mut self) -> Result<(), StepError> {
        self.stand_still(Mode::WindingDown).await?;
        // What is being captured is of an agent that still ran.
        self.storing = None;
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
        self.command(&ToInit::Thaw).await?;
        self.dry = false;
        self.renewing.checkpoint_at = Instant::now() + self.shared.options.checkpoint_every;
        let _ = self.observe(ObservedState::Running, None).await;
        Ok(())
    }

    pub(super) async fn stand_still(&mut self, mode: Mode) -> Result<(), StepError> {
        self.command(&ToInit::Freeze).await?;
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

/// Waits for something that may not be there.
async fn or_never<T>(something: Option<impl Future<Output = T>>) -> T {
    match something {
        Some(something) => something.await,
        None => std::future::pending().await,
    }
}
