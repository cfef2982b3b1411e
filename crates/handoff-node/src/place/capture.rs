//! Storing the session: checkpoints while it runs or stands still, and the final for a successor.

use handoff_agent::control::{FromAgent, ToAgent};
use handoff_protocol::TransferId;
use handoff_protocol::node::Checkpoint;
use handoff_protocol::request::Refresh;
use handoff_sandbox::{WORKSPACE_INSIDE, boot_ms};
use handoff_snapshot::{CaptureSource, Captured, Moment};
use tokio::time::{Duration, Instant, timeout};

use super::{Final, Place, StepError};
use crate::init_link::Inbound;
use crate::record::Holding;

impl Place {
    /// The session as it stands in this destination's directory, stored at the control plane.
    async fn capture(&self, moment: Moment, holding: Holding) -> Result<Captured, StepError> {
        let state = self.dir.join("state");
        let workspace = self.dir.join("workspace");
        let mut source = CaptureSource::new(state, Some(workspace), moment, self.shared.options.name.clone());
        source.session_id = Some(self.record.session_id);
        source.epoch = Some(holding.epoch);
        source.parent = self.record.restored;
        source.workspace_shown = Some(WORKSPACE_INSIDE.to_owned());
        source.index = self.index.clone();
        let previous = self.record.checkpoint.or(self.record.restored);
        Ok(handoff_snapshot::capture(source, &self.shared.control_plane_blobs, previous).await?)
    }

    /// A checkpoint while the agent works: it is not disturbed, and what moved is in the report.
    pub(super) async fn checkpoint_running(&mut self) -> Result<(), StepError> {
        self.renewing.checkpoint_at = Instant::now() + self.shared.options.checkpoint_every;
        if let Err(error) = self.store_checkpoint().await {
            tracing::warn!(place = %self.key(), %error, "no checkpoint this time");
        }
        Ok(())
    }

    /// The checkpoint of an agent that stands still.
    pub(super) async fn checkpoint_frozen(&mut self) -> Result<(), StepError> {
        self.store_checkpoint().await?;
        self.checkpointed = true;
        Ok(())
    }

    /// Stores what is there and has it accepted. The lease is not renewed meanwhile: a capture that takes longer
    /// than the lease costs a freeze, never a second copy.
    pub(super) async fn store_checkpoint(&mut self) -> Result<(), StepError> {
        let Some(holding) = self.record.holding else { return Ok(()) };
        let captured = self.capture(Moment::Draft, holding).await?;
        let body = Checkpoint {
            epoch: holding.epoch,
            incarnation: holding.incarnation,
            digest: captured.digest,
            follows: self.record.checkpoint.or(self.record.restored),
        };
        self.shared.client.checkpoint(self.record.transfer_id, &body).await?;
        self.record.checkpoint = Some(captured.digest);
        self.save().await
    }

    /// Stops the agent at a step boundary and gives the successor its final snapshot.
    pub(super) async fn give_final(&mut self, successor: TransferId) -> Result<(), StepError> {
        if self.final_for.as_ref().is_some_and(|given| given.transfer == successor) {
            return Ok(());
        }
        let Some(holding) = self.record.holding else { return Ok(()) };
        self.quiesced_ms = Some(boot_ms());
        self.quiesce().await?;
        let captured = self.capture(Moment::Final, holding).await?;
        let refresh = Refresh {
            request_id: None,
            expected_epoch: Some(holding.epoch),
            snapshot: Some(captured.digest),
            input: None,
            is_final: true,
            incarnation: Some(holding.incarnation),
        };
        self.shared.client.refresh(successor, refresh).await?;
        self.record.checkpoint = Some(captured.digest);
        self.final_for = Some(Final { transfer: successor });
        self.quiesced_ms = Some(boot_ms());
        self.save().await
    }

    async fn quiesce(&mut self) -> Result<(), StepError> {
        let within_ms = (self.shared.lease.lease_ms / 3).min(10_000);
        let link = self.link()?;
        link.tell_agent(&ToAgent::Quiesce { within_ms, freeze: None }).await?;
        let stopped = async {
            loop {
                match link.next().await {
                    Inbound::Agent(line) => {
                        if let Ok(FromAgent::Quiesced { .. }) = serde_json::from_str(&line) {
                            return None;
                        }
                    }
                    Inbound::LeaseRanOut => {}
                    end @ (Inbound::Exited(_) | Inbound::Gone) => return Some(end),
                }
            }
        };
        match timeout(Duration::from_millis(within_ms * 2), stopped).await {
            Ok(None) => Ok(()),
            Ok(Some(end)) => {
                self.note_end(&end);
                Err(StepError::AgentFailed("it ended instead of stopping".to_owned()))
            }
            Err(_) => Err(StepError::AgentSilent("stop")),
        }
    }
}
