//! Observe: what a node finds. `absent` is a proof, of one of two things. With an incarnation it says that this
//! one is gone, which ends the holder's lease and leaves its place standing. Without one it says that nothing of
//! the place is left, which lets the ledger of a finished transfer close.

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
    if proves_holder_gone(session, found, generation, &seen) {
        facts.push(Fact::HolderGone { transfer, at: case.now });
    }
    let present = found.assignment.filter(|present| present.generation == generation);
    let known = match present {
        Some(present) => present.observed == Some(seen.state) && seen.last_alive <= present.last_alive,
        None => !found.former_assignments.contains_key(&generation),
    };
    if !known && says_of_the_place(found, generation, &seen) {
        let (state, last_alive) = (seen.state, seen.last_alive);
        facts.push(Fact::Observed { transfer, generation, state, last_alive });
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

/// Whether it says what is at the place. The absence of an incarnation does not; and what is absent while its
/// transfer goes on there will be built again.
fn says_of_the_place(found: &Transfer, generation: Generation, seen: &Seen) -> bool {
    match seen.state {
        ObservedState::Absent => seen.incarnation.is_none() && is_over(found, generation),
        ObservedState::Warm
        | ObservedState::Prepared
        | ObservedState::Running
        | ObservedState::Frozen
        | ObservedState::Resting
        | ObservedState::Failed => true,
    }
}

/// Nothing is built there any more.
fn is_over(found: &Transfer, generation: Generation) -> bool {
    found.status.is_terminal() || found.generation() != Some(generation)
}

/// Only a report about the very incarnation that holds the session ends its lease, or one that nothing is left of
/// the place it ran in: one that arrives late, after another incarnation claimed, must not.
fn proves_holder_gone(session: &Session, found: &Transfer, generation: Generation, seen: &Seen) -> bool {
    let Holder::Incarnation { incarnation, transfer, generation: of, .. } = session.holder else {
        return false;
    };
    let there = transfer == found.id && of == generation;
    let gone = match seen.incarnation {
        Some(named) => named == incarnation,
        None => is_over(found, generation),
    };
    seen.state == ObservedState::Absent && there && gone && !session.holder_gone
}

#[cfg(test)]
mod tests {
    use handoff_protocol::ErrorCode;
    use handoff_protocol::node::ObservedState;

    use crate::grid::CommandKind;
    use crate::machine::world::{MINUTE, NODE, ONE, OTHER_NODE, World, incarnation};
    use crate::state::Generation;
    use crate::{Command, Fact, lease};

    fn seen(generation: u64, node: handoff_protocol::NodeId, incarnation: Option<u128>) -> Command {
        Command::Observe {
            transfer: ONE,
            node,
            generation: Generation(generation),
            state: ObservedState::Absent,
            last_alive: None,
            incarnation: incarnation.map(super::IncarnationId::from_u128),
        }
    }

    /// H-91
    #[test]
    fn proof_that_the_holder_is_gone_ends_its_lease() {
        let mut world = World::active();
        assert!(!lease::is_over(world.session(), world.now));
        world.give(seen(1, NODE, None));
        world.give(seen(1, NODE, Some(9)));
        assert!(!lease::is_over(world.session(), world.now), "that was about others");
        world.give(seen(1, NODE, Some(1)));
        assert!(lease::is_over(world.session(), world.now));
        assert_eq!(world.make(seen(1, NODE, Some(1))).0, [], "it is known");
        assert_eq!(world.code(&world.renew()), ErrorCode::LeaseOver);
    }

    /// H-91: of one incarnation nothing is left; of the place everything is.
    #[test]
    fn proof_about_an_incarnation_says_nothing_about_its_place() {
        let mut world = World::active();
        world.give(world.observe(ObservedState::Running));
        let version = world.of(ONE).version;
        world.give(seen(1, NODE, Some(1)));
        let assignment = world.of(ONE).assignment.expect("it has a node");
        assert_eq!(assignment.observed, None, "it does not run, and it is not gone");
        assert!(world.of(ONE).version > version, "its node may claim again: it is listed anew");
        world.give(seen(1, NODE, None));
        assert_eq!(world.make(seen(1, NODE, None)).0, [], "what goes on there is built again");
        assert_eq!(world.of(ONE).assignment.and_then(|present| present.observed), None);
    }

    #[test]
    fn proof_that_nothing_is_left_of_a_place_is_proof_about_the_holder_too() {
        let mut world = World::terminated();
        assert!(!lease::is_over(world.session(), world.now));
        world.give(world.place_gone());
        assert!(lease::is_over(world.session(), world.now));
        assert_eq!(
            world.of(ONE).assignment.and_then(|present| present.observed),
            Some(ObservedState::Absent)
        );
        world.give(seen(1, NODE, Some(1)));
        assert!(world.of(ONE).is_absent(), "a late report about its holder brings nothing back");
    }

    #[test]
    fn a_late_report_about_a_former_incarnation_ends_nothing() {
        let mut world = World::active().later(MINUTE);
        world.give(world.reclaim(incarnation(2)));
        world.give(seen(1, NODE, Some(1)));
        assert!(!lease::is_over(world.session(), world.now));
    }

    #[test]
    fn only_the_node_of_an_assignment_speaks_of_it() {
        let mut world = World::active().silent(2 * MINUTE);
        world.give(world.command(CommandKind::Reassign, ONE));
        assert_eq!(world.code(&seen(1, OTHER_NODE, None)), ErrorCode::Forbidden);
        assert_eq!(world.code(&seen(2, NODE, None)), ErrorCode::Forbidden);
        assert_eq!(world.code(&seen(3, OTHER_NODE, None)), ErrorCode::StaleGeneration);
        world.give(seen(1, NODE, Some(1)));
        assert!(!world.of(ONE).former_assignments.is_empty(), "its files may be there");
        world.give(seen(1, NODE, None));
        assert!(world.of(ONE).former_assignments.is_empty());
        assert_eq!(world.make(seen(1, NODE, None)).0, [], "it is known");
    }

    /// H-89
    #[test]
    fn the_ledger_closes_with_the_last_report_and_the_last_proof_of_absence() {
        let mut world = World::terminated();
        world.give(seen(1, NODE, None));
        assert!(!world.of(ONE).ledger_closed, "its epoch is open");
        let (facts, _) = world.make(world.report(|usage| usage.closing = true));
        assert!(facts.contains(&Fact::LedgerClosed { transfer: ONE }));
        let mut world = World::terminated();
        world.give(world.report(|usage| usage.closing = true));
        assert!(!world.of(ONE).ledger_closed, "its sandbox may be there");
        world.give(seen(1, NODE, Some(1)));
        assert!(!world.of(ONE).ledger_closed, "its files may be there");
        let (facts, _) = world.make(seen(1, NODE, None));
        assert!(facts.contains(&Fact::LedgerClosed { transfer: ONE }));
    }
}
