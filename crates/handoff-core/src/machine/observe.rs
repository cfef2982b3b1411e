//! Observe: what a node finds. `absent` is a proof: for the holder's own incarnation it ends the lease, for a
//! finished transfer it lets the ledger close.

use handoff_protocol::node::ObservedState;
use handoff_protocol::{IncarnationId, NodeId, Timestamp, TransferId};

use crate::fact::Fact;
use crate::grid::CommandKind;
use crate::refusal::Refusal;
use crate::state::{Generation, Holder, Session};
use crate::transfer::Transfer;

use super::{Case, Decision};

/// What was seen.
pub(super) struct Seen {
    pub(super) state: ObservedState,
    pub(super) last_alive: Option<Timestamp>,
    pub(super) incarnation: Option<IncarnationId>,
}

pub(super) fn decide(
    case: &Case<'_>,
    transfer: TransferId,
    (node, generation): (NodeId, Generation),
    seen: Seen,
) -> Result<Decision, Refusal> {
    let (session, found) = case.legal(CommandKind::Observe, transfer)?;
    check_place(found, node, generation)?;
    let mut facts = Vec::new();
    let present = found.assignment.filter(|present| present.generation == generation);
    let known = match present {
        Some(present) => present.observed == Some(seen.state) && seen.last_alive <= present.last_alive,
        None => !found.former_assignments.contains_key(&generation),
    };
    if !known {
        let (state, last_alive) = (seen.state, seen.last_alive);
        facts.push(Fact::Observed { transfer, generation, state, last_alive });
    }
    if proves_holder_gone(session, transfer, generation, &seen) {
        facts.push(Fact::HolderGone { at: case.now });
    }
    Ok(Decision::done(super::with_ledger(case, facts, transfer)))
}

/// The present assignment, or an earlier one that is still listed as gone.
fn check_place(found: &Transfer, node: NodeId, generation: Generation) -> Result<(), Refusal> {
    match found.assignment {
        Some(present) if present.generation > generation => match found.former_assignments.get(&generation) {
            Some(former) if *former != node => Err(Refusal::WrongNode { transfer: found.id, node }),
            Some(_) | None => Ok(()),
        },
        Some(_) | None => super::check_assignment(found, node, generation),
    }
}

/// Only a report about the very incarnation that holds the session ends its lease: one that arrives late, after
/// another incarnation claimed, must not.
fn proves_holder_gone(session: &Session, transfer: TransferId, generation: Generation, seen: &Seen) -> bool {
    let about_holder = match session.holder {
        Holder::Incarnation { incarnation, transfer: held, generation: of, .. } => {
            held == transfer && of == generation && seen.incarnation == Some(incarnation)
        }
        Holder::Source { .. } | Holder::None => false,
    };
    seen.state == ObservedState::Absent && about_holder && !session.holder_gone
}
