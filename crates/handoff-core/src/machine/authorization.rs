//! The two ways an authorisation ends without a claim: the destination declines it, or it is withdrawn when
//! nobody claimed in time. Both name it, so that neither can end a later one.

use handoff_protocol::{AuthorizationId, NodeId, TransferId};

use crate::fact::Fact;
use crate::grid::CommandKind;
use crate::refusal::Refusal;
use crate::state::Generation;
use crate::transfer::{Outcome, Transfer};

use super::{Case, Decision};

pub(super) fn decline(
    case: &Case<'_>,
    transfer: TransferId,
    (node, generation): (NodeId, Generation),
    authorization: AuthorizationId,
    reason: &str,
) -> Result<Decision, Refusal> {
    let (_, found) = case.legal(CommandKind::Decline, transfer)?;
    super::check_assignment(found, node, generation)?;
    check_open(found, authorization)?;
    let outcome = Outcome::Declined { reason: reason.to_owned() };
    Ok(Decision::done([Fact::AuthorizationEnded { transfer, authorization, outcome }]))
}

pub(super) fn withdraw(
    case: &Case<'_>,
    transfer: TransferId,
    authorization: AuthorizationId,
) -> Result<Decision, Refusal> {
    let (_, found) = case.legal(CommandKind::Withdraw, transfer)?;
    check_open(found, authorization)?;
    Ok(Decision::done([Fact::AuthorizationEnded { transfer, authorization, outcome: Outcome::Withdrawn }]))
}

/// Refuses an authorisation that is not the open one.
pub(super) fn check_open(transfer: &Transfer, authorization: AuthorizationId) -> Result<(), Refusal> {
    match transfer.open_authorization() {
        Some(open) if open.id == authorization => Ok(()),
        Some(_) | None => Err(Refusal::AuthorizationOver { transfer: transfer.id }),
    }
}
