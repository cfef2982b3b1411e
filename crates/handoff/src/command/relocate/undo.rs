//! When a move fails before `active`: the source must go on. While the transfer can still be refreshed a
//! confirmed draft is enough; else the transfer is ended and the source returns.

use anyhow::{Context as _, Result, bail};
use handoff_agent::control::Holder;
use handoff_client::ClientError;
use handoff_protocol::ErrorCode;
use handoff_protocol::listing::ViewQuery;
use handoff_protocol::request::{Return, Terminate, TransferView};
use handoff_protocol::session_dir::Standing;

use super::journal::MoveEnd;
use super::moving::{Moved, Moving, new_id};
use super::rest::Truth;

impl Moving {
    /// Asks the control plane what became of the transfer.
    pub async fn truth(&mut self) -> Result<Truth> {
        if self.journal.transfer_id.is_none() {
            self.find_staged().await?;
        }
        let Some(transfer) = self.journal.transfer_id else { return Ok(Truth::NotTaken(None)) };
        let view = self.client.transfer(transfer, ViewQuery::default()).await?;
        Ok(Truth::of(view))
    }

    /// The session moved, and only the source did not hear of it.
    pub async fn found_done(&mut self, view: TransferView) -> Result<Moved> {
        self.retire().await?;
        Ok(Moved { view, pause: None })
    }

    /// A stage whose answer was lost is sent again: what is staged now must be known, or it would stay behind.
    async fn find_staged(&mut self) -> Result<()> {
        let Some(draft) = self.journal.draft else { return Ok(()) };
        match self.send_stage(draft).await {
            Err(error) if error.downcast_ref().and_then(ClientError::code).is_some_and(is_final_no) => Ok(()),
            other => other,
        }
    }

    /// Ends the transfer and lets the source go on.
    pub async fn undo(&mut self, why: &str) -> Result<()> {
        if let Truth::NotTaken(Some(view)) = self.truth().await?
            && view.status.is_pending()
        {
            let reason = format!("move failed: {}", why.chars().take(160).collect::<String>());
            let body = Terminate { request_id: self.journal.request("undo"), reason };
            self.client.terminate(view.transfer, body).await?;
        }
        // It may have been claimed just before it was ended.
        if let Truth::Taken(view) = self.truth().await? {
            self.retire().await?;
            bail!("the destination had taken the session after all: {} is {}", view.transfer, view.status);
        }
        if self.journal.frozen {
            self.give_back().await?;
        }
        self.journal.ended = Some(MoveEnd::Undone);
        self.journal.save(&self.home)
    }

    /// Return is a claim: it is made by a source that is frozen, under a nonce that is durable.
    async fn give_back(&mut self) -> Result<()> {
        if self.stands_frozen().await? {
            self.send_return().await?;
        }
        self.journal.frozen = false;
        Ok(())
    }

    /// Whether the source must be let go on. With a nonce a return may have been sent, so it is sent again; without
    /// one it is not certain that the source ever heard that it shall stop: a running one is made certain, and of one
    /// that has died its file says so.
    async fn stands_frozen(&mut self) -> Result<bool> {
        if self.journal.nonce.is_some() {
            return Ok(true);
        }
        if self.link.is_some() {
            self.freeze().await?;
            return Ok(true);
        }
        let standing = handoff_agent::standing::read(&self.journal.state_dir)?;
        let ours = |standing| match standing {
            Standing::Frozen { transfer_id, .. } => Some(transfer_id) == self.journal.transfer_id,
            Standing::Holder { .. } | Standing::Retired { .. } => false,
        };
        if !standing.is_some_and(ours) {
            return Ok(false);
        }
        self.journal.nonce = Some(new_id());
        self.journal.save(&self.home)?;
        Ok(true)
    }

    async fn send_return(&mut self) -> Result<()> {
        let frozen_epoch = self.journal.epoch.context("a frozen source has an epoch")?;
        let session_id = self.journal.session_id;
        let nonce = self.journal.nonce.context("a return has a nonce")?;
        let returned = self.client.return_source(session_id, Return { nonce, frozen_epoch }).await?;
        match &mut self.link {
            Some(link) => link.resume(Holder { session_id, epoch: returned.epoch }).await,
            None => {
                let holder = Standing::Holder { session_id, epoch: returned.epoch };
                Ok(handoff_agent::standing::write(&self.journal.state_dir, &holder)?)
            }
        }
    }
}

/// A refusal that stays one: nothing was done, and nothing will be.
fn is_final_no(code: ErrorCode) -> bool {
    !code.retryable()
}
