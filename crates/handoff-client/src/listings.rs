//! Asking how things are.

use handoff_protocol::listing::{
    ApprovalPage, EventPage, EventQuery, NodePage, SessionPage, SessionQuery, TierPage, TransferPage,
    TransferQuery, ViewQuery,
};
use handoff_protocol::request::{SessionView, TransferView};
use handoff_protocol::{SessionId, TransferId};

use crate::call::Call;
use crate::{Client, ClientError};

impl Client {
    /// One transfer with a page of its events.
    pub async fn transfer(
        &self,
        transfer: TransferId,
        query: ViewQuery,
    ) -> Result<TransferView, ClientError> {
        let wait_ms = query.wait_s.unwrap_or(0).saturating_mul(1000);
        let call = Call::query(format!("/v1/transfers/{transfer}"), &query)?;
        self.document(call.waiting(wait_ms)).await
    }

    /// A page of transfers.
    pub async fn transfers(&self, query: &TransferQuery) -> Result<TransferPage, ClientError> {
        self.document(Call::query("/v1/transfers", query)?).await
    }

    /// A page of one transfer's events.
    pub async fn events(&self, transfer: TransferId, query: EventQuery) -> Result<EventPage, ClientError> {
        let wait_ms = query.wait_s.unwrap_or(0).saturating_mul(1000);
        let call = Call::query(format!("/v1/transfers/{transfer}/events"), &query)?;
        self.document(call.waiting(wait_ms)).await
    }

    /// One session.
    pub async fn session(&self, session: SessionId) -> Result<SessionView, ClientError> {
        self.document(Call::get(format!("/v1/sessions/{session}"))).await
    }

    /// A page of sessions.
    pub async fn sessions(&self, query: SessionQuery) -> Result<SessionPage, ClientError> {
        self.document(Call::query("/v1/sessions", &query)?).await
    }

    /// All nodes.
    pub async fn nodes(&self) -> Result<NodePage, ClientError> {
        self.document(Call::get("/v1/nodes")).await
    }

    /// The sizes on offer, and what each costs.
    pub async fn tiers(&self) -> Result<TierPage, ClientError> {
        self.document(Call::get("/v1/tiers")).await
    }

    /// What waits for a person, and what was approved and not used yet.
    pub async fn approvals(&self) -> Result<ApprovalPage, ClientError> {
        self.document(Call::get("/v1/approvals")).await
    }
}
