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
        return Err(Refusal::busy(session, "it rests: there is nothing to assign anew"));
    }
    if let Some(open) = found.open_authorization() {
        return Err(Refusal::AlreadyAuthorized { transfer, deadline: open.deadline });
    }
    let since = silent_since(case, session, found).map_or(serving_since, |since| since.max(serving_since));
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

/// Since when nobody can be running it: the end of a live one's lease, or the last sign of its node; none for a
/// node that nothing is known of.
fn silent_since(case: &Case<'_>, session: &Session, found: &Transfer) -> Option<Timestamp> {
    if found.status.is_live() {
        return session.lease_until;
    }
    let node = found.assignment?.node;
    case.state.rooms.get(&node).map(|room| room.seen_at)
}

#[cfg(test)]
mod tests {
    use handoff_protocol::{ErrorCode, Timestamp};

    use crate::grid::CommandKind;
    use crate::machine::world::{MINUTE, NODE, ONE, OTHER_NODE, World, incarnation};
    use crate::state::Generation;
    use crate::{Command, Refusal};

    fn reassign(serving_since: Timestamp) -> Command {
        Command::Reassign { transfer: ONE, serving_since }
    }

    /// H-70
    #[test]
    fn a_live_transfer_is_assigned_anew_a_minute_after_its_lease_was_over() {
        let mut world = World::active();
        let at = world.now.plus_ms(90_000);
        let always = Timestamp::from_unix_ms(0);
        let early = world.clone().later(89_999);
        assert_eq!(early.refuse(&reassign(always)), Refusal::TooEarly { transfer: ONE, at });
        world = world.later(90_000);
        let at = world.now.plus_ms(59_999);
        let since = Timestamp::from_unix_ms(world.now.unix_ms() - 1);
        assert_eq!(
            world.refuse(&reassign(since)),
            Refusal::TooEarly { transfer: ONE, at },
            "served for 1 ms"
        );
        let late = world.renew();
        world.give(reassign(always));
        let assignment = world.of(ONE).assignment.expect("it has a node");
        assert_eq!((assignment.node, assignment.generation), (OTHER_NODE, Generation(2)));
        assert_eq!(world.of(ONE).former_assignments, [(Generation(1), NODE)].into());
        assert_eq!(world.code(&late), ErrorCode::StaleGeneration);
        world.give(world.reclaim(incarnation(2)));
    }

    #[test]
    fn a_late_renewal_that_came_first_keeps_the_assignment() {
        let mut world = World::active().later(2 * MINUTE);
        world.give(world.renew());
        assert_eq!(world.code(&reassign(Timestamp::from_unix_ms(0))), ErrorCode::WrongStatus);
    }

    #[test]
    fn a_pushed_transfer_needs_a_receipt_of_its_new_node() {
        let mut world = World::pushed();
        let command = reassign(Timestamp::from_unix_ms(0));
        assert_eq!(world.code(&command), ErrorCode::WrongStatus, "its node was heard of just now");
        world = world.silent(MINUTE);
        world.give(command);
        assert!(!world.of(ONE).receipt);
        assert_eq!(world.code(&world.command(CommandKind::Activate, ONE)), ErrorCode::WrongStatus);
        world.give(world.command(CommandKind::Receipt, ONE));
        world.give(world.command(CommandKind::Activate, ONE));
        assert_eq!(world.events(ONE).len(), 3, "state_pushed is written once");
    }

    #[test]
    fn a_pending_transfer_of_an_unknown_node_is_assigned_anew() {
        let mut world = World::pushed();
        world.state.rooms.remove(&NODE);
        assert_eq!(world.code(&reassign(world.now)), ErrorCode::WrongStatus, "served for no time");
        world.give(reassign(Timestamp::from_unix_ms(0)));
        assert_eq!(world.of(ONE).assignment.map(|found| found.node), Some(OTHER_NODE));
    }

    #[test]
    fn what_rests_is_authorized_or_has_nowhere_to_go_stays() {
        let command = reassign(Timestamp::from_unix_ms(0));
        assert_eq!(World::resting().later(5 * MINUTE).code(&command), ErrorCode::SessionBusy);
        assert_eq!(World::authorized().silent(5 * MINUTE).code(&command), ErrorCode::AlreadyAuthorized);
        let mut alone = World::active().later(5 * MINUTE);
        alone.state.rooms.remove(&OTHER_NODE);
        assert_eq!(alone.code(&command), ErrorCode::NoNode);
    }
}
