//! The client itself: one control plane, who speaks, and how patiently.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use handoff_protocol::listing::Health;
use handoff_protocol::{NodeId, header};
use http::{HeaderName, Request, header as names};
use http_body_util::Full;
use serde::de::DeserializeOwned;

use crate::ClientError;
use crate::call::Call;
use crate::retry::{LONGEST, LONGEST_NEARBY, Pauses};
use crate::transport::{Answer, Transport};

/// One control plane, as somebody. Cheap to clone; the `with`-like methods return another client.
#[derive(Debug, Clone)]
pub struct Client {
    transport: Transport,
    role: Option<&'static str>,
    node: Option<NodeId>,
    version: Option<u64>,
    deadline: Option<Duration>,
    patience: Option<Duration>,
    absence: Absence,
}

/// What is done about a control plane that is not there, before it is asked again.
#[derive(Clone, Default)]
struct Absence(Option<Arc<dyn Fn() + Send + Sync>>);

impl Absence {
    fn found(&self, error: &ClientError) {
        if let (Some(act), ClientError::Unreachable { .. }) = (&self.0, error) {
            act();
        }
    }
}

impl std::fmt::Debug for Absence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Absence").field(&self.0.is_some()).finish()
    }
}

impl Client {
    /// A control plane on this machine. The kernel tells it which user asks; nothing else is sent to prove it.
    pub fn unix(socket: impl Into<PathBuf>) -> Self {
        Self {
            transport: Transport::Unix(socket.into()),
            role: None,
            node: None,
            version: None,
            deadline: None,
            patience: None,
            absence: Absence::default(),
        }
    }

    /// Where it listens, for people.
    pub fn address(&self) -> String {
        self.transport.at()
    }

    /// Speaks in one of the roles that it has anyway (`source`, `caller`, `orchestrator`, `viewer`, …), and in
    /// no other.
    #[must_use]
    pub fn in_role(mut self, role: &'static str) -> Self {
        self.role = Some(role);
        self.node = None;
        self
    }

    /// Speaks as this node.
    #[must_use]
    pub fn as_node(mut self, node: NodeId) -> Self {
        self.role = Some("node");
        self.node = Some(node);
        self
    }

    /// Changes a transfer only while its version is this one (If-Match).
    #[must_use]
    pub fn if_version(mut self, version: u64) -> Self {
        self.version = Some(version);
        self
    }

    /// Gives every call so long, instead of what fits its kind.
    #[must_use]
    pub fn with_deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// Asks again, with growing pauses, while the control plane is away or busy, for so long in all. Only calls
    /// that may be sent again are, which is all but `issue_token`, and calls that were never sent.
    #[must_use]
    pub fn retrying(mut self, within: Duration) -> Self {
        self.patience = Some(within);
        self
    }

    /// Does this whenever the control plane is found away, before it is asked again: one that ends by itself may
    /// have to be started by whoever needs it.
    #[must_use]
    pub fn when_away(mut self, act: impl Fn() + Send + Sync + 'static) -> Self {
        self.absence = Absence(Some(Arc::new(act)));
        self
    }

    /// Whether it is alive.
    pub async fn health(&self) -> Result<Health, ClientError> {
        self.document(Call::get("/healthz")).await
    }

    /// Whether it can work: its store answers.
    pub async fn ready(&self) -> Result<Health, ClientError> {
        self.document(Call::get("/readyz")).await
    }

    pub(crate) async fn document<T: DeserializeOwned>(&self, call: Call) -> Result<T, ClientError> {
        self.patiently(call, |answer, at| answer.document(at)).await
    }

    /// Sends a call, again where that is allowed and may help, and reads its answer.
    pub(crate) async fn patiently<T>(
        &self,
        call: Call,
        read: impl Fn(&Answer, &str) -> Result<T, ClientError>,
    ) -> Result<T, ClientError> {
        let mut pauses = Pauses::within(self.patience.unwrap_or_default());
        loop {
            let started = Instant::now();
            let failed = match self.send(&call).await.and_then(|answer| read(&answer, &self.address())) {
                Err(error) if error.is_transient() && (call.repeatable || never_left(&error)) => error,
                done => return done,
            };
            pauses.spend(started.elapsed());
            let chance = uuid::Uuid::new_v4().as_u64_pair().1;
            let longest = if never_left(&failed) { LONGEST_NEARBY } else { LONGEST };
            let Some(pause) = pauses.next(longest, chance) else { return Err(failed) };
            tracing::debug!(path = call.path, error = %failed, "asking again");
            self.absence.found(&failed);
            tokio::time::sleep(pause).await;
        }
    }

    async fn send(&self, call: &Call) -> Result<Answer, ClientError> {
        let request = self.request(call)?;
        let deadline = self.deadline.unwrap_or(call.deadline);
        match tokio::time::timeout(deadline, self.transport.send(request, call.answer_bytes)).await {
            Ok(answer) => answer,
            Err(_) => Err(ClientError::TimedOut { at: self.address(), after: deadline }),
        }
    }

    fn request(&self, call: &Call) -> Result<Request<Full<bytes::Bytes>>, ClientError> {
        let mut request =
            Request::builder().method(&call.method).uri(&call.path).header(names::HOST, "handoff");
        if call.body.is_some() {
            request = request.header(names::CONTENT_TYPE, call.media_type);
        }
        let role = self.role.map(str::to_owned);
        let node = self.node.map(|node| node.to_string());
        let version = self.version.map(|version| format!("\"{version}\""));
        let own = [
            (HeaderName::from_static(header::ROLE), role),
            (HeaderName::from_static(header::NODE), node),
            (names::IF_MATCH, version),
        ];
        let own = own.into_iter().filter_map(|(name, value)| value.map(|value| (name, value)));
        for (name, value) in own.chain(call.headers.iter().cloned()) {
            request = request.header(name, value);
        }
        request
            .body(Full::new(call.body.clone().unwrap_or_default()))
            .map_err(|error| ClientError::Unsendable(error.to_string()))
    }
}

/// What never left may leave again, whatever it is.
fn never_left(error: &ClientError) -> bool {
    matches!(error, ClientError::Unreachable { sent: false, .. })
}
