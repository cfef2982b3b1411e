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

#[cfg(test)]
mod tests {
    use handoff_protocol::ErrorCode;
    use handoff_protocol::request::Operation;

    use crate::grid::CommandKind;
    use crate::machine::world::{MINUTE, ONE, TWO, World, incarnation};
    use crate::transfer::Outcome;
    use crate::{Command, Refusal, Reply};

    #[test]
    fn given_pushed_when_activated_then_its_destination_may_claim_for_a_while() {
        let mut world = World::pushed();
        let token = world.token(ONE, Operation::Activate);
        let reply = world.give(Command::Activate { transfer: ONE, token: token.clone() });
        assert_eq!(reply, Reply::Authorized { authorization: token.id });
        let open = world.of(ONE).open_authorization().expect("it is open");
        assert_eq!((open.id, open.deadline), (token.id, world.now.plus_ms(45_000)));
        assert!(world.of(ONE).spent_tokens.contains(&token.id));
        assert_eq!(world.code(&world.command(CommandKind::Activate, ONE)), ErrorCode::AlreadyAuthorized);
    }

    #[test]
    fn given_a_withdrawn_authorization_then_its_token_is_spent_and_another_one_works() {
        let mut world = World::pushed();
        let token = world.token(ONE, Operation::Activate);
        let activate = Command::Activate { transfer: ONE, token };
        world.give(activate.clone());
        world.give(world.command(CommandKind::Withdraw, ONE));
        assert_eq!(world.code(&activate), ErrorCode::TokenUsed);
        world.give(world.command(CommandKind::Activate, ONE));
        assert_eq!(world.of(ONE).authorization.as_ref().map(|found| &found.outcome), Some(&Outcome::Open));
    }

    #[test]
    fn a_token_for_something_else_is_refused() {
        let world = World::pushed();
        let with = |token| world.code(&Command::Activate { transfer: ONE, token });
        assert_eq!(with(world.token(TWO, Operation::Activate)), ErrorCode::TokenTransfer);
        assert_eq!(with(world.token(ONE, Operation::ProvisionRuntime)), ErrorCode::TokenScope);
        let token = world.token(ONE, Operation::Activate);
        let late = world.clone().later(6 * MINUTE);
        assert_eq!(late.code(&Command::Activate { transfer: ONE, token }), ErrorCode::TokenExpired);
    }

    #[test]
    fn a_refused_activation_leaves_its_token_unspent() {
        let mut world = World::pushed().silent(2 * MINUTE);
        world.give(world.command(CommandKind::Reassign, ONE));
        let activate = world.command(CommandKind::Activate, ONE);
        assert_eq!(world.refuse(&activate), Refusal::NoReceipt { transfer: ONE });
        world.give(world.command(CommandKind::Receipt, ONE));
        world.give(activate);
    }

    /// H-52
    #[test]
    fn the_former_holder_is_waited_for_before_the_token_is_spent() {
        let mut world = World::terminated();
        world.give(world.resume(TWO));
        for kind in [CommandKind::Provision, CommandKind::Push, CommandKind::Receipt] {
            world.give(world.command(kind, TWO));
        }
        let activate = world.command(CommandKind::Activate, TWO);
        let until = world.session().lease_until.expect("it had a lease");
        assert_eq!(world.refuse(&activate), Refusal::FormerHolderMayRun { until });
        let mut world = world.later(30_000);
        world.give(activate);
        world.give(world.claim(TWO, incarnation(2)));
    }
}
