//! Answers one HTTP request: what it is, whether it is valid, what the script says, and how it fails.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use futures_util::stream;
use handoff_protocol::Digest;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, Limited, StreamBody};
use hyper::body::{Frame, Incoming};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::failure::Failure;
use crate::record::Record;
use crate::reply::Reply;
use crate::request::ChatRequest;
use crate::server::Shared;
use crate::stream::{Head, document, events};
use crate::validate::{Invalid, judge};

/// The most bytes of one request; a real provider has such a limit too.
const BODY_BYTES: usize = 64 << 20;

type Body = UnsyncBoxBody<Bytes, io::Error>;

/// Answers, whatever arrives.
pub(crate) async fn respond(
    shared: Arc<Shared>,
    request: Request<Incoming>,
) -> Result<Response<Body>, Infallible> {
    let mut response = match (request.method(), request.uri().path()) {
        (&Method::GET, "/v1/models") => models(&shared),
        (&Method::POST, "/v1/chat/completions") => completion(&shared, request).await,
        (method, path) => {
            let why = format!("there is no {method} {path}");
            refusal(StatusCode::NOT_FOUND, &why, None, Some("unknown_url"), None)
        }
    };
    response.headers_mut().insert(crate::SCRIPTED_HEADER, header::HeaderValue::from_static("true"));
    Ok(response)
}

fn models(shared: &Shared) -> Response<Body> {
    let model = |id: &String| json!({"id": id, "object": "model", "created": 0, "owned_by": "scripted"});
    let data: Vec<_> = shared.models.iter().map(model).collect();
    whole(StatusCode::OK, Bytes::from(json!({"object": "list", "data": data}).to_string()))
}

async fn completion(shared: &Shared, request: Request<Incoming>) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let Ok(body) = Limited::new(body, BODY_BYTES).collect().await else {
        let why = "the body is too large or broke off";
        return refusal(StatusCode::PAYLOAD_TOO_LARGE, why, None, None, None);
    };
    let body = body.to_bytes();
    let mut record = arrived(&parts, &body);
    let answer = decide(shared, &parts, &body, &mut record);
    if let Some(log) = &shared.log
        && let Err(error) = log.write(&record)
    {
        tracing::error!(%error, "the request log cannot be written");
        return refusal(StatusCode::INTERNAL_SERVER_ERROR, "the request log is broken", None, None, None);
    }
    match answer {
        Answer::Refused { status, invalid, code, retry_after_s } => {
            refusal(status, &invalid.message, invalid.param.as_deref(), code, retry_after_s)
        }
        Answer::Whole { delay, body } => {
            tokio::time::sleep(delay).await;
            whole(StatusCode::OK, body)
        }
        Answer::Stream(play) => streamed(play, shared.stop.clone()),
    }
}

enum Answer {
    Refused { status: StatusCode, invalid: Invalid, code: Option<&'static str>, retry_after_s: Option<u64> },
    Whole { delay: Duration, body: Bytes },
    Stream(Play),
}

fn arrived(parts: &http::request::Parts, body: &Bytes) -> Record {
    let authorization = parts.headers.get(header::AUTHORIZATION).map(|value| Digest::of(value.as_bytes()));
    let epoch = parts.headers.get(crate::EPOCH_HEADER);
    Record {
        at_unix_ms: now().as_millis() as u64,
        method: parts.method.to_string(),
        path: parts.uri.path().to_owned(),
        epoch: epoch.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()),
        authorization: authorization.is_some(),
        authorization_digest: authorization,
        body_digest: Digest::of(body),
        body_bytes: body.len() as u64,
        messages: 0,
        message_digests: Vec::new(),
        model: None,
        stream: false,
        step: None,
        status: StatusCode::OK.as_u16(),
        usage: None,
    }
}

fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

fn decide(shared: &Shared, parts: &http::request::Parts, body: &Bytes, record: &mut Record) -> Answer {
    let answer = judged(shared, parts, body, record);
    match answer {
        Ok(answer) => answer,
        Err((status, invalid, code)) => {
            record.status = status.as_u16();
            Answer::Refused { status, invalid, code, retry_after_s: None }
        }
    }
}

