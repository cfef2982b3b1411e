//! Claim: the destination takes the session. This commit is the only irreversible point of a move.

use handoff_protocol::Status;

use crate::budget;
use crate::command::Claim;
use crate::fact::Fact;
use crate::grid::CommandKind;
use crate::lease;
use crate::refusal::Refusal;
use crate::reply::Reply;
use crate::state::{Holder, Session};
use crate::transfer::{EndReason, Transfer};

use super::{Case, Decision};

pub(super) fn decide(case: &Case<'_>, claim: &Claim) -> Result<Decision, Refusal> {
    let (session, found) = case.transfer(claim.transfer)?;
    if let Some(reply) = answered(session, found, claim) {
        return Ok(Decision::new([], reply));
    }
    let (session, found) = case.legal(CommandKind::Claim, claim.transfer)?;
    super::check_assignment(found, claim.node, claim.generation)?;
    super::authorization::check_open(found, claim.authorization)?;
    if found.open_authorization().is_some_and(|open| open.deadline <= case.now) {
        return Err(Refusal::AuthorizationOver { transfer: found.id });
    }
    super::check_digest(found, claim.digest)?;
    super::check_final(session, found)?;
    if !lease::former_holder_is_out(case.policy, session, found, case.now) {
        return Err(Refusal::FormerHolderMayRun { until: session.lease_until.unwrap_or(case.now) });
    }
    let epoch = session.epoch.next();
    let limit = budget::grant(case.policy, found, Default::default(), Default::default());
    let mut facts = vec![claimed(case, claim, epoch, limit)];
    // The former live transfer ends in the same transaction: at no moment are there two.
    let former =
        session.live.map(|transfer| Fact::Terminated { transfer, reason: EndReason::Moved, at: case.now });
    // It ends first, so that the session's `live` is free for this one.
    facts.splice(0..0, former);
    Ok(Decision::new(facts, Reply::Claimed { epoch, limit }))
}

/// A claim whose answer was lost is answered again: the incarnation already holds the session.
fn answered(session: &Session, found: &Transfer, claim: &Claim) -> Option<Reply> {
    let held = Holder::Incarnation {
        incarnation: claim.incarnation,
        transfer: claim.transfer,
        node: claim.node,
        generation: claim.generation,
    };
    let account = found.epochs.get(&session.epoch)?;
    let live = matches!(found.status, Status::Active | Status::Insolvent);
    (live && session.holder == held).then_some(Reply::Claimed { epoch: session.epoch, limit: account.limit })
}

fn claimed(
    case: &Case<'_>,
    claim: &Claim,
    epoch: crate::state::Epoch,
    limit: handoff_protocol::NanoUsd,
) -> Fact {
    Fact::Claimed {
        transfer: claim.transfer,
        epoch,
        incarnation: claim.incarnation,
        node: claim.node,
        generation: claim.generation,
        lease_until: case.now.plus_ms(case.policy.lease_ms),
        limit,
    }
}
