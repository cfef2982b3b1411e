//! Activate: lets the destination claim the session, waits for it, and says what is true.
//!
//! The call that spent the token withdraws its authorisation when nobody claimed in time, whether its caller is
//! still there or not: one task per authorisation. A repetition only looks on, so that it cannot cut short what the
//! first one still waits for, and it ends with its caller.

use handoff_core::ledger::{Found, Request};
use handoff_core::transfer::Outcome;
use handoff_core::{Command, Refusal};
use handoff_protocol::document::Facts;
use handoff_protocol::request::{self, Operation, TransferView};
use handoff_protocol::{AuthorizationId, NanoUsd, Timestamp, TransferId};

use crate::approval::Subject;
use crate::asked::{self, Call};
use crate::authorize::Wanted;
use crate::error::ServiceError;
use crate::reply;
use crate::service::Service;
use crate::wait::News;

/// An activation that was accepted.
struct Opened {
    request: Request,
    /// Where it was accepted before.
    repeated: Option<Repeated>,
}

/// What a repetition looks at.
struct Repeated {
    authorization: AuthorizationId,
    wait_ms: u64,
    deadline: Timestamp,
}

impl Service {
    /// Lets the destination claim the session, and waits for the claim. Needs a token, or an approval.
    ///
    /// # Errors
    /// `not_resumed` where nobody claimed in time or the destination declined; `authorization_required`
    /// without a token and an approval; what the machine refuses.
    pub async fn activate(
        &self,
        call: &Call,
        transfer: TransferId,
        body: request::Activate,
    ) -> Result<TransferView, ServiceError> {
        let (service, caller) = (self.clone(), call.clone());
        let opened = self.detached(async move { service.open(&caller, transfer, body).await }).await?;
        if let Some(Repeated { authorization, wait_ms, deadline }) = opened.repeated
            && self.claimed(call, transfer, authorization, wait_ms).await?
        {
            return Err(ServiceError::StillOpen { transfer, deadline });
        }
        self.answered(call, transfer, opened.request).await
    }

    /// Spends the token and sees its authorisation to the end; of a repetition, finds what is to be looked at.
    async fn open(
        &self,
        call: &Call,
        transfer: TransferId,
        mut body: request::Activate,
    ) -> Result<Opened, ServiceError> {
        let wait_ms = body.wait_ms.take().unwrap_or(self.config().activate_wait_ms);
        let token = body.token.take();
        let request = asked::request(body.request_id.as_ref(), &transfer.to_string(), &body);
        let found = self.found(call.principal.project, transfer).await?;
        let wanted = Wanted {
            request: request.clone(),
            token: token.as_ref(),
            subject: activate_subject(call, &found),
            objection: None,
        };
        let applied = self.authorized(call, wanted, |token| Command::Activate { transfer, token }).await?;
        let authorization = reply::authorized(&applied.reply)?;
        if applied.replayed {
            let deadline = found.transfer.open_authorization().map_or(applied.at, |open| open.deadline);
            return Ok(Opened { request, repeated: Some(Repeated { authorization, wait_ms, deadline }) });
        }
        if self.claimed(call, transfer, authorization, wait_ms).await? {
            self.withdraw(call, transfer, authorization).await?;
        }
        Ok(Opened { request, repeated: None })
    }

    /// Waits until the authorisation was used, and says whether it is still open when the wait is over.
    async fn claimed(
        &self,
        call: &Call,
        transfer: TransferId,
        authorization: AuthorizationId,
        wait_ms: u64,
    ) -> Result<bool, ServiceError> {
        let mut watch = self.watch(wait_ms.min(self.config().policy.authorization_ms));
        loop {
            let found = self.found(call.principal.project, transfer).await?;
            if !is_open(&found, authorization)? {
                return Ok(false);
            }
            if watch.news().await? == News::TimeOver {
                return Ok(true);
            }
        }
    }

    /// Nobody claimed in time. A claim that comes at the same moment wins or loses in the ledger; either way
    /// what is true is read afterwards.
    async fn withdraw(
        &self,
        call: &Call,
        transfer: TransferId,
        authorization: AuthorizationId,
    ) -> Result<(), ServiceError> {
        let project = call.principal.project;
        match self.give_own(project, Command::Withdraw { transfer, authorization }).await {
            Err(error) if !lost_the_race(&error) => return Err(error),
            Ok(_) | Err(_) => {}
        }
        let found = self.found(project, transfer).await?;
        is_open(&found, authorization).map(|_| ())
    }
}

fn lost_the_race(error: &ServiceError) -> bool {
    matches!(error.refusal(), Some(Refusal::AuthorizationOver { .. } | Refusal::WrongStatus { .. }))
}

/// Whether the authorisation can still be used. An error says that it ended without a claim; `false` that it
/// was claimed.
fn is_open(found: &Found, authorization: AuthorizationId) -> Result<bool, ServiceError> {
    let transfer = &found.transfer;
    let not_resumed =
        |why: String| ServiceError::NotResumed { transfer: transfer.id, status: transfer.status, why };
    let ours = transfer.authorization.as_ref().filter(|known| known.id == authorization);
    match ours.map(|known| &known.outcome) {
        Some(Outcome::Open) => Ok(true),
        Some(Outcome::Claimed) => Ok(false),
        Some(Outcome::Declined { reason }) => Err(not_resumed(format!("the destination declined: {reason}"))),
        Some(Outcome::Withdrawn) => {
            Err(not_resumed("the destination did not claim while it was authorised".to_owned()))
        }
        None => Err(not_resumed("this authorisation ended and another one was made".to_owned())),
    }
}

fn activate_subject(call: &Call, found: &Found) -> Subject {
    Subject {
        project: call.principal.project,
        asked_by: call.principal.name.clone(),
        transfer: found.transfer.id,
        operation: Operation::Activate,
        figures: Facts::from([("digest".to_owned(), found.transfer.snapshot.to_string())]),
        budget: found.transfer.budget.map_or(NanoUsd::ZERO, |budget| budget.allocated),
    }
}
