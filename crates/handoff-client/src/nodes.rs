//! The node wire. All of these are for a client that speaks [`Client::as_node`].

use handoff_protocol::listing::DesiredQuery;
use handoff_protocol::node::{
    Accepted, Checkpoint, Claim, Claimed, Decline, Desired, Observed, Receipt, Register, Registered, Renew,
    Renewed, Rest, Usage, UsageAnswer,
};
use handoff_protocol::{NodeId, TransferId};

use crate::call::Call;
use crate::{Client, ClientError};

fn path(transfer: TransferId, verb: &str) -> String {
    format!("/v1/transfers/{transfer}/{verb}")
}

impl Client {
    /// Says who the node is and what it offers.
    pub async fn register(&self, body: &Register) -> Result<Registered, ClientError> {
        self.document(Call::post("/v1/nodes", body)?).await
    }

    /// The full list of what the node should hold, once its revision is higher than `after`; without `after`
    /// at once. Waits at most `wait_s` seconds, then answers all the same.
    pub async fn desired(
        &self,
        node: NodeId,
        after: Option<u64>,
        wait_s: u64,
    ) -> Result<Desired, ClientError> {
        let query = DesiredQuery { after, wait_s: Some(wait_s) };
        let call = Call::query(format!("/v1/nodes/{node}/desired"), &query)?;
        self.document(call.waiting(wait_s.saturating_mul(1000))).await
    }

    /// The node holds and verified a snapshot.
    pub async fn receipt(&self, transfer: TransferId, body: &Receipt) -> Result<Accepted, ClientError> {
        self.document(Call::post(path(transfer, "receipt"), body)?).await
    }

    /// A destination that is ready takes the session.
    pub async fn claim(&self, transfer: TransferId, body: &Claim) -> Result<Claimed, ClientError> {
        self.document(Call::post(path(transfer, "claim"), body)?).await
    }

    /// A destination cannot use an authorisation.
    pub async fn decline(&self, transfer: TransferId, body: &Decline) -> Result<Accepted, ClientError> {
        self.document(Call::post(path(transfer, "decline"), body)?).await
    }

    /// The holder asks to go on.
    pub async fn renew(&self, transfer: TransferId, body: &Renew) -> Result<Renewed, ClientError> {
        self.document(Call::post(path(transfer, "renew"), body)?).await
    }

    /// The holder goes to rest.
    pub async fn rest(&self, transfer: TransferId, body: &Rest) -> Result<Accepted, ClientError> {
        self.document(Call::post(path(transfer, "rest"), body)?).await
    }

    /// A cumulative report of one epoch.
    pub async fn usage(&self, transfer: TransferId, body: &Usage) -> Result<UsageAnswer, ClientError> {
        self.document(Call::post(path(transfer, "usage"), body)?).await
    }

    /// What the node finds.
    pub async fn observed(&self, transfer: TransferId, body: &Observed) -> Result<Accepted, ClientError> {
        self.document(Call::post(path(transfer, "observed"), body)?).await
    }

    /// A live destination has stored a snapshot.
    pub async fn checkpoint(&self, transfer: TransferId, body: &Checkpoint) -> Result<Accepted, ClientError> {
        self.document(Call::post(path(transfer, "checkpoint"), body)?).await
    }
}