type Refused = (StatusCode, Invalid, Option<&'static str>);

fn judged(
    shared: &Shared,
    parts: &http::request::Parts,
    body: &Bytes,
    record: &mut Record,
) -> Result<Answer, Refused> {
    let refuse = |status, why: String, code| (status, Invalid { message: why, param: None }, code);
    if shared.authorization.is_some() && shared.authorization != record.authorization_digest {
        let why = "the authorization header is missing or wrong".to_owned();
        return Err(refuse(StatusCode::UNAUTHORIZED, why, Some("invalid_api_key")));
    }
    let json = parts.headers.get(header::CONTENT_TYPE).is_some_and(|kind| {
        kind.to_str().is_ok_and(|kind| kind.split(';').next().map(str::trim) == Some("application/json"))
    });
    if !json {
        let why = "the content-type must be application/json".to_owned();
        return Err(refuse(StatusCode::UNSUPPORTED_MEDIA_TYPE, why, None));
    }
    let request = ChatRequest::read(body).map_err(|invalid| (StatusCode::BAD_REQUEST, invalid, None))?;
    record.model = Some(request.model.clone());
    record.stream = request.stream;
    record.messages = request.messages.len() as u64;
    if shared.log.is_some() {
        record.message_digests = request.messages.iter().map(|text| Digest::of(text.as_bytes())).collect();
    }
    if !shared.models.contains(&request.model) {
        let why = format!("the model '{}' does not exist here", request.model);
        return Err(refuse(StatusCode::NOT_FOUND, why, Some("model_not_found")));
    }
    let seen = judge(&request).map_err(|invalid| (StatusCode::BAD_REQUEST, invalid, None))?;
    let reply = Reply::to(&shared.script, &seen, request.limit);
    record.step = Some(reply.number);
    Ok(play(shared, &request, reply, record))
}

fn play(shared: &Shared, request: &ChatRequest<'_>, reply: Reply, record: &mut Record) -> Answer {
    let failure = due_failure(shared, reply.number);
    if let Some(Failure::Refuse { status, retry_after_s, .. }) = failure {
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        record.status = status.as_u16();
        let invalid = Invalid { message: "the script says so".to_owned(), param: None };
        return Answer::Refused { status, invalid, code: None, retry_after_s };
    }
    record.usage = reply.usage;
    let head = Head { model: request.model.clone(), created: now().as_secs() };
    let delay = Duration::from_millis(reply.delay_ms);
    if request.stream {
        let events = events(&head, &reply, request.include_usage);
        return Answer::Stream(Play { events: events.into_iter(), delay, sent: 0, failure });
    }
    match failure {
        None => Answer::Whole { delay, body: document(&head, &reply) },
        // Without a stream there are no chunks: the answer is the one chunk, cut in the middle.
        Some(_) => {
            let body = document(&head, &reply);
            let half = vec![body.slice(..body.len() / 2)];
            let failure = failure.map(|failure| failure.after(1));
            Answer::Stream(Play { events: half.into_iter(), delay, sent: 0, failure })
        }
    }
}

fn due_failure(shared: &Shared, number: u64) -> Option<Failure> {
    let (step, _) = shared.script.step(number)?;
    if step.failures.is_empty() {
        return None;
    }
    let mut asked = shared.asked.lock().expect("nothing panics while it holds the counts");
    let earlier = asked.entry(number).or_insert(0);
    let due = Failure::due(&step.failures, *earlier).cloned();
    *earlier = earlier.saturating_add(1);
    due
}

/// A stream that is being played.
struct Play {
    events: std::vec::IntoIter<Bytes>,
    delay: Duration,
    sent: usize,
    failure: Option<Failure>,
}

fn streamed(play: Play, stop: CancellationToken) -> Response<Body> {
    let frames = stream::unfold((play, stop), |(mut play, stop)| async move {
        let next = play.next(&stop).await?;
        Some((next.map(Frame::data), (play, stop)))
    });
    let body = BodyExt::boxed_unsync(StreamBody::new(frames));
    let builder = Response::builder().header(header::CONTENT_TYPE, "text/event-stream");
    builder.header(header::CACHE_CONTROL, "no-cache").body(body).expect("headers are constant")
}

impl Play {
    async fn next(&mut self, stop: &CancellationToken) -> Option<io::Result<Bytes>> {
        if stop.is_cancelled() {
            return Some(Err(io::Error::from(io::ErrorKind::ConnectionAborted)));
        }
        match self.failure {
            Some(Failure::Cut { after_chunks, .. }) if self.sent >= after_chunks => {
                // An error makes the connection drop what it has buffered; a pending poll flushes it first.
                tokio::task::yield_now().await;
                return Some(Err(io::Error::from(io::ErrorKind::ConnectionReset)));
            }
            Some(Failure::Hang { after_chunks, .. }) if self.sent >= after_chunks => {
                stop.cancelled().await;
                return Some(Err(io::Error::from(io::ErrorKind::ConnectionAborted)));
            }
            Some(Failure::Cut { .. } | Failure::Hang { .. } | Failure::Refuse { .. }) | None => {}
        }
        let event = self.events.next()?;
        if !self.delay.is_zero() {
            tokio::select! {
                () = tokio::time::sleep(self.delay) => {}
                () = stop.cancelled() => {}
            }
        }
        self.sent += 1;
        Some(Ok(event))
    }
}

fn whole(status: StatusCode, body: Bytes) -> Response<Body> {
    let body = Full::new(body).map_err(|never| match never {}).boxed_unsync();
    let builder = Response::builder().status(status).header(header::CONTENT_TYPE, "application/json");
    builder.body(body).expect("headers are constant")
}

fn refusal(
    status: StatusCode,
    message: &str,
    param: Option<&str>,
    code: Option<&str>,
    retry_after_s: Option<u64>,
) -> Response<Body> {
    let kind = match status.as_u16() {
        401 => "authentication_error",
        429 => "rate_limit_error",
        400..500 => "invalid_request_error",
        _ => "server_error",
    };
    let error = json!({"message": message, "type": kind, "param": param, "code": code});
    let mut response = whole(status, Bytes::from(json!({"error": error}).to_string()));
    if let Some(seconds) = retry_after_s {
        response.headers_mut().insert(header::RETRY_AFTER, header::HeaderValue::from(seconds));
    }
    response
}
