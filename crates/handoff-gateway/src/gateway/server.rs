//! The control socket: who may speak, and which words go to which verb.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use handoff_protocol::limits::BODY_BYTES;
use handoff_protocol::{ErrorCode, Problem};
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use serde::Serialize;
use tokio::net::{UnixListener, UnixStream};
use tokio_util::sync::CancellationToken;

use super::Gateway;
use crate::control::{
    Acknowledge, Admit, Ask, AskPolicy, CheckReferences, Close, Lease, Limit, List, Meter, Open, Remove,
    Resolve, Stand,
};

const HEAD_TIMEOUT: Duration = Duration::from_secs(30);

pub(super) async fn serve(gateway: Arc<Gateway>, listener: UnixListener, closing: CancellationToken) {
    loop {
        let accepted = tokio::select! {
            () = closing.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) if is_own(&stream) => {
                tokio::spawn(connection(Arc::clone(&gateway), stream, closing.clone()));
            }
            Ok(_) => tracing::warn!("another user's connection to the control socket was closed"),
            Err(error) => {
                tracing::warn!(%error, "a connection to the control socket could not be accepted");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

/// Whether the peer runs as the gateway's own user, or as root.
fn is_own(stream: &UnixStream) -> bool {
    let own = rustix::process::geteuid().as_raw();
    stream.peer_cred().is_ok_and(|peer| peer.uid() == own || peer.uid() == 0)
}

async fn connection(gateway: Arc<Gateway>, stream: UnixStream, closing: CancellationToken) {
    let service = service_fn(move |request| {
        let gateway = Arc::clone(&gateway);
        async move { Ok::<_, std::convert::Infallible>(answer(&gateway, request).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .serve_connection(TokioIo::new(stream), service);
    let outcome = tokio::select! {
        () = closing.cancelled() => return,
        outcome = connection => outcome,
    };
    if let Err(error) = outcome {
        tracing::debug!(%error, "a connection to the control socket ended");
    }
}

async fn answer(gateway: &Gateway, request: Request<Incoming>) -> Response<Full<Bytes>> {
    if request.method() != Method::POST {
        return problem(&Problem::new(ErrorCode::NotFound, "verbs are posted", "POST /v1/<verb>"));
    }
    let (parts, body) = request.into_parts();
    let body = match Limited::new(body, BODY_BYTES).collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) if error.is::<LengthLimitError>() => {
            return problem(&Problem::new(ErrorCode::PayloadTooLarge, "the body is too large", "say less"));
        }
        Err(_) => {
            return problem(&Problem::new(ErrorCode::InvalidArgument, "the body broke off", "send it again"));
        }
    };
    let outcome = dispatch(gateway, parts.uri.path(), &body).await;
    outcome.unwrap_or_else(|refusal| problem(&refusal))
}

async fn dispatch(gateway: &Gateway, path: &str, body: &[u8]) -> Result<Response<Full<Bytes>>, Problem> {
    match path {
        Open::PATH => said(&gateway.open(read(body)?).await?),
        CheckReferences::PATH => said(&gateway.check_references(read(body)?).await?),
        Resolve::PATH => said(&gateway.resolve(read(body)?).await?),
        Admit::PATH => said(&gateway.admit(read(body)?).await?),
        Lease::PATH => said(&gateway.lease(&read(body)?)?),
        Limit::PATH => said(&gateway.limit(read(body)?).await?),
        Stand::PATH => said(&gateway.stand(read(body)?).await?),
        Meter::PATH => said(&gateway.meter(read(body)?).await?),
        Acknowledge::PATH => said(&gateway.acknowledge(read(body)?)?),
        Close::PATH => said(&gateway.close(read(body)?).await?),
        Remove::PATH => said(&gateway.remove(read(body)?).await?),
        AskPolicy::PATH => said(&gateway.policy_in_force(read(body)?)),
        List::PATH => said(&gateway.list(read(body)?)),
        other => {
            let what = format!("there is no verb at {other}");
            Err(Problem::new(ErrorCode::NotFound, what, "POST /v1/<verb>"))
        }
    }
}

fn read<A: Ask>(body: &[u8]) -> Result<A, Problem> {
    let invalid = |what: String| {
        // Money says by itself that it is malformed, wherever it stands.
        let money = what.contains("invalid_amount");
        let code = if money { ErrorCode::InvalidAmount } else { ErrorCode::InvalidArgument };
        Problem::new(code, what, "see the control socket's documentation")
    };
    handoff_protocol::json::check(body).map_err(|error| invalid(error.to_string()))?;
    serde_json::from_slice(body).map_err(|error| invalid(error.to_string()))
}

fn said<T: Serialize>(reply: &T) -> Result<Response<Full<Bytes>>, Problem> {
    Ok(json(StatusCode::OK, reply))
}

fn problem(problem: &Problem) -> Response<Full<Bytes>> {
    let status = StatusCode::from_u16(problem.code.http_status()).expect("codes have valid statuses");
    json(status, problem)
}

fn json<T: Serialize>(status: StatusCode, body: &T) -> Response<Full<Bytes>> {
    let body = serde_json::to_vec(body).expect("plain data");
    Response::builder()
        .status(status)
        .header(header::CONTENT_TYPE, "application/json")
        .body(Full::new(Bytes::from(body)))
        .expect("headers of ours")
}
