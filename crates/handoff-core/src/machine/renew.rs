//! Renew: the holder may go on. A late renewal of the same incarnation is granted if nobody else claimed, so an
//! outage of the control plane freezes a session and does not restart it.

use handoff_protocol::node::LeaseCommand;
use handoff_protocol::{Status, TransferId};

use crate::fact::Fact;
use crate::grid::CommandKind;
use crate::refusal::Refusal;
use crate::reply::Reply;
use crate::state::{Generation, Session};

use super::{Case, Decision, Holding};

pub(super) fn decide(
    case: &Case<'_>,
    transfer: TransferId,
    holding: Holding,
    generation: Generation,
) -> Result<Decision, Refusal> {
    let (session, found) = case.legal(CommandKind::Renew, transfer)?;
    super::check_assignment(found, holding.node, generation)?;
    super::check_holder(case, session, found, holding)?;
    if session.holder_gone || found.resting {
        return Err(Refusal::LeaseOver);
    }
    let (command, for_transfer) = command(case, session, found.status);
    let lease_until = case.now.plus_ms(case.policy.lease_ms);
    Ok(Decision::new([Fact::Renewed { transfer, lease_until }], Reply::Renewed { command, for_transfer }))
}

/// Frozen while insolvent; quiesced while a successor wants or has the final; else running.
fn command(case: &Case<'_>, session: &Session, status: Status) -> (LeaseCommand, Option<TransferId>) {
    if status == Status::Insolvent {
        return (LeaseCommand::Freeze, None);
    }
    let successor = case.pending(session).filter(|pending| {
        let wanted = pending.final_requested && pending.status != Status::Pushed;
        wanted || pending.is_final(session.epoch)
    });
    match successor {
        Some(pending) => (LeaseCommand::Quiesce, Some(pending.id)),
        None => (LeaseCommand::Run, None),
    }
}
