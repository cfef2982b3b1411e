//! Stage and refresh: a snapshot starts a transfer, or takes the place of the one that it carries.

use handoff_core::command::{Refresh, RefreshBy, Stage};
use handoff_core::grid::CommandKind;
use handoff_core::ledger::Request;
use handoff_core::{Command, Epoch, Session};
use handoff_protocol::request::{self, Labels, Staged};
use handoff_protocol::{Digest, SessionId, TransferId};
use handoff_snapshot::SealContext;

use crate::asked::{self, Call};
use crate::error::ServiceError;
use crate::service::Service;
use crate::snapshot::Given;
use crate::{reply, words};

impl Service {
    /// Starts a transfer.
    ///
    /// # Errors
    /// Where the snapshot cannot be had, or the machine refuses.
    pub async fn stage(&self, call: &Call, body: request::Stage) -> Result<Staged, ServiceError> {
        self.permit(&call.principal, CommandKind::Stage).await?;
        if body.abandon_source {
            self.permit(&call.principal, CommandKind::AbandonSource).await?;
            if body.snapshot.is_some() || body.input.is_some() {
                let why =
                    "whoever gives up a source goes on from its last snapshot and gives none".to_owned();
                return Err(ServiceError::InvalidArgument { field: "abandon_source", why });
            }
        }
        words::check_labels(&body.labels)?;
        words::check("source_host", body.source_host.as_deref().unwrap_or_default())?;
        let request = asked::request(body.request_id.as_ref(), "transfers", &body);
        let session = match body.session_id {
            Some(session) => self.inner.ledger.session(call.principal.project, session).await?,
            None => None,
        };
        let expected = body.expected_epoch.map(Epoch);
        let id = body.session_id.unwrap_or_else(|| SessionId::from(uuid::Uuid::now_v7()));
        let context = context(id, expected, session.as_ref());
        let labels = for_people(body.source_host);
        let given = Given::of(body.snapshot, body.input)?;
        if given.is_none() && body.session_id.is_none() {
            let why = "give a snapshot, an input, or the session to go on with".to_owned();
            return Err(ServiceError::InvalidArgument { field: "snapshot", why });
        }
        let snapshot = match given {
            Some(given) => Some(self.keep(call.principal.project, given, context, labels).await?),
            None => None,
        };
        let stage = Command::Stage(Stage {
            transfer: TransferId::from(uuid::Uuid::now_v7()),
            session: id,
            project: call.principal.project,
            principal: call.principal.name.clone(),
            expected_epoch: expected,
            snapshot,
            is_final: body.is_final,
            abandon_source: body.abandon_source,
            labels: body.labels,
        });
        let applied = self.give(call, Some(request.clone()), stage).await?;
        self.staged(call, reply::staged(&applied.reply)?, request).await
    }

    /// Replaces a pending transfer's snapshot, or asks its live holder for the final one.
    ///
    /// # Errors
    /// Where the snapshot cannot be had, or the machine refuses.
    pub async fn refresh(
        &self,
        call: &Call,
        transfer: TransferId,
        body: request::Refresh,
    ) -> Result<Staged, ServiceError> {
        self.permit(&call.principal, CommandKind::Refresh).await?;
        let request = asked::request(body.request_id.as_ref(), &transfer.to_string(), &body);
        let found = self.found(call.principal.project, transfer).await?;
        let given = Given::of(body.snapshot, body.input)?;
        if given.is_none() && !body.is_final {
            let why =
                "give a snapshot or an input; only `final` alone asks the live holder for it".to_owned();
            return Err(ServiceError::InvalidArgument { field: "snapshot", why });
        }
        let expected = body.expected_epoch.map(Epoch);
        let context = context(found.session.id, expected, Some(&found.session));
        let snapshot = match given {
            Some(given) => Some(self.keep(call.principal.project, given, context, Labels::new()).await?),
            None => None,
        };
        let by = match (call.principal.node(), body.incarnation) {
            (Some(node), Some(incarnation)) => RefreshBy::Incarnation(node, incarnation),
            (None, None) => RefreshBy::Principal(call.principal.name.clone()),
            (Some(_), None) | (None, Some(_)) => {
                let why =
                    "a node names the incarnation that holds the session, and nobody else does".to_owned();
                return Err(ServiceError::InvalidArgument { field: "incarnation", why });
            }
        };
        let command = Refresh { transfer, by, expected_epoch: expected, snapshot, is_final: body.is_final };
        let applied = self.give(call, Some(request.clone()), Command::Refresh(command)).await?;
        self.staged(call, reply::staged(&applied.reply)?, request).await
    }

    async fn staged(
        &self,
        call: &Call,
        transfer: TransferId,
        request: Request,
    ) -> Result<Staged, ServiceError> {
        let found = self.found(call.principal.project, transfer).await?;
        let (session, transfer) = (found.session, found.transfer);
        Ok(Staged {
            transfer_id: transfer.id,
            session_id: session.id,
            epoch: session.epoch.0,
            status: transfer.status,
            snapshot: transfer.snapshot,
            is_final: transfer.is_final(session.epoch),
            expires_at: transfer.expires_at,
            request_id: request.id,
        })
    }
}

fn context(session: SessionId, epoch: Option<Epoch>, known: Option<&Session>) -> SealContext {
    let parent: Option<Digest> =
        known.and_then(|session| session.last_snapshot).map(|accepted| accepted.digest);
    SealContext { session_id: Some(session), epoch: epoch.map(|epoch| epoch.0), parent }
}

fn for_people(source_host: Option<String>) -> Labels {
    source_host.map(|host| ("source_host".to_owned(), host)).into_iter().collect()
}
