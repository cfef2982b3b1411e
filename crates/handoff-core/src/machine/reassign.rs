//! Reassign: a transfer whose node has been silent for long gets another assignment. The old one stays listed
//! as gone until its node reports it absent.

use handoff_protocol::{Timestamp, TransferId};

use crate::fact::Fact;
use crate::grid::CommandKind;
use crate::placement;
use crate::refusal::Refusal;
use crate::state::Session;
use crate::transfer::Transfer;

use super::{Case, Decision};

pub(super) fn decide(
    case: &Case<'_>,
    transfer: TransferId,
    serving_since: Timestamp,
) -> Result<Decision, Refusal> {
    let (session, found) = case.legal(CommandKind::Reassign, transfer)?;
    if found.resting {
        return Err(Refusal::SessionBusy {
            session: session.id,
            why: "it rests: there is nothing to assign anew",
        });
    }
    if let Some(open) = found.open_authorization() {
        return Err(Refusal::AlreadyAuthorized { transfer, deadline: open.deadline });
    }
    let since = silent_since(case, session, found).unwrap_or(case.now).max(serving_since);
    let at = since.plus_ms(case.policy.reassign_after_ms);
    if case.now < at {
        return Err(Refusal::TooEarly { transfer, at });
    }
    let (Some(assignment), Some(tier)) = (found.assignment, &found.tier) else {
        return Err(Refusal::WrongStatus { transfer, found: found.status, command: CommandKind::Reassign });
    };
    let node = placement::choose(&case.state.rooms, tier, None, Some(assignment.node), case.now)?;
    Ok(Decision::done([Fact::Reassigned { transfer, node, generation: assignment.generation.next() }]))
}

/// Since when nobody can be running it: the end of a live one's lease, or the last sign of its node.
fn silent_since(case: &Case<'_>, session: &Session, found: &Transfer) -> Option<Timestamp> {
    if found.status.is_live() {
        return session.lease_until;
    }
    let node = found.assignment?.node;
    case.state.rooms.get(&node).map(|room| room.seen_at)
}
