//! When a move fails before `active`: the source must go on. While the transfer can still be refreshed a
//! confirmed draft is enough; else the transfer is ended and the source returns.

use anyhow::{Context as _, Result, bail};
use handoff_agent::control::Holder;
use handoff_protocol::Status;
use handoff_protocol::listing::ViewQuery;
use handoff_protocol::request::{EventType, Return, Terminate, TransferView};
use handoff_protocol::session_dir::Standing;

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
    pub async fn truth(&mut self) -> Result<Truth> {
        if self.journal.transfer_id.is_none() {
            self.find_staged().await;
        }
        let Some(transfer) = self.journal.transfer_id else { return Ok(Truth::NotTaken(None)) };
        let view = self.client.transfer(transfer, ViewQuery::default()).await?;
        // The session's epoch does not tell: a return raises it, too.
        let activated = view.events.iter().any(|event| event.kind == EventType::Activated);
        let taken = match view.status {
            Status::Active | Status::Insolvent => true,
            Status::Terminated => activated,
            Status::Staged | Status::Provisioned | Status::Pushed | Status::Expired => false,
        };
        Ok(if taken { Truth::Taken(view) } else { Truth::NotTaken(Some(view)) })
    }

    /// A stage whose answer was lost: the session says what is pending.
    async fn find_staged(&mut self) {
        if let Ok(session) = self.client.session(self.journal.session_id).await {
            self.journal.transfer_id = session.pending;
            self.journal.epoch = Some(session.epoch);
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

    /// Return is a claim: its nonce is this move's id, which was durable before the source froze.
    async fn give_back(&mut self) -> Result<()> {
        let frozen_epoch = self.journal.epoch.context("a frozen source has an epoch")?;
        let session_id = self.journal.session_id;
        let body = Return { nonce: self.journal.id, frozen_epoch };
        let returned = self.client.return_source(session_id, body).await?;
        match &mut self.link {
            Some(link) => link.resume(Holder { session_id, epoch: returned.epoch }).await?,
            None => {
                let holder = Standing::Holder { session_id: Some(session_id), epoch: returned.epoch };
                handoff_agent::standing::write(&self.journal.state_dir, &holder)?;
            }
        }
        self.journal.frozen = false;
        Ok(())
    }
}
