//! Taking the session: by an authorisation, or again for a live transfer.
//!
//! The order is the point. The incarnation and the first sending are durable, and the init holds the lease that
//! counts from it, before the claim leaves. The epoch is durable, and the gateway admits it, before `go`.

use handoff_agent::control::ToAgent;
use handoff_gateway::control::{Admit, Resolve};
use handoff_protocol::node::{Claim, Claimed, Decline, Destination, ObservedState};
use handoff_protocol::{AuthorizationId, ErrorCode, NanoUsd};
use handoff_sandbox::boot_ms;
use handoff_sandbox::control::ToInit;
use handoff_sandbox::lease::Grant;
use tokio::time::{Duration, Instant};

use super::{Place, StepError};
use crate::record::{ClaimRecord, Holding};
use crate::step_error::gateway_code;

impl Place {
    pub(super) async fn claim(
        &mut self,
        wanted: &Destination,
        authorization: AuthorizationId,
    ) -> Result<(), StepError> {
        if let Err(error) = self.shared.gateway.ask(&Resolve { destination: self.key() }).await {
            if gateway_code(&error) != Some(ErrorCode::CredentialUnresolved) {
                return Err(error.into());
            }
            return self.decline(authorization, error.to_string()).await;
        }
        match self.send_claim(wanted, Some(authorization)).await {
            Ok(claimed) => self.take_over(claimed).await,
            Err(error) => {
                if error.code().is_some_and(|code| !code.retryable()) {
                    tracing::info!(place = %self.key(), %error, "the claim was refused");
                    self.spent_authorization = Some(authorization);
                    self.record.claim = None;
                    self.save().await?;
                    return Ok(());
                }
                Err(error)
            }
        }
    }

    pub(super) async fn reclaim(&mut self, wanted: &Destination) -> Result<(), StepError> {
        self.shared.gateway.ask(&Resolve { destination: self.key() }).await?;
        match self.send_claim(wanted, None).await {
            Ok(claimed) => self.take_over(claimed).await,
            Err(error) => {
                // Refused for certain, so a later one is another claim with a sending of its own.
                if error.code().is_some_and(|code| !code.retryable()) {
                    self.record.claim = None;
                    self.save().await?;
                }
                Err(error)
            }
        }
    }

    async fn decline(&mut self, authorization: AuthorizationId, reason: String) -> Result<(), StepError> {
        self.spent_authorization = Some(authorization);
        let body = Decline { generation: self.record.generation, authorization, reason };
        self.shared.client.decline(self.record.transfer_id, &body).await?;
        Ok(())
    }

    async fn send_claim(
        &mut self,
        wanted: &Destination,
        authorization: Option<AuthorizationId>,
    ) -> Result<Claimed, StepError> {
        let (claim, again) = self.prepare_claim(authorization).await?;
        let grant = Grant {
            first_sent_ms: claim.first_sent_ms,
            boot_id: claim.boot_id.clone(),
            lease_ms: self.shared.lease.lease_ms,
        };
        // Said again, its lease counts from its first sending, which the init knows: what may have been accepted
        // then must not be held longer because its answer was lost.
        if !again {
            self.command(&ToInit::Lease(grant)).await?;
        }
        let body = Claim {
            incarnation: claim.incarnation,
            generation: self.record.generation,
            authorization,
            digest: wanted.snapshot,
        };
        Ok(self.shared.client.claim(self.record.transfer_id, &body).await?)
    }

    /// The same claim is sent again with its first sending; another authorisation is another claim.
    async fn prepare_claim(
        &mut self,
        authorization: Option<AuthorizationId>,
    ) -> Result<(ClaimRecord, bool), StepError> {
        let incarnation = self.record.sandbox.as_ref().expect("only a loaded sandbox claims").incarnation;
        let same = |claim: &&ClaimRecord| {
            claim.authorization == authorization
                && claim.incarnation == incarnation
                && claim.boot_id == self.shared.boot_id
        };
        if let Some(claim) = self.record.claim.as_ref().filter(same) {
            return Ok((claim.clone(), true));
        }
        let boot_id = self.shared.boot_id.clone();
        let claim = ClaimRecord { authorization, incarnation, first_sent_ms: boot_ms(), boot_id };
        self.record.claim = Some(claim.clone());
        self.save().await?;
        Ok((claim, false))
    }

    /// The claim was accepted: this incarnation holds the session.
    async fn take_over(&mut self, claimed: Claimed) -> Result<(), StepError> {
        let claim = self.record.claim.clone().expect("the claim was recorded before it was sent");
        let holding = Holding { epoch: claimed.epoch, incarnation: claim.incarnation };
        self.record.holding = Some(holding);
        self.save().await?;
        self.renewing.at = Instant::now() + Duration::from_millis(self.shared.lease.renew_ms);
        self.renewing.checkpoint_at = Instant::now() + self.shared.options.checkpoint_every;
        self.renewing.confirmed_ms = Some(claim.first_sent_ms);
        self.renewing.go_due = true;
        (self.frozen, self.dry, self.checkpointed, self.asked_final) = (false, false, false, None);
        self.lives.begin(Instant::now());
        self.admit(holding, claimed.budget.limit_usd, claim.first_sent_ms).await?;
        self.go().await?;
        self.watch_meter();
        let _ = self.observe(ObservedState::Running, None).await;
        Ok(())
    }

    /// The gateway lets this epoch buy, within its limit and its lease.
    pub(super) async fn admit(
        &self,
        holding: Holding,
        limit_usd: NanoUsd,
        first_sent_ms: u64,
    ) -> Result<(), StepError> {
        let admit = Admit {
            destination: self.key(),
            epoch: holding.epoch,
            incarnation: holding.incarnation,
            limit_usd,
            run_until_boot_ms: self.shared.lease.run_until(first_sent_ms),
            boot_id: self.shared.boot_id.clone(),
        };
        self.shared.gateway.ask(&admit).await?;
        Ok(())
    }

    /// The agent may call models and tools. Said again it changes nothing.
    pub(super) async fn go(&mut self) -> Result<(), StepError> {
        if let (true, Some(holding)) = (self.renewing.go_due, self.record.holding) {
            self.tell_agent(&ToAgent::Go { epoch: holding.epoch }).await?;
            self.renewing.go_due = false;
            tracing::info!(place = %self.key(), epoch = holding.epoch, "running");
        }
        Ok(())
    }
}
