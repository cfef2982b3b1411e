//! The routes. The tables in `handoff_protocol::{request, node, listing}` say what each takes and gives.

use axum::Extension;
use axum::Router;
use axum::extract::{MatchedPath, Request};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use handoff_protocol::ErrorCode;
use handoff_service::Service;
use std::time::Instant;

use super::blob_memory::BlobMemory;
use super::problem::Failure;
use super::{blobs, health, nodes, sessions, tokens, transfers};

/// All routes of the control plane. Whoever serves them puts a [`crate::Peer`] on every request.
pub fn router(service: Service) -> Router {
    let transfer = Router::new()
        .route("/", get(transfers::get))
        .route("/events", get(transfers::events))
        .route("/snapshot", post(transfers::refresh))
        .route("/provision", post(transfers::provision))
        .route("/push", post(transfers::push))
        .route("/activate", post(transfers::activate))
        .route("/report-usage", post(transfers::report_usage))
        .route("/raise", post(transfers::raise))
        .route("/terminate", post(transfers::terminate))
        .route("/write-off", post(transfers::write_off))
        .route("/receipt", post(nodes::receipt))
        .route("/claim", post(nodes::claim))
        .route("/decline", post(nodes::decline))
        .route("/renew", post(nodes::renew))
        .route("/rest", post(nodes::rest))
        .route("/usage", post(nodes::usage))
        .route("/observed", post(nodes::observed))
        .route("/checkpoint", post(nodes::checkpoint));
    let session = Router::new()
        .route("/", get(sessions::get))
        .route("/return", post(sessions::return_source))
        .route("/abandon-source", post(sessions::abandon_source))
        .route("/wake", post(sessions::wake));
    Router::new()
        .route("/v1/transfers", get(transfers::list).post(transfers::stage))
        .nest("/v1/transfers/{id}", transfer)
        .route("/v1/sessions", get(sessions::list))
        .nest("/v1/sessions/{id}", session)
        .route("/v1/nodes", get(nodes::list).post(nodes::register))
        .route("/v1/nodes/{id}/desired", get(nodes::desired))
        .route("/v1/tiers", get(nodes::tiers))
        .route("/v1/tokens", post(tokens::issue))
        .route("/v1/approvals", get(tokens::approvals))
        .route("/v1/approvals/{id}", post(tokens::decide))
        .route("/v1/reap", post(tokens::reap))
        .route("/v1/blobs/{id}", get(blobs::get).head(blobs::head).put(blobs::put))
        .route("/healthz", get(health::alive))
        .route("/readyz", get(health::ready))
        .fallback(unknown)
        .method_not_allowed_fallback(unknown)
        .layer(middleware::from_fn(log))
        .layer(Extension(BlobMemory::default()))
        .with_state(service)
}

/// The path is not repeated: a token that was put there by mistake would be.
async fn unknown() -> Response {
    let message = "there is no such route, or not by this method";
    Failure::new(ErrorCode::NotFound, message, "docs/protocol.md lists the routes").into_response()
}

/// What was asked and how it ended; never a body, a query or a header.
async fn log(request: Request, next: Next) -> Response {
    let started = Instant::now();
    let method = request.method().clone();
    let route = request.extensions().get::<MatchedPath>().map(|path| path.as_str().to_owned());
    let response = next.run(request).await;
    let (status, took_ms) = (response.status().as_u16(), started.elapsed().as_millis());
    tracing::debug!(%method, route, status, took_ms, "answered");
    response
}
