//! When a move fails before `active`: the source must go on. While the transfer can still be refreshed a
//! confirmed draft is enough; else the transfer is ended and the source returns.

use anyhow::{Context as _, Result, bail};
use handoff_agent::control::Holder;
use handoff_protocol::Status;
use handoff_protocol::listing::ViewQuery;
use handoff_protocol::request::{Return, Terminate, TransferView};

use super::journal::MoveEnd;
use super::moving::Moving;

/// What is true of the transfer after a failure.
pub enum Truth {
    /// The destination runs, or ran: the source is over.
    Taken(TransferView),
    /// It was never claimed.
    NotTaken(Option<TransferView>),
}

impl Moving {
    /// Asks the control plane what became of the transfer.
    pub async fn truth(&self) -> Result<Truth> {
        let Some(transfer) = self.journal.transfer_id else { return Ok(Truth::NotTaken(None)) };
        let view = self.client.transfer(transfer, ViewQuery::default()).await?;
        let frozen_epoch = self.journal.epoch.unwrap_or_default();
        let taken = match view.status {
            Status::Active | Status::Insolvent => true,
            Status::Terminated => view.epoch > frozen_epoch,
            Status::Staged | Status::Provisioned | Status::Pushed | Status::Expired => false,
        };
        Ok(if taken { Truth::Taken(view) } else { Truth::NotTaken(Some(view)) })
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

    /// Return is a claim: its nonce is this move's id, which was durable before the source froze.
    async fn give_back(&mut self) -> Result<()> {
        let frozen_epoch = self.journal.epoch.context("a frozen source has an epoch")?;
        let session_id = self.journal.session_id;
        let body = Return { nonce: self.journal.id, frozen_epoch };
        let returned = self.client.return_source(session_id, body).await?;
        self.link.resume(Holder { session_id, epoch: returned.epoch }).await?;
        self.journal.frozen = false;
        Ok(())
    }
}
