//! The door: HTTP/1.1 on the Unix socket that a sandbox sees. It knows the agent by its token, takes only the
//! paths that are metered, and hands each call to a task of its own.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use bytes::Bytes;
use handoff_protocol::Digest;
use http::{HeaderMap, Method, Request, Response, header};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use subtle::ConstantTimeEq;
use tokio::net::{UnixListener, UnixStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::call::{Call, Caller};
use crate::descriptors::Share;
use crate::policy::Policy;
use crate::refusal::DoorRefusal;
use crate::reply::{self, DoorBody};
use crate::room::Room;

/// A connection that has sent half a request head for this long is closed.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);

/// Who may come in, and where they may go.
#[derive(Debug, Clone)]
pub(crate) struct Access {
    /// SHA-256 of the agent's token.
    pub(crate) agent_token_digest: Digest,
    /// Upstreams that may be called; empty for all.
    pub(crate) upstreams: Vec<String>,
}

/// One destination's door.
#[derive(Debug)]
pub(crate) struct Door {
    pub(crate) access: RwLock<Access>,
    pub(crate) caller: Arc<Caller>,
    /// Connections at a time.
    pub(crate) descriptors: Share,
    /// Calls outlive the connection and the door; the gateway waits for them.
    pub(crate) tasks: TaskTracker,
}

impl Door {
    /// Serves connections until it is told to close.
    pub(crate) async fn serve(self: Arc<Self>, listener: UnixListener, closing: CancellationToken) {
        loop {
            let taken = tokio::select! {
                () = closing.cancelled() => return,
                taken = self.descriptors.take() => taken,
            };
            let accepted = tokio::select! {
                () = closing.cancelled() => return,
                accepted = listener.accept() => accepted,
            };
            let stream = match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(%error, "a connection at the door could not be accepted");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            };
            let (door, closing) = (Arc::clone(&self), closing.clone());
            tokio::spawn(async move {
                let _taken = taken;
                door.connection(stream, closing).await;
            });
        }
    }

    async fn connection(self: Arc<Self>, stream: UnixStream, closing: CancellationToken) {
        let service = service_fn(move |request| {
            let door = Arc::clone(&self);
            async move { door.answer(request).await }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_TIMEOUT)
            .serve_connection(TokioIo::new(stream), service);
        tokio::pin!(connection);
        let outcome = tokio::select! {
            outcome = connection.as_mut() => outcome,
            () = closing.cancelled() => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = outcome {
            tracing::debug!(%error, "a connection at the door ended");
        }
    }

    async fn answer(&self, request: Request<Incoming>) -> std::io::Result<Response<DoorBody>> {
        let rules = self.caller.in_force.rules();
        let limits = rules.policy.limits();
        let room = self.caller.rooms.under(limits);
        let (upstream, permit) = match self.let_in(&request, &rules.policy, &room) {
            Ok(let_in) => let_in,
            Err(refusal) => return Ok(refuse(&refusal)),
        };
        let (parts, body) = request.into_parts();
        let most = limits.body_bytes;
        let bytes = u32::try_from(expected(&parts.headers, most)).expect("the policy keeps it below 4 GiB");
        let taken = Arc::clone(&room.bodies).acquire_many_owned(bytes).await.expect("never closed");
        let body = match read(body, most).await {
            Ok(body) => body,
            Err(refusal) => return Ok(refuse(&refusal)),
        };
        let (reply, coming) = reply::channel();
        let caller = Arc::clone(&self.caller);
        let call = Call { upstream, rules: Arc::clone(&rules), room, headers: parts.headers, body };
        self.tasks.spawn(async move {
            caller.run(call, reply).await;
            drop((permit, taken));
        });
        coming.response().await
    }

    fn let_in(
        &self,
        request: &Request<Incoming>,
        policy: &Policy,
        room: &Room,
    ) -> Result<(String, tokio::sync::OwnedSemaphorePermit), DoorRefusal> {
        let access = self.access.read().unwrap_or_else(PoisonError::into_inner);
        if !is_agent(request.headers(), &access.agent_token_digest) {
            return Err(DoorRefusal::Unauthenticated);
        }
        let (name, rest) = split(request.uri().path()).ok_or(DoorRefusal::NoUpstream)?;
        let allowed = access.upstreams.is_empty() || access.upstreams.iter().any(|other| other == name);
        let upstream = policy.upstream(name).filter(|_| allowed).ok_or(DoorRefusal::NoUpstream)?;
        let metered = request.method() == Method::POST && rest == upstream.wire.path();
        if !metered || request.uri().query().is_some() {
            return Err(DoorRefusal::NotMetered(upstream.wire.path()));
        }
        let encoding = request.headers().get(header::CONTENT_ENCODING);
        if encoding.is_some_and(|encoding| encoding != "identity") {
            return Err(DoorRefusal::Encoded);
        }
        let limits = policy.limits();
        if stated_bytes(request.headers()).is_some_and(|bytes| bytes > limits.body_bytes as u64) {
            return Err(DoorRefusal::TooLarge(limits.body_bytes));
        }
        let too_many = |_| DoorRefusal::TooManyCalls(limits.calls);
        let permit = Arc::clone(&room.calls).try_acquire_owned().map_err(too_many)?;
        Ok((name.to_owned(), permit))
    }
}

/// How many bytes a request may turn out to have.
fn expected(headers: &HeaderMap, most: usize) -> usize {
    stated_bytes(headers).and_then(|bytes| usize::try_from(bytes).ok()).map_or(most, |bytes| bytes.min(most))
}

async fn read(body: Incoming, most: usize) -> Result<Bytes, DoorRefusal> {
    match Limited::new(body, most).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(DoorRefusal::TooLarge(most)),
        Err(_) => Err(DoorRefusal::BrokenOff),
    }
}

fn stated_bytes(headers: &HeaderMap) -> Option<u64> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

fn refuse(refusal: &DoorRefusal) -> Response<DoorBody> {
    refusal.response().map(DoorBody::whole)
}

/// `/openai/v1/x` is upstream `openai`, path `/v1/x`.
fn split(path: &str) -> Option<(&str, &str)> {
    let path = path.strip_prefix('/')?;
    let slash = path.find('/')?;
    Some((&path[..slash], &path[slash..]))
}

/// Compares digests in constant time: neither the token nor how much of it was right can be measured.
fn is_agent(headers: &HeaderMap, expected: &Digest) -> bool {
    let mut stated = headers.get_all(header::AUTHORIZATION).iter();
    let (Some(value), None) = (stated.next(), stated.next()) else { return false };
    let Some((scheme, token)) = value.as_bytes().split_at_checked("bearer ".len()) else { return false };
    let token = token.trim_ascii();
    scheme.eq_ignore_ascii_case(b"bearer ")
        && bool::from(Digest::of(token).as_bytes().ct_eq(expected.as_bytes()))
}
