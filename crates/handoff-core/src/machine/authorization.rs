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

#[cfg(test)]
mod tests {
    use handoff_protocol::{ErrorCode, Status, TokenId};

    use crate::Command;
    use crate::grid::CommandKind;
    use crate::machine::world::{NODE, ONE, OTHER_NODE, World};
    use crate::state::Generation;
    use crate::transfer::Outcome;

    #[test]
    fn a_declined_authorization_is_over_and_says_why() {
        let mut world = World::authorized();
        let claim = world.command(CommandKind::Claim, ONE);
        world.give(world.command(CommandKind::Decline, ONE));
        let reason = "a credential did not resolve".to_owned();
        assert_eq!(
            world.of(ONE).authorization.clone().map(|found| found.outcome),
            Some(Outcome::Declined { reason })
        );
        assert_eq!((world.status(ONE), world.code(&claim)), (Status::Pushed, ErrorCode::LeaseOver));
    }

    #[test]
    fn only_the_assigned_node_declines() {
        let world = World::authorized();
        let Command::Decline { transfer, authorization, reason, .. } =
            world.command(CommandKind::Decline, ONE)
        else {
            unreachable!("it declines")
        };
        let by = |node, generation| {
            let reason = reason.clone();
            world.code(&Command::Decline { transfer, node, generation, authorization, reason })
        };
        assert_eq!(by(OTHER_NODE, Generation(1)), ErrorCode::Forbidden);
        assert_eq!(by(NODE, Generation(2)), ErrorCode::StaleGeneration);
    }

    /// H-57
    #[test]
    fn neither_end_can_hit_a_later_authorization() {
        let mut world = World::authorized();
        let (withdraw, decline) =
            (world.command(CommandKind::Withdraw, ONE), world.command(CommandKind::Decline, ONE));
        world.give(withdraw.clone());
        assert_eq!(world.code(&withdraw), ErrorCode::LeaseOver, "it is over already");
        world.give(world.command(CommandKind::Activate, ONE));
        assert_eq!([world.code(&withdraw), world.code(&decline)], [ErrorCode::LeaseOver; 2]);
        let unknown = Command::Withdraw { transfer: ONE, authorization: TokenId::from_u128(5) };
        assert_eq!(world.code(&unknown), ErrorCode::LeaseOver);
        assert!(world.of(ONE).open_authorization().is_some());
    }
}
