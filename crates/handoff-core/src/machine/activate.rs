//! Activate: spends the token and leaves an authorisation for the destination's claim. It makes the claim's own
//! check of the former holder first, so that a token is not spent for nothing.

use handoff_protocol::TransferId;
use handoff_protocol::request::Operation;

use crate::fact::Fact;
use crate::grid::CommandKind;
use crate::lease;
use crate::refusal::Refusal;
use crate::reply::Reply;
use crate::token::TokenClaims;

use super::{Case, Decision};

pub(super) fn decide(
    case: &Case<'_>,
    transfer: TransferId,
    token: &TokenClaims,
) -> Result<Decision, Refusal> {
    let (session, found) = case.legal(CommandKind::Activate, transfer)?;
    super::check_token(case, found, token, Operation::Activate)?;
    if let Some(open) = found.open_authorization() {
        return Err(Refusal::AlreadyAuthorized { transfer, deadline: open.deadline });
    }
    super::check_final(session, found)?;
    if !found.receipt {
        return Err(Refusal::NoReceipt { transfer });
    }
    if !lease::former_holder_is_out(case.policy, session, found, case.now) {
        return Err(Refusal::FormerHolderMayRun { until: session.lease_until.unwrap_or(case.now) });
    }
    let facts = [
        Fact::TokenSpent {
            transfer,
            token: token.id,
            operation: Operation::Activate,
            expires_at: token.expires_at,
        },
        Fact::Authorized {
            transfer,
            authorization: token.id,
            deadline: case.now.plus_ms(case.policy.authorization_ms),
        },
    ];
    Ok(Decision::new(facts, Reply::Authorized { authorization: token.id }))
}
