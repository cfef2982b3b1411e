//! What is shown of a session, a transfer, a node: names, figures and states, never content.

use handoff_core::ledger::{Found, NodeRecord};
use handoff_core::placement::Room;
use handoff_core::{Holder, Session, Transfer};
use handoff_protocol::Status;
use handoff_protocol::listing::NodeView;
use handoff_protocol::node::Capacity;
use handoff_protocol::request::{
    BudgetView, DestinationView, EventView, LeaseView, SessionView, TransferView,
};

/// The schema that a transfer's view names.
const STATUS_SCHEMA: &str = "handoff.status.v1";

pub(crate) fn transfer(found: &Found, events: Vec<EventView>, next_cursor: Option<u64>) -> TransferView {
    let (session, transfer) = (&found.session, &found.transfer);
    TransferView {
        schema: STATUS_SCHEMA.to_owned(),
        transfer: transfer.id,
        session: session.id,
        status: transfer.status,
        epoch: session.epoch.0,
        held_epoch: transfer.epochs.keys().next_back().map(|epoch| epoch.0),
        version: transfer.version,
        snapshot: transfer.snapshot,
        is_final: transfer.is_final(session.epoch),
        budget: budget(transfer),
        lease: lease(session, transfer),
        destination: destination(transfer),
        source_must_keep_running: source_must_keep_running(transfer),
        reason: transfer.ended.as_ref().map(|ended| ended.reason.as_str().to_owned()),
        grace_until: transfer.grace_until.filter(|_| transfer.status == Status::Insolvent),
        expires_at: transfer.expires_at,
        labels: session.labels.clone(),
        events,
        next_cursor,
        request_id: None,
    }
}

fn budget(transfer: &Transfer) -> Option<BudgetView> {
    transfer.budget.map(|budget| BudgetView {
        allocated_usd: budget.allocated,
        spent_usd: transfer.spent(),
        leased_usd: transfer.leased(),
        reserve_usd: transfer.reserve(),
        closed: transfer.ledger_closed,
    })
}

fn lease(session: &Session, transfer: &Transfer) -> Option<LeaseView> {
    let until = session.lease_until.filter(|_| transfer.status.is_live() && !session.holder_gone)?;
    match session.holder {
        Holder::Incarnation { incarnation, transfer: held, .. } if held == transfer.id => {
            Some(LeaseView { incarnation, until })
        }
        Holder::Incarnation { .. } | Holder::Source { .. } | Holder::None => None,
    }
}

fn destination(transfer: &Transfer) -> Option<DestinationView> {
    let (assignment, tier) = (transfer.assignment?, transfer.tier.as_ref()?);
    Some(DestinationView {
        node_id: assignment.node,
        tier: tier.name.clone(),
        generation: assignment.generation.0,
        observed: assignment.observed,
        resting: transfer.resting,
    })
}

/// Until the transfer was active, and for good if it never was, the session has nobody else to run it.
fn source_must_keep_running(transfer: &Transfer) -> bool {
    match transfer.status {
        Status::Staged | Status::Provisioned | Status::Pushed | Status::Expired => true,
        Status::Active | Status::Insolvent => false,
        Status::Terminated => transfer.epochs.is_empty(),
    }
}

pub(crate) fn session(session: &Session) -> SessionView {
    SessionView {
        session: session.id,
        epoch: session.epoch.0,
        holder: match &session.holder {
            Holder::Source { .. } => "source".to_owned(),
            Holder::Incarnation { incarnation, .. } => incarnation.to_string(),
            Holder::None => "none".to_owned(),
        },
        pending: session.pending,
        live: session.live,
        last_snapshot: session.last_snapshot.map(|accepted| accepted.digest),
        labels: session.labels.clone(),
    }
}

pub(crate) fn node(record: NodeRecord, room: Option<&Room>) -> NodeView {
    NodeView {
        node_id: record.id,
        name: record.name,
        capacity: record.capacity,
        free: room.map(|room| Capacity { cpu_millis: room.cpu_millis, memory_bytes: room.memory_bytes }),
        isolation: record.isolation,
        seen_at: record.seen_at,
    }
}
