//! Return, abandon, wake: commands on a session.

use handoff_core::grid::CommandKind;
use handoff_core::{Command, Epoch, Role};
use handoff_protocol::document::Facts;
use handoff_protocol::request::{Reasoned, Return, Returned, SessionView};
use handoff_protocol::{SessionId, TransferId};

use crate::asked::{self, Call};
use crate::error::ServiceError;
use crate::service::Service;
use crate::{reply, view, words};

impl Service {
    /// A frozen source takes its session back; the same nonce gets the same answer.
    ///
    /// # Errors
    /// What the machine refuses.
    pub async fn return_source(
        &self,
        call: &Call,
        session: SessionId,
        body: Return,
    ) -> Result<Returned, ServiceError> {
        let command = Command::Return {
            session,
            principal: call.principal.name.clone(),
            nonce: body.nonce,
            frozen_epoch: Epoch(body.frozen_epoch),
        };
        let applied = self.give(call, None, command).await?;
        let epoch = reply::returned(&applied.reply)?;
        Ok(Returned { epoch: epoch.0 })
    }

    /// Gives up a source that cannot be stopped.
    ///
    /// # Errors
    /// What the machine refuses.
    pub async fn abandon_source(
        &self,
        call: &Call,
        session: SessionId,
        body: Reasoned,
    ) -> Result<SessionView, ServiceError> {
        self.on_session(call, session, body, Command::AbandonSource { session }).await
    }

    /// Has a resting session run again.
    ///
    /// # Errors
    /// What the machine refuses.
    pub async fn wake(
        &self,
        call: &Call,
        session: SessionId,
        body: Reasoned,
    ) -> Result<SessionView, ServiceError> {
        self.on_session(call, session, body, Command::Wake { session }).await
    }

    async fn on_session(
        &self,
        call: &Call,
        session: SessionId,
        body: Reasoned,
        command: Command,
    ) -> Result<SessionView, ServiceError> {
        let reason = body.reason.clone().unwrap_or_default();
        words::check("reason", &reason)?;
        let (kind, request) =
            (command.kind(), asked::request(body.request_id.as_ref(), &session.to_string(), &body));
        let replayed = self.give(call, Some(request), command).await?.replayed;
        let found = self.found_session(call.principal.project, session).await?;
        if !reason.is_empty() && !replayed {
            self.record_reason(call, found.live.or(found.pending), kind, &reason).await?;
        }
        Ok(view::session(&found))
    }

    /// Puts on record why somebody did what the command's own rows say.
    pub(crate) async fn record_reason(
        &self,
        call: &Call,
        transfer: Option<TransferId>,
        kind: CommandKind,
        reason: &str,
    ) -> Result<(), ServiceError> {
        let roles = [Role::Caller, Role::Orchestrator, Role::Admin, Role::Source];
        let actor = self.permit_roles(&call.principal, &roles, kind.as_str()).await?;
        let detail = [("command", kind.as_str().to_owned()), ("reason", reason.to_owned())];
        let detail: Facts = detail.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
        self.inner.recorder.record(&call.principal, actor, transfer, "reason_given", detail).await
    }
}
