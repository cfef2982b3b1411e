//! Push: the destination is to fetch and verify the snapshot; its receipt is waited for.

use handoff_core::transfer::Push;
use handoff_core::{Command, Transfer};
use handoff_protocol::request::{self, TransferView};
use handoff_protocol::{Digest, Status, TransferId};

use crate::asked::{self, Call};
use crate::error::ServiceError;
use crate::service::Service;
use crate::wait::News;

impl Service {
    /// Asks the destination to verify the snapshot, and waits for its receipt. Where the wait ends first, the
    /// answer says `provisioned`: the push goes on, and the same call waits again.
    ///
    /// # Errors
    /// `credential_unresolved` where the destination cannot resolve a reference; what the machine refuses.
    pub async fn push(
        &self,
        call: &Call,
        transfer: TransferId,
        mut body: request::Push,
    ) -> Result<TransferView, ServiceError> {
        let wait_ms = body.wait_ms.take().unwrap_or(self.config().push_wait_ms);
        let request = asked::request(body.request_id.as_ref(), &transfer.to_string(), &body);
        let command = Command::Push { transfer, checksum: body.checksum };
        let mut watch = self.watch(wait_ms);
        // Only the command goes on when the caller is gone; waiting for nobody would cost for as long as it takes.
        let (service, caller, given) = (self.clone(), call.clone(), request.clone());
        self.detached(async move { service.give(&caller, Some(given), command).await }).await?;
        let mut pushed = None;
        loop {
            let found = self.found(call.principal.project, transfer).await?.transfer;
            let pushed = *pushed.get_or_insert(found.snapshot);
            if is_settled(&found, pushed)? || watch.news().await? == News::TimeOver {
                return self.answered(call, transfer, request).await;
            }
        }
    }
}

/// Whether there is nothing to wait for any more.
fn is_settled(found: &Transfer, pushed: Digest) -> Result<bool, ServiceError> {
    let transfer = found.id;
    match found.status {
        // Pushed without a receipt: it was assigned anew, and its new node is asked.
        Status::Staged | Status::Provisioned | Status::Pushed if !found.receipt => {}
        Status::Staged
        | Status::Provisioned
        | Status::Pushed
        | Status::Active
        | Status::Insolvent
        | Status::Terminated
        | Status::Expired => {
            return Ok(true);
        }
    }
    match &found.push {
        Some(Push::Requested { digest }) if *digest == pushed => Ok(false),
        Some(Push::Failed { missing }) => {
            Err(ServiceError::CredentialUnresolved { transfer, missing: missing.clone() })
        }
        Some(Push::Requested { .. }) | None => Err(ServiceError::PushVoid { transfer }),
    }
}
