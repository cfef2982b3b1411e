//! What a node should hold, derived from what the store says: nodes reconcile towards it and nothing is undone.

use handoff_protocol::node::{AuthorizationOffer, Destination, Want};
use handoff_protocol::{NanoUsd, NodeId, Status, Timestamp};

use crate::lease;
use crate::policy::Policy;
use crate::state::{Generation, Holder, Session};
use crate::transfer::{Push, Transfer};

/// The entries of one transfer that concern this node: its present assignment, and earlier ones that are not
/// proved absent yet.
pub fn entries(
    policy: &Policy,
    session: &Session,
    transfer: &Transfer,
    node: NodeId,
    now: Timestamp,
) -> Vec<Destination> {
    let former = transfer.former_assignments.iter().filter(|(_, former)| **former == node);
    let mut entries: Vec<Destination> = former
        .filter_map(|(generation, _)| entry(policy, session, transfer, *generation, Want::Gone, now))
        .collect();
    if let Some(present) = transfer.assignment.filter(|present| present.node == node)
        && let Some(want) = want(transfer)
    {
        entries.extend(entry(policy, session, transfer, present.generation, want, now));
    }
    entries
}

/// What should be there; none once its absence is proved.
fn want(transfer: &Transfer) -> Option<Want> {
    match transfer.status {
        Status::Staged => None,
        Status::Provisioned => match transfer.push {
            Some(Push::Requested { .. }) => Some(Want::Prepared),
            Some(Push::Failed { .. }) | None => Some(Want::Warm),
        },
        Status::Pushed => Some(Want::Prepared),
        Status::Active if transfer.resting => Some(Want::Resting),
        Status::Active => Some(Want::Running),
        Status::Insolvent => Some(Want::Frozen),
        Status::Terminated | Status::Expired if transfer.is_absent() && transfer.all_epochs_closed() => None,
        Status::Terminated | Status::Expired => Some(Want::Gone),
    }
}

fn entry(
    policy: &Policy,
    session: &Session,
    transfer: &Transfer,
    generation: Generation,
    want: Want,
    now: Timestamp,
) -> Option<Destination> {
    let live = transfer.status.is_live();
    let offer = transfer
        .open_authorization()
        .map(|open| AuthorizationOffer { id: open.id, deadline_ms: open.deadline.ms_since(now) });
    let holder = match session.holder {
        Holder::Incarnation { incarnation, transfer: held, .. } if held == transfer.id => Some(incarnation),
        Holder::Incarnation { .. } | Holder::Source { .. } | Holder::None => None,
    };
    let accepted = session.last_snapshot.filter(|_| live).map(|last| last.digest);
    Some(Destination {
        transfer_id: transfer.id,
        session_id: session.id,
        generation: generation.0,
        version: transfer.version,
        want,
        authorization: offer,
        snapshot: accepted.unwrap_or(transfer.snapshot),
        push: matches!(transfer.push, Some(Push::Requested { .. })) && !transfer.receipt,
        tier: transfer.tier.clone()?,
        epoch: holder.map(|_| session.epoch.0),
        holder,
        lease_over: live && lease::is_over(session, now),
        tick_ms: policy.tick_ms,
        grace_ms: policy.grace_ms,
        wind_down_usd: transfer.budget.map_or(NanoUsd::ZERO, |budget| budget.reserve),
    })
}
