//! The two ways to an endpoint: HTTP or HTTPS over TCP, and HTTP/1.1 over a Unix socket.

use std::error::Error;
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, header};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tokio_util::task::AbortOnDropHandle;

use super::Reach;
use crate::error::AgentError;

/// How long a connection may take to be made.
const CONNECT: Duration = Duration::from_secs(15);

/// A way to an endpoint.
#[derive(Debug)]
pub(super) enum Transport {
    Tcp { client: reqwest::Client, url: reqwest::Url },
    Unix { path: PathBuf, target: String },
}

/// The beginning of a reply.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) status: u16,
    pub(super) retry_after_ms: Option<u64>,
    /// Whether the body is a stream of events.
    pub(super) streams: bool,
    pub(super) body: Body,
}

/// The rest of a reply.
#[derive(Debug)]
pub(super) enum Body {
    Tcp(reqwest::Response),
    Unix { incoming: Incoming, _connection: AbortOnDropHandle<()> },
}

impl Transport {
    pub(super) fn new(reach: &Reach) -> Result<Self, AgentError> {
        match reach {
            Reach::Url(base) => {
                let url = format!("{}/chat/completions", base.trim_end_matches('/'));
                let url = reqwest::Url::parse(&url)
                    .map_err(|error| AgentError::Options(format!("the model's URL: {error}")))?;
                // Whoever comes second finds it installed, which is as good.
                let _ = rustls::crypto::ring::default_provider().install_default();
                // A redirect would carry the conversation to an address that nobody configured.
                let builder = reqwest::Client::builder().connect_timeout(CONNECT);
                let client = builder.redirect(reqwest::redirect::Policy::none()).build();
                let client = client.map_err(|error| AgentError::Options(format!("TLS: {error}")))?;
                Ok(Self::Tcp { client, url })
            }
            Reach::Socket { path, prefix } => {
                let target = format!("{}/chat/completions", prefix.trim_end_matches('/'));
                if !target.starts_with('/') {
                    let why = format!("the path '{prefix}' must begin with a slash");
                    return Err(AgentError::Options(why));
                }
                Ok(Self::Unix { path: path.clone(), target })
            }
        }
    }

    /// Sends a request; returns when the reply begins. An error says why there is no reply.
    pub(super) async fn post(&self, headers: HeaderMap, body: Bytes) -> Result<Reply, String> {
        match self {
            Self::Tcp { client, url } => {
                let sent = client.post(url.clone()).headers(headers).body(body).send().await;
                let response = sent.map_err(|error| chain(&error))?;
                let (status, headers) = (response.status().as_u16(), response.headers().clone());
                Ok(Reply::new(status, &headers, Body::Tcp(response)))
            }
            Self::Unix { path, target } => unix(path, target, headers, body).await,
        }
    }
}

async fn unix(path: &PathBuf, target: &str, headers: HeaderMap, body: Bytes) -> Result<Reply, String> {
    let stream = UnixStream::connect(path).await.map_err(|error| format!("{}: {error}", path.display()))?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|error| chain(&error))?;
    let driven = tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "a connection to the gateway broke off");
        }
    });
    let connection = AbortOnDropHandle::new(driven);
    let mut request = Request::post(target).body(Full::new(body)).map_err(|error| error.to_string())?;
    *request.headers_mut() = headers;
    request.headers_mut().insert(header::HOST, header::HeaderValue::from_static("gateway"));
    let response = sender.send_request(request).await.map_err(|error| chain(&error))?;
    let (parts, incoming) = response.into_parts();
    Ok(Reply::new(parts.status.as_u16(), &parts.headers, Body::Unix { incoming, _connection: connection }))
}

impl Reply {
    fn new(status: u16, headers: &HeaderMap, body: Body) -> Self {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
        let number = |name| text(name).and_then(|text| text.parse::<u64>().ok());
        let seconds = number("retry-after").map(|seconds| seconds.saturating_mul(1_000));
        let streams = text("content-type").is_some_and(|kind| kind.starts_with("text/event-stream"));
        Self { status, retry_after_ms: number("retry-after-ms").or(seconds), streams, body }
    }
}

impl Body {
    /// The next bytes; `None` at the end.
    pub(super) async fn chunk(&mut self) -> Result<Option<Bytes>, String> {
        match self {
            Self::Tcp(response) => response.chunk().await.map_err(|error| chain(&error)),
            Self::Unix { incoming, .. } => loop {
                match incoming.frame().await {
                    None => return Ok(None),
                    Some(Err(error)) => return Err(chain(&error)),
                    Some(Ok(frame)) => {
                        if let Ok(data) = frame.into_data() {
                            return Ok(Some(data));
                        }
                    }
                }
            },
        }
    }
}

/// The error and its causes in one line.
fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text.push_str(": ");
        text.push_str(&inner.to_string());
        cause = inner.source();
    }
    text
}
