//! Stopping for a successor: the agent stands at a step boundary, its session is captured and handed in, and it
//! goes on only when a later renewal says that nobody waits for it any more.

use handoff_agent::control::ToAgent;
use handoff_gateway::meter::Mode;
use handoff_protocol::TransferId;
use handoff_sandbox::boot_ms;
use handoff_sandbox::control::ToInit;
use tokio::time::{Duration, Instant};

use super::store::Purpose;
use super::{Place, StepError};

/// An agent that was asked to stop at a boundary.
pub(super) struct Quiescing {
    successor: TransferId,
    /// When it has not done so in time.
    pub(super) until: Instant,
    /// It stood still for money, and moves only as far as the boundary.
    thawed: bool,
}

impl Place {
    /// A successor wants the final. Said with every renewal, so each thing that fails is tried again with the next.
    pub(super) async fn ask_for_final(&mut self, successor: TransferId) -> Result<(), StepError> {
        let stopping = self.quiescing.as_ref().is_some_and(|quiescing| quiescing.successor == successor);
        let storing = self.storing.as_ref().is_some_and(|storing| storing.is_final_for(successor));
        if stopping || storing || self.record.holding.is_none() {
            return Ok(());
        }
        match self.record.given.as_ref().filter(|given| given.successor == successor) {
            Some(given) if given.accepted => Ok(()),
            // Its answer was lost. The agent has stood still since.
            Some(_) => {
                self.begin(Purpose::Final(successor));
                Ok(())
            }
            None => self.quiesce(successor).await,
        }
    }

    async fn quiesce(&mut self, successor: TransferId) -> Result<(), StepError> {
        self.storing = None;
        self.quiesced_ms = Some(boot_ms());
        let within_ms = (self.shared.lease.lease_ms / 3).min(10_000);
        // What is frozen cannot answer. It may move as far as the boundary, under its lease and with the gateway
        // shut: it buys nothing.
        let thawed = self.frozen || self.dry;
        if thawed {
            self.stand(if self.frozen { Mode::WindingDown } else { Mode::Frozen }).await?;
            self.command(&ToInit::Thaw).await?;
        }
        let until = Instant::now() + Duration::from_millis(within_ms * 2);
        self.quiescing = Some(Quiescing { successor, until, thawed });
        self.tell_agent(&ToAgent::Quiesce { within_ms, freeze: None }).await
    }

    /// The agent stands at a boundary.
    pub(super) async fn quiesced(&mut self) -> Result<(), StepError> {
        let Some(quiescing) = self.quiescing.take() else { return Ok(()) };
        self.freeze_again(&quiescing).await?;
        self.begin(Purpose::Final(quiescing.successor));
        Ok(())
    }

    /// The agent did not stop in time, or need not any more. The next renewal says whether it is asked again.
    pub(super) async fn stop_quiescing(&mut self) -> Result<(), StepError> {
        let Some(quiescing) = self.quiescing.take() else { return Ok(()) };
        self.freeze_again(&quiescing).await
    }

    async fn freeze_again(&mut self, quiescing: &Quiescing) -> Result<(), StepError> {
        if quiescing.thawed && (self.frozen || self.dry) {
            self.command(&ToInit::Freeze).await?;
        }
        Ok(())
    }

    /// No successor waits for this holder. `run` counts only in the answer to a renewal that was first sent after
    /// the last final (H-68), and only when it is known what became of that.
    pub(super) async fn resume_after_final(&mut self, sent_ms: u64) -> Result<(), StepError> {
        self.stop_quiescing().await?;
        if self.storing.as_ref().is_some_and(super::store::Storing::final_is_sent) {
            return Ok(());
        }
        if let Some(given) = self.record.given.as_ref().filter(|given| !given.accepted) {
            self.begin(Purpose::Final(given.successor));
            return Ok(());
        }
        if self.quiesced_ms.is_none_or(|quiesced_ms| quiesced_ms >= sent_ms) {
            return Ok(());
        }
        self.storing = None;
        // Forgotten first: an agent that runs must not pass for one that has given its final.
        if self.record.given.take().is_some() {
            self.save().await?;
        }
        self.tell_agent(&ToAgent::Resume { holder: None }).await?;
        tracing::info!(place = %self.key(), "no successor waits for it; going on");
        self.quiesced_ms = None;
        if self.asked_final.is_some() {
            self.renewing.checkpoint_at = Instant::now();
        }
        Ok(())
    }
}
