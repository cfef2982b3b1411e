//! The commands on a transfer.

use axum::Json;
use axum::extract::State;
use handoff_protocol::TransferId;
use handoff_protocol::listing::{EventPage, EventQuery, TransferPage, TransferQuery, ViewQuery};
use handoff_protocol::request::{
    Activate, Provision, Push, Raise, Refresh, ReportUsage, Stage, Staged, Terminate, WriteOff,
};
use handoff_service::Service;

use super::answer::{self, Answer, Pushed, Viewed};
use super::caller::Caller;
use super::document::{Asked, Document, Id, WithInput};
use super::problem::Failure;

type View = Result<Viewed, Failure>;

pub(super) async fn stage(
    State(service): State<Service>,
    Caller(call): Caller,
    WithInput(body): WithInput<Stage>,
) -> Answer<Staged> {
    answer::of(service, |service| async move { service.stage(&call, body).await }).await
}

pub(super) async fn refresh(
    State(service): State<Service>,
    Caller(call): Caller,
    Id(transfer): Id<TransferId>,
    WithInput(body): WithInput<Refresh>,
) -> Answer<Staged> {
    answer::of(service, |service| async move { service.refresh(&call, transfer, body).await }).await
}

pub(super) async fn provision(
    State(service): State<Service>,
    Caller(call): Caller,
    Id(transfer): Id<TransferId>,
    Document(body): Document<Provision>,
) -> View {
    answer::view(service, |service| async move { service.provision(&call, transfer, body).await }).await
}

pub(super) async fn push(
    State(service): State<Service>,
    Caller(call): Caller,
    Id(transfer): Id<TransferId>,
    Document(body): Document<Push>,
) -> Result<Pushed, Failure> {
    Ok(Pushed(Viewed(service.push(&call, transfer, body).await?)))
}

pub(super) async fn activate(
    State(service): State<Service>,
    Caller(call): Caller,
    Id(transfer): Id<TransferId>,
    Document(body): Document<Activate>,
) -> View {
    Ok(Viewed(service.activate(&call, transfer, body).await?))
}

pub(super) async fn report_usage(
    State(service): State<Service>,
    Caller(call): Caller,
    Id(transfer): Id<TransferId>,
    Document(body): Document<ReportUsage>,
) -> View {
    answer::view(service, |service| async move { service.report_usage(&call, transfer, body).await }).await
}

pub(super) async fn raise(
    State(service): State<Service>,
    Caller(call): Caller,
    Id(transfer): Id<TransferId>,
    Document(body): Document<Raise>,
) -> View {
    answer::view(service, |service| async move { service.raise(&call, transfer, body).await }).await
}

pub(super) async fn terminate(
    State(service): State<Service>,
    Caller(call): Caller,
    Id(transfer): Id<TransferId>,
    Document(body): Document<Terminate>,
) -> View {
    answer::view(service, |service| async move { service.terminate(&call, transfer, body).await }).await
}

pub(super) async fn write_off(
    State(service): State<Service>,
    Caller(call): Caller,
    Id(transfer): Id<TransferId>,
    Document(body): Document<WriteOff>,
) -> View {
    answer::view(service, |service| async move { service.write_off(&call, transfer, body).await }).await
}

pub(super) async fn get(
    State(service): State<Service>,
    Caller(call): Caller,
    Id(transfer): Id<TransferId>,
    Asked(query): Asked<ViewQuery>,
) -> View {
    Ok(Viewed(service.get_status(&call.principal, transfer, query).await?))
}

pub(super) async fn events(
    State(service): State<Service>,
    Caller(call): Caller,
    Id(transfer): Id<TransferId>,
    Asked(query): Asked<EventQuery>,
) -> Answer<EventPage> {
    Ok(Json(service.events(&call.principal, transfer, query).await?))
}

pub(super) async fn list(
    State(service): State<Service>,
    Caller(call): Caller,
    Asked(query): Asked<TransferQuery>,
) -> Answer<TransferPage> {
    Ok(Json(service.transfers(&call.principal, &query).await?))
}
