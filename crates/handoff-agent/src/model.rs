//! Calls a model: one request over TCP or a Unix socket, its streamed answer, and what its failure means.

use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderValue;
use secrecy::{ExposeSecret, SecretString};

use crate::answer::{Answer, BadChunk, Tokens, error_text, of_document};
use crate::error::AgentError;
use crate::message::{ToolCall, calls};
use crate::retry::Failure;
use crate::sse::Events;

mod transport;

use transport::{Reply, Transport};

/// The most bytes of one answer.
const ANSWER_BYTES: usize = 64 << 20;
/// The most bytes of an error's body that are read.
const ERROR_BYTES: usize = 64 << 10;

/// The header that says the session's epoch, for upstreams that log it.
const EPOCH_HEADER: &str = "x-handoff-epoch";

/// A model that speaks Chat Completions.
#[derive(Debug, Clone)]
pub struct Endpoint {
    /// How it is reached.
    pub reach: Reach,
    /// The model's name; left out, it is the one in the session's document.
    pub model: Option<String>,
    /// What it is called with.
    pub bearer: Bearer,
    /// The most tokens of one answer; left out, the session's document says, or the provider.
    pub max_tokens: Option<u64>,
    /// Whether calls carry the epoch. In a sandbox the gateway says it.
    pub say_epoch: bool,
    /// Milliseconds until an answer must have begun.
    pub begin_ms: u64,
    /// Milliseconds that a begun answer may be silent.
    pub silence_ms: u64,
}

impl Endpoint {
    /// An endpoint without a credential, with the usual limits of time.
    pub fn new(reach: Reach) -> Self {
        Self {
            reach,
            model: None,
            bearer: Bearer::None,
            max_tokens: None,
            say_epoch: false,
            begin_ms: 300_000,
            silence_ms: 120_000,
        }
    }
}

/// How an endpoint is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reach {
    /// Over TCP: the base URL, such as `https://api.example.com/v1`.
    Url(String),
    /// Over a Unix socket, as in a sandbox: the socket and the path before `/chat/completions`, such as
    /// `/upstream/v1`.
    Socket {
        /// The socket.
        path: PathBuf,
        /// The path's beginning.
        prefix: String,
    },
}

/// What an endpoint is called with. It never prints.
#[derive(Debug, Clone)]
pub enum Bearer {
    /// Nothing.
    None,
    /// The value of an environment variable, read at the start.
    Env(String),
    /// A file's content without white space around it, read for every call, so that it may be rotated.
    File(PathBuf),
    /// This one, such as a sandbox's token for its gateway.
    Token(SecretString),
}

/// An answer that arrived whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Answered {
    pub(crate) message: String,
    pub(crate) calls: Vec<ToolCall>,
    pub(crate) tokens: Option<Tokens>,
}

/// A model that can be called.
#[derive(Debug)]
pub(crate) struct Client {
    transport: Transport,
    bearer: Bearer,
    say_epoch: bool,
    begin: Duration,
    silence: Duration,
}

impl Client {
    /// # Errors
    /// The URL or the credential's source cannot be used.
    pub(crate) fn new(endpoint: &Endpoint) -> Result<Self, AgentError> {
        let bearer = match &endpoint.bearer {
            Bearer::Env(name) => {
                let value = std::env::var(name)
                    .map_err(|_| AgentError::Options(format!("the environment has no {name}")))?;
                Bearer::Token(value.into())
            }
            other => other.clone(),
        };
        Ok(Self {
            transport: Transport::new(&endpoint.reach)?,
            bearer,
            say_epoch: endpoint.say_epoch,
            begin: Duration::from_millis(endpoint.begin_ms),
            silence: Duration::from_millis(endpoint.silence_ms),
        })
    }

