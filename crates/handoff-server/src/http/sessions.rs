//! The commands on a session.

use axum::Json;
use axum::extract::State;
use handoff_protocol::SessionId;
use handoff_protocol::listing::{SessionPage, SessionQuery};
use handoff_protocol::request::{Reasoned, Return, Returned, SessionView};
use handoff_service::Service;

use super::answer::{self, Answer};
use super::caller::Caller;
use super::document::{Asked, Document, Id};

pub(super) async fn return_source(
    State(service): State<Service>,
    Caller(call): Caller,
    Id(session): Id<SessionId>,
    Document(body): Document<Return>,
) -> Answer<Returned> {
    answer::of(service, |service| async move { service.return_source(&call, session, body).await }).await
}

pub(super) async fn abandon_source(
    State(service): State<Service>,
    Caller(call): Caller,
    Id(session): Id<SessionId>,
    Document(body): Document<Reasoned>,
) -> Answer<SessionView> {
    answer::of(service, |service| async move { service.abandon_source(&call, session, body).await }).await
}

pub(super) async fn wake(
    State(service): State<Service>,
    Caller(call): Caller,
    Id(session): Id<SessionId>,
    Document(body): Document<Reasoned>,
) -> Answer<SessionView> {
    answer::of(service, |service| async move { service.wake(&call, session, body).await }).await
}

pub(super) async fn get(
    State(service): State<Service>,
    Caller(call): Caller,
    Id(session): Id<SessionId>,
) -> Answer<SessionView> {
    Ok(Json(service.session(&call.principal, session).await?))
}

pub(super) async fn list(
    State(service): State<Service>,
    Caller(call): Caller,
    Asked(query): Asked<SessionQuery>,
) -> Answer<SessionPage> {
    Ok(Json(service.sessions(&call.principal, query).await?))
}
