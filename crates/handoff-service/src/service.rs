//! The service: the two ports, the operator's settings, and what all use-cases do alike.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use handoff_core::grid::CommandKind;
use handoff_core::ledger::{Applied, Envelope, Found, Ledger, LedgerError, Request};
use handoff_core::{Actor, Command, Refusal, Role};
use handoff_protocol::port::BlobStore;
use handoff_protocol::{ProjectId, SessionId, TransferId};
use tokio::sync::RwLock;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::access::Principal;
use crate::approval::ApprovalBook;
use crate::asked::Call;
use crate::audit::Recorder;
use crate::config::ServiceConfig;
use crate::desired::Answered;
use crate::error::ServiceError;
use crate::serving::Serving;
use crate::wait::Watch;

/// The use-cases. Cheap to clone; all clones are the same service.
#[derive(Clone)]
pub struct Service {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) ledger: Arc<dyn Ledger>,
    pub(crate) blobs: Arc<dyn BlobStore>,
    pub(crate) config: ServiceConfig,
    pub(crate) approvals: Mutex<ApprovalBook>,
    pub(crate) recorder: Recorder,
    pub(crate) answered: Answered,
    pub(crate) serving: Serving,
    pub(crate) deciding: RwLock<()>,
    stopping: CancellationToken,
    tasks: TaskTracker,
}

impl Service {
    /// A service over these ports. Reads the store's time: nodes are given up only after a stretch of service
    /// that begins here, and anew after every break.
    ///
    /// # Errors
    /// Where the ledger does not answer.
    pub async fn new(
        ledger: Arc<dyn Ledger>,
        blobs: Arc<dyn BlobStore>,
        config: ServiceConfig,
        stopping: CancellationToken,
    ) -> Result<Self, ServiceError> {
        let serving = Serving::since(ledger.now().await?);
        let inner = Inner {
            recorder: Recorder::new(Arc::clone(&ledger)),
            ledger,
            blobs,
            config,
            approvals: Mutex::default(),
            answered: Answered::default(),
            serving,
            deciding: RwLock::default(),
            stopping,
            tasks: TaskTracker::new(),
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// The operator's settings.
    pub fn config(&self) -> &ServiceConfig {
        &self.inner.config
    }

    /// The blobs.
    pub fn blobs(&self) -> &Arc<dyn BlobStore> {
        &self.inner.blobs
    }

    /// Whether the ledger answers.
    ///
    /// # Errors
    /// Where it does not.
    pub async fn ready(&self) -> Result<(), ServiceError> {
        self.inner.ledger.now().await?;
        Ok(())
    }

    /// Runs a use-case to its end, whoever stops waiting for it: a caller that disconnects leaves nothing
    /// half-done.
    ///
    /// # Errors
    /// The use-case's own, or [`ServiceError::Internal`] if it panicked.
    pub async fn detached<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, ServiceError>> + Send + 'static,
    ) -> Result<T, ServiceError> {
        match self.inner.tasks.spawn(work).await {
            Ok(done) => done,
            Err(error) => {
                tracing::error!(%error, "a use-case failed");
                Err(ServiceError::Internal(format!("a use-case failed: {error}")))
            }
        }
    }

    /// Waits until no use-case is running. Call it after the token given to [`Service::new`] was cancelled.
    pub async fn drained(&self) {
        self.inner.tasks.close();
        self.inner.tasks.wait().await;
    }

    /// The actor for a command of this kind, or a refusal that is on record.
    pub(crate) async fn permit(
        &self,
        principal: &Principal,
        kind: CommandKind,
    ) -> Result<Actor, ServiceError> {
        match principal.acting(kind) {
            Some(actor) => Ok(actor),
            None => Err(self.denied(principal, kind.as_str()).await),
        }
    }

    /// The actor in one of these roles, or a refusal that is on record.
    pub(crate) async fn permit_roles(
        &self,
        principal: &Principal,
        roles: &[Role],
        what: &'static str,
    ) -> Result<Actor, ServiceError> {
        match principal.acting_as(roles) {
            Some(actor) => Ok(actor),
            None => Err(self.denied(principal, what).await),
        }
    }

    /// Refuses somebody, on record.
    pub async fn denied(&self, principal: &Principal, what: &'static str) -> ServiceError {
        self.inner.recorder.denied(principal, what).await;
        ServiceError::Forbidden { principal: principal.name.clone(), what }
    }

    /// Applies one command.
    pub(crate) async fn apply(&self, envelope: Envelope) -> Result<Applied, LedgerError> {
        let mut answers = self.inner.ledger.apply(vec![envelope]).await;
        let none = || Err(LedgerError::Broken { what: "the ledger answered no command".to_owned() });
        answers.pop().unwrap_or_else(none).inspect_err(|error| self.inner.serving.failed(error))
    }

    /// Applies one command that a principal gives.
    pub(crate) async fn give(
        &self,
        call: &Call,
        request: Option<Request>,
        command: Command,
    ) -> Result<Applied, ServiceError> {
        let actor = self.permit(&call.principal, command.kind()).await?;
        let envelope = Envelope {
            project: call.principal.project,
            actor,
            request,
            expected_version: call.expected_version,
            command,
        };
        Ok(self.apply(envelope).await?)
    }

    /// Applies one command of the control plane itself.
    pub(crate) async fn give_own(
        &self,
        project: ProjectId,
        command: Command,
    ) -> Result<Applied, ServiceError> {
        self.give(&Call::by(Principal::control_plane(project)), None, command).await
    }

    pub(crate) async fn found(
        &self,
        project: ProjectId,
        transfer: TransferId,
    ) -> Result<Found, ServiceError> {
        let found = self.inner.ledger.transfer(project, transfer).await?;
        found.ok_or_else(|| Refusal::NoTransfer { transfer }.into())
    }

    pub(crate) async fn found_session(
        &self,
        project: ProjectId,
        session: SessionId,
    ) -> Result<handoff_core::Session, ServiceError> {
        let found = self.inner.ledger.session(project, session).await?;
        found.ok_or_else(|| Refusal::NoSession { session }.into())
    }

    /// Watches the ledger for so long at most.
    pub(crate) fn watch(&self, wait_ms: u64) -> Watch {
        let wait = Duration::from_millis(wait_ms.min(self.inner.config.longest_wait_ms));
        Watch::new(Arc::clone(&self.inner.ledger), self.inner.stopping.clone(), wait)
    }
}
