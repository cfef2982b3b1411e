//! Renewing the lease, and doing what the answer says.

use handoff_gateway::control::{Lease as RunLease, Resolve};
use handoff_gateway::meter::Mode;
use handoff_protocol::node::{Claim, LeaseCommand, Renew, Renewed};
use handoff_protocol::{ErrorCode, NanoUsd};
use handoff_sandbox::boot_ms;
use handoff_sandbox::control::ToInit;
use handoff_sandbox::lease::Grant;
use tokio::time::{Duration, Instant};

use super::{Place, StepError};

impl Place {
    /// One renewal. A lost answer is tried again soon; a refusal ends this holder.
    pub(super) async fn renew(&mut self) -> Result<(), StepError> {
        let Some(holding) = self.record.holding else { return Ok(()) };
        let body = Renew {
            epoch: holding.epoch,
            generation: self.record.generation,
            incarnation: holding.incarnation,
        };
        let sent_ms = boot_ms();
        let client = self.shared.client.clone().with_deadline(self.shared.lease.patience());
        match client.renew(self.record.transfer_id, &body).await {
            Ok(renewed) => {
                self.renewing.at = Instant::now() + Duration::from_millis(self.shared.lease.renew_ms);
                self.renewed(renewed, sent_ms).await
            }
            Err(error) if ends_the_holder(error.code()) => {
                tracing::warn!(place = %self.key(), %error, "this copy is no longer the session");
                self.yield_session().await
            }
            Err(error) => {
                tracing::warn!(place = %self.key(), %error, "not renewed; trying again");
                self.renewing.at = Instant::now() + self.shared.lease.retry();
                Ok(())
            }
        }
    }

    /// The lease counts from this renewal's own sending. A lapse of it froze the agent; this thaws it.
    async fn renewed(&mut self, renewed: Renewed, sent_ms: u64) -> Result<(), StepError> {
        let grant = Grant {
            first_sent_ms: sent_ms,
            boot_id: self.shared.boot_id.clone(),
            lease_ms: renewed.lease_ms,
        };
        self.renewing.confirmed_ms = Some(sent_ms);
        let status = self.command(&ToInit::Lease(grant)).await?;
        self.saw_alive();
        self.prolong(sent_ms).await?;
        if !status.reasons.any() && !self.frozen && !self.dry {
            self.stand(Mode::Running).await?;
        }
        if self.renewing.go_due {
            self.admit_adopted(sent_ms).await?;
        }
        self.go().await?;
        match renewed.command {
            LeaseCommand::Run => self.resume_after_final(sent_ms).await,
            LeaseCommand::Quiesce => match renewed.for_transfer {
                Some(successor) => self.ask_for_final(successor).await,
                None => Ok(()),
            },
            // The list says so too, with what is to be stored meanwhile.
            LeaseCommand::Freeze => self.stop_quiescing().await,
            LeaseCommand::Stop => self.yield_session().await,
        }
    }

    /// A node that adopted a holder learns here that it still is one. Whether the gateway ever heard of the epoch
    /// is not known, and neither is its limit: the claim, said again, is answered with it.
    async fn admit_adopted(&mut self, sent_ms: u64) -> Result<(), StepError> {
        let (Some(holding), Some(claim)) = (self.record.holding, self.record.claim.clone()) else {
            return Ok(());
        };
        let body = Claim {
            incarnation: claim.incarnation,
            generation: self.record.generation,
            authorization: claim.authorization,
            digest: self.wanted.borrow().snapshot,
        };
        let claimed = self.shared.client.claim(self.record.transfer_id, &body).await?;
        let wanted = self.wanted.borrow().clone();
        self.open_door(&wanted).await?;
        self.shared.gateway.ask(&Resolve { destination: self.key() }).await?;
        self.admit(holding, claimed.budget.limit_usd, sent_ms).await?;
        self.watch_meter();
        Ok(())
    }

    async fn prolong(&mut self, sent_ms: u64) -> Result<(), StepError> {
        let Some(holding) = self.record.holding else { return Ok(()) };
        let lease = RunLease {
            destination: self.key(),
            epoch: holding.epoch,
            run_until_boot_ms: self.shared.lease.run_until(sent_ms),
            boot_id: self.shared.boot_id.clone(),
        };
        if let Err(error) = self.shared.gateway.ask(&lease).await {
            // A gateway that has just started does not know this epoch yet: the meter's watcher says so.
            tracing::warn!(place = %self.key(), %error, "the gateway did not take the lease");
        }
        Ok(())
    }

    /// The gateway was started anew: it is told again what it must know.
    pub(super) async fn admit_again(&mut self, limit_usd: NanoUsd) -> Result<(), StepError> {
        let wanted = self.wanted.borrow().clone();
        self.open_door(&wanted).await?;
        self.shared.gateway.ask(&Resolve { destination: self.key() }).await?;
        // Without a confirmed renewal there is nothing to count from: the next one admits.
        self.renewing.at = Instant::now();
        if let (Some(holding), Some(confirmed_ms)) = (self.record.holding, self.renewing.confirmed_ms) {
            self.admit(holding, limit_usd, confirmed_ms).await?;
            let mode = if self.frozen {
                Mode::WindingDown
            } else if self.dry {
                Mode::Frozen
            } else {
                return Ok(());
            };
            self.stand(mode).await?;
        }
        Ok(())
    }
}

/// Refusals after which this incarnation can never run again: the session has moved on to another epoch or place,
/// or this node itself has reported that it ended. Not so where the transfer is unknown, is somebody else's or has
/// another status: that may be another control plane, or one with older books, and only a list of the one that is
/// known ends anything (H-50). Until then the init keeps the lease.
fn ends_the_holder(code: Option<ErrorCode>) -> bool {
    matches!(code, Some(ErrorCode::StaleEpoch | ErrorCode::StaleGeneration | ErrorCode::LeaseOver))
}
