//! The commands on a session.

use handoff_protocol::SessionId;
use handoff_protocol::request::{Reasoned, Return, Returned, SessionView};

use crate::call::{Call, Identified};
use crate::{Client, ClientError};

fn path(session: SessionId, verb: &str) -> String {
    format!("/v1/sessions/{session}/{verb}")
}

impl Client {
    /// A frozen source takes its session back. The same nonce gets the same answer.
    pub async fn return_source(&self, session: SessionId, body: Return) -> Result<Returned, ClientError> {
        self.document(Call::post(path(session, "return"), &body)?).await
    }

    /// Gives up a source that cannot be stopped.
    pub async fn abandon_source(
        &self,
        session: SessionId,
        body: Reasoned,
    ) -> Result<SessionView, ClientError> {
        self.document(Call::post(path(session, "abandon-source"), &body.identified())?).await
    }

    /// Has a resting session run again.
    pub async fn wake(&self, session: SessionId, body: Reasoned) -> Result<SessionView, ClientError> {
        self.document(Call::post(path(session, "wake"), &body.identified())?).await
    }
}
