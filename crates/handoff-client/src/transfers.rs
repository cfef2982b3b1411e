//! The commands on a transfer, and tokens and approvals for them.

use handoff_protocol::TransferId;
use handoff_protocol::request::{
    Activate, ApprovalView, Decide, IssueToken, IssuedToken, Provision, Push, Raise, Reaped, Reasoned,
    Refresh, ReportUsage, Stage, Staged, Terminate, TransferView, WriteOff,
};
use handoff_protocol::{ApprovalId, id::RequestId};

use crate::call::{Call, Identified};
use crate::{Client, ClientError};

/// How long the server waits for a push or a claim unless the call says otherwise, at the most.
const DEFAULT_WAIT_MS: u64 = 60_000;

fn path(transfer: TransferId, verb: &str) -> String {
    format!("/v1/transfers/{transfer}/{verb}")
}

impl Client {
    /// Starts a transfer.
    pub async fn stage(&self, body: Stage) -> Result<Staged, ClientError> {
        self.document(Call::post("/v1/transfers", &body.identified())?).await
    }

    /// Replaces a pending transfer's snapshot, or asks its live holder for the final one.
    pub async fn refresh(&self, transfer: TransferId, body: Refresh) -> Result<Staged, ClientError> {
        self.document(Call::post(path(transfer, "snapshot"), &body.identified())?).await
    }

    /// Sizes and budgets a destination.
    pub async fn provision(
        &self,
        transfer: TransferId,
        body: Provision,
    ) -> Result<TransferView, ClientError> {
        self.document(Call::post(path(transfer, "provision"), &body.identified())?).await
    }

    /// Has the destination fetch and verify the snapshot. Where it has not done so within the wait, the answer
    /// still says `provisioned`; it goes on, and the same call waits again.
    pub async fn push(&self, transfer: TransferId, body: Push) -> Result<TransferView, ClientError> {
        let wait_ms = body.wait_ms.unwrap_or(DEFAULT_WAIT_MS);
        self.document(Call::post(path(transfer, "push"), &body.identified())?.waiting(wait_ms)).await
    }

    /// Lets the destination claim the session, and waits for it.
    pub async fn activate(&self, transfer: TransferId, body: Activate) -> Result<TransferView, ClientError> {
        let wait_ms = body.wait_ms.unwrap_or(DEFAULT_WAIT_MS);
        self.document(Call::post(path(transfer, "activate"), &body.identified())?.waiting(wait_ms)).await
    }

    /// Records money that was spent outside the gateway.
    pub async fn report_usage(
        &self,
        transfer: TransferId,
        body: ReportUsage,
    ) -> Result<TransferView, ClientError> {
        self.document(Call::post(path(transfer, "report-usage"), &body.identified())?).await
    }

    /// Names the new absolute budget.
    pub async fn raise(&self, transfer: TransferId, body: Raise) -> Result<TransferView, ClientError> {
        self.document(Call::post(path(transfer, "raise"), &body.identified())?).await
    }

    /// Ends a transfer.
    pub async fn terminate(
        &self,
        transfer: TransferId,
        body: Terminate,
    ) -> Result<TransferView, ClientError> {
        self.document(Call::post(path(transfer, "terminate"), &body.identified())?).await
    }

    /// Closes an epoch whose node will never report again.
    pub async fn write_off(&self, transfer: TransferId, body: WriteOff) -> Result<TransferView, ClientError> {
        self.document(Call::post(path(transfer, "write-off"), &body.identified())?).await
    }

    /// Mints a transfer token. Never sent twice by itself: each call mints another.
    pub async fn issue_token(&self, body: IssueToken) -> Result<IssuedToken, ClientError> {
        self.document(Call::post("/v1/tokens", &body)?.once()).await
    }

    /// Approves or declines what waits for a person.
    pub async fn decide(&self, approval: ApprovalId, approve: bool) -> Result<ApprovalView, ClientError> {
        self.document(Call::post(format!("/v1/approvals/{approval}"), &Decide { approve })?).await
    }

    /// Has the reaper make one round now.
    pub async fn reap(&self, reason: Option<String>) -> Result<Reaped, ClientError> {
        let body = Reasoned { request_id: None::<RequestId>, reason };
        self.document(Call::post("/v1/reap", &body.identified())?).await
    }
}