    /// Sends a request and reads its answer to the end. Never sends it twice.
    pub(crate) async fn call(&self, body: Bytes, epoch: Option<u64>) -> Result<Answered, Failure> {
        let mut headers = http::HeaderMap::new();
        headers.insert(http::header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(http::header::ACCEPT, HeaderValue::from_static("text/event-stream, application/json"));
        if let Some(value) = self.authorization().await? {
            headers.insert(http::header::AUTHORIZATION, value);
        }
        if let Some(epoch) = epoch.filter(|_| self.say_epoch) {
            headers.insert(EPOCH_HEADER, HeaderValue::from(epoch));
        }
        let sent = tokio::time::timeout(self.begin, self.transport.post(headers, body)).await;
        let reply = match sent {
            Ok(reply) => reply.map_err(transient)?,
            Err(_) => return Err(transient("the answer did not begin in time".to_owned())),
        };
        match (reply.status, reply.streams) {
            (200..300, true) => self.stream(reply).await,
            (200..300, false) => self.document(reply).await,
            _ => Err(self.refused(reply).await),
        }
    }

    async fn authorization(&self) -> Result<Option<HeaderValue>, Failure> {
        let token = match &self.bearer {
            Bearer::None => return Ok(None),
            Bearer::Token(token) => token.clone(),
            Bearer::File(path) => {
                let read = tokio::fs::read_to_string(path).await;
                let text = read
                    .map_err(|error| permanent(format!("the credential in {}: {error}", path.display())))?;
                SecretString::from(text.trim().to_owned())
            }
            Bearer::Env(name) => return Err(permanent(format!("the credential in {name} was not read"))),
        };
        let value = HeaderValue::try_from(format!("Bearer {}", token.expose_secret()));
        let mut value = value.map_err(|_| permanent("the credential cannot stand in a header".to_owned()))?;
        value.set_sensitive(true);
        Ok(Some(value))
    }

    async fn stream(&self, mut reply: Reply) -> Result<Answered, Failure> {
        let (mut events, mut answer) = (Events::default(), Answer::default());
        let mut arrived = 0;
        while let Some(bytes) = self.next(&mut reply).await? {
            arrived = bounded(arrived + bytes.len())?;
            let complete = events.push(&bytes).map_err(|error| permanent(error.to_string()))?;
            complete.iter().try_for_each(|chunk| answer.push(chunk)).map_err(bad)?;
        }
        events.end().map_or(Ok(()), |chunk| answer.push(&chunk)).map_err(bad)?;
        if !answer.finished() {
            return Err(transient("the answer broke off".to_owned()));
        }
        Ok(answered(answer.message(), answer.tokens()))
    }

    /// Some endpoints do not stream although they were asked to.
    async fn document(&self, mut reply: Reply) -> Result<Answered, Failure> {
        let mut document = Vec::new();
        while let Some(bytes) = self.next(&mut reply).await? {
            bounded(document.len() + bytes.len())?;
            document.extend_from_slice(&bytes);
        }
        let (message, tokens) = of_document(&document).map_err(bad)?;
        Ok(answered(message, tokens))
    }

    async fn refused(&self, mut reply: Reply) -> Failure {
        let mut body = Vec::new();
        while let Ok(Some(bytes)) = self.next(&mut reply).await {
            body.extend_from_slice(&bytes[..bytes.len().min(ERROR_BYTES - body.len())]);
            if body.len() == ERROR_BYTES {
                break;
            }
        }
        let said = String::from_utf8_lossy(&body);
        let why = format!("HTTP {}: {}", reply.status, error_text(&said));
        match reply.status {
            402 => Failure::OutOfBudget { why },
            // The provider's own way to say that nothing is left.
            429 if said.contains("insufficient_quota") => Failure::OutOfBudget { why },
            408 | 409 | 425 | 429 | 500.. => Failure::Transient { why, retry_after_ms: reply.retry_after_ms },
            _ => permanent(why),
        }
    }

    async fn next(&self, reply: &mut Reply) -> Result<Option<Bytes>, Failure> {
        match tokio::time::timeout(self.silence, reply.body.chunk()).await {
            Ok(chunk) => chunk.map_err(|why| transient(format!("the answer broke off: {why}"))),
            Err(_) => Err(transient("the answer was silent for too long".to_owned())),
        }
    }
}

fn answered(message: String, tokens: Option<Tokens>) -> Answered {
    let calls = calls(&message);
    Answered { message, calls, tokens }
}

fn bounded(bytes: usize) -> Result<usize, Failure> {
    if bytes <= ANSWER_BYTES { Ok(bytes) } else { Err(permanent("the answer is too large".to_owned())) }
}

fn bad(chunk: BadChunk) -> Failure {
    match chunk {
        BadChunk::Malformed => transient("the answer is not in the wire format".to_owned()),
        BadChunk::Failed(why) => transient(why),
    }
}

fn transient(why: String) -> Failure {
    Failure::Transient { why, retry_after_ms: None }
}

const fn permanent(why: String) -> Failure {
    Failure::Permanent { why }
}

/// What a request says beside the conversation.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    model: String,
    max_tokens: Option<u64>,
}

impl Request {
    pub(crate) const fn new(model: String, max_tokens: Option<u64>) -> Self {
        Self { model, max_tokens }
    }

    /// The body: the conversation's own bytes between what this loop says.
    pub(crate) fn body(&self, system: &str, messages: &str, tools: &str) -> Bytes {
        let comma = if system.is_empty() || messages.is_empty() { "" } else { "," };
        let model = crate::message::quoted(&self.model);
        let limit = self.max_tokens.map(|tokens| format!(",\"max_tokens\":{tokens}")).unwrap_or_default();
        let parts = [
            r#"{"model":"#,
            &model,
            r#","stream":true,"stream_options":{"include_usage":true}"#,
            &limit,
            r#","tools":"#,
            tools.trim(),
            r#","messages":["#,
            system,
            comma,
            messages,
            "]}",
        ];
        Bytes::from(parts.concat())
    }
}

#[cfg(test)]
mod tests;
