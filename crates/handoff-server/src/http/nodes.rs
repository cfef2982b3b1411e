//! The node wire, and what nodes offer.

use axum::Json;
use axum::extract::State;
use handoff_protocol::listing::{DesiredQuery, NodePage, TierPage};
use handoff_protocol::node::{
    Accepted, Checkpoint, Claim, Claimed, Decline, Desired, Observed, Receipt, Register, Registered, Renew,
    Renewed, Rest, Usage, UsageAnswer,
};
use handoff_protocol::{NodeId, TransferId};
use handoff_service::Service;

use super::answer::{self, Answer};
use super::caller::Caller;
use super::document::{Asked, Document, Id};

pub(super) async fn register(
    State(service): State<Service>,
    Caller(call): Caller,
    Document(body): Document<Register>,
) -> Answer<Registered> {
    answer::of(service, |service| async move { service.register(&call.principal, body).await }).await
}

pub(super) async fn list(State(service): State<Service>, Caller(call): Caller) -> Answer<NodePage> {
    Ok(Json(service.nodes(&call.principal).await?))
}

pub(super) async fn tiers(State(service): State<Service>, Caller(call): Caller) -> Answer<TierPage> {
    Ok(Json(service.tiers(&call.principal).await?))
}

pub(super) async fn desired(
    State(service): State<Service>,
    Caller(call): Caller,
    Id(node): Id<NodeId>,
    Asked(query): Asked<DesiredQuery>,
) -> Answer<Desired> {
    Ok(Json(service.desired(&call.principal, node, query).await?))
}

macro_rules! reports {
    ($($(#[$doc:meta])* $name:ident: $body:ty => $reply:ty;)*) => {$(
        $(#[$doc])*
        pub(super) async fn $name(
            State(service): State<Service>,
            Caller(call): Caller,
            Id(transfer): Id<TransferId>,
            Document(body): Document<$body>,
        ) -> Answer<$reply> {
            answer::of(service, |service| async move { service.$name(&call, transfer, body).await }).await
        }
    )*};
}

reports! {
    receipt: Receipt => Accepted;
    claim: Claim => Claimed;
    decline: Decline => Accepted;
    renew: Renew => Renewed;
    rest: Rest => Accepted;
    usage: Usage => UsageAnswer;
    observed: Observed => Accepted;
    checkpoint: Checkpoint => Accepted;
}
