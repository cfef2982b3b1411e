//! Tokens, approvals and the reaper: what orchestrators do.

use axum::Json;
use axum::extract::State;
use handoff_protocol::ApprovalId;
use handoff_protocol::listing::ApprovalPage;
use handoff_protocol::request::{ApprovalView, Decide, IssueToken, IssuedToken, Reaped, Reasoned};
use handoff_service::Service;

use super::answer::{self, Answer};
use super::caller::Caller;
use super::document::{Document, Id};

pub(super) async fn issue(
    State(service): State<Service>,
    Caller(call): Caller,
    Document(body): Document<IssueToken>,
) -> Answer<IssuedToken> {
    answer::of(service, |service| async move { service.issue_token(&call.principal, &body).await }).await
}

pub(super) async fn approvals(State(service): State<Service>, Caller(call): Caller) -> Answer<ApprovalPage> {
    Ok(Json(ApprovalPage { approvals: service.approvals(&call.principal).await? }))
}

pub(super) async fn decide(
    State(service): State<Service>,
    Caller(call): Caller,
    Id(approval): Id<ApprovalId>,
    Document(body): Document<Decide>,
) -> Answer<ApprovalView> {
    let decide =
        |service: Service| async move { service.decide(&call.principal, approval, body.approve).await };
    answer::of(service, decide).await
}

pub(super) async fn reap(
    State(service): State<Service>,
    Caller(call): Caller,
    Document(body): Document<Reasoned>,
) -> Answer<Reaped> {
    answer::of(service, |service| async move { service.reap(&call.principal, body).await }).await
}
