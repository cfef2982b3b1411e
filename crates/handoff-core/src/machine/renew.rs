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

/// Quiesced while a successor wants or has the final; frozen while insolvent; else running.
fn command(case: &Case<'_>, session: &Session, status: Status) -> (LeaseCommand, Option<TransferId>) {
    let successor = case.pending(session).filter(|pending| {
        let wanted = pending.final_requested && pending.status != Status::Pushed;
        wanted || pending.is_final(session.epoch)
    });
    match successor {
        Some(pending) => (LeaseCommand::Quiesce, Some(pending.id)),
        None if status == Status::Insolvent => (LeaseCommand::Freeze, None),
        None => (LeaseCommand::Run, None),
    }
}

#[cfg(test)]
mod tests {
    use handoff_protocol::ErrorCode;
    use handoff_protocol::node::{LeaseCommand, ObservedState};

    use crate::grid::CommandKind;
    use crate::machine::world::{MINUTE, ONE, OTHER_NODE, TWO, World, incarnation};
    use crate::state::{Epoch, Generation};
    use crate::{Command, Reply};

    fn told(world: &mut World) -> (LeaseCommand, Option<handoff_protocol::TransferId>) {
        match world.give(world.renew()) {
            Reply::Renewed { command, for_transfer } => (command, for_transfer),
            other => panic!("{other:?} is no answer to a renewal"),
        }
    }

    /// H-63
    #[test]
    fn a_renewal_counts_from_when_it_is_accepted() {
        let mut world = World::active().later(10_000);
        assert_eq!(told(&mut world), (LeaseCommand::Run, None));
        assert_eq!(world.session().lease_until, Some(world.now.plus_ms(30_000)));
    }

    /// H-66
    #[test]
    fn a_late_one_is_granted_if_nobody_else_claimed() {
        let mut world = World::active().later(MINUTE);
        assert_eq!(told(&mut world), (LeaseCommand::Run, None));
        let mut taken = World::active().later(MINUTE);
        let late = taken.renew();
        taken.give(taken.reclaim(incarnation(2)));
        assert_eq!(taken.code(&late), ErrorCode::StaleEpoch);
    }

    #[test]
    fn whoever_is_not_the_holder_is_refused() {
        let world = World::active();
        let with = |epoch, generation, number, node| {
            let incarnation = incarnation(number);
            world.code(&Command::Renew { transfer: ONE, node, epoch, generation, incarnation })
        };
        let node = world.of(ONE).assignment.expect("it has a node").node;
        assert_eq!(with(Epoch(1), Generation(1), 1, node), ErrorCode::StaleEpoch);
        assert_eq!(with(Epoch(2), Generation(2), 1, node), ErrorCode::StaleGeneration);
        assert_eq!(with(Epoch(2), Generation(1), 2, node), ErrorCode::StaleEpoch);
        assert_eq!(with(Epoch(2), Generation(1), 1, OTHER_NODE), ErrorCode::Forbidden);
    }

    #[test]
    fn one_that_is_gone_or_rests_does_not_renew() {
        let mut gone = World::active();
        gone.give(gone.observe(ObservedState::Absent));
        assert_eq!(gone.code(&gone.renew()), ErrorCode::LeaseOver);
        let resting = World::resting();
        assert_eq!(resting.code(&resting.renew()), ErrorCode::LeaseOver);
    }

    /// H-71
    /// H-37
    #[test]
    fn it_stops_from_when_its_final_is_wanted_until_the_successor_ends_unclaimed() {
        let mut world = World::hopping();
        assert_eq!(told(&mut world), (LeaseCommand::Run, None), "a draft stops nobody");
        world.give(world.ask_for_final());
        let stop = (LeaseCommand::Quiesce, Some(TWO));
        assert_eq!(told(&mut world), stop);
        world.give(world.final_of_holder("hop"));
        assert_eq!(told(&mut world), stop);
        for kind in [CommandKind::Push, CommandKind::Receipt, CommandKind::Activate] {
            world.give(world.command(kind, TWO));
            assert_eq!(told(&mut world), stop, "{kind}");
        }
        world.give(world.command(CommandKind::Terminate, TWO));
        assert_eq!(told(&mut world), (LeaseCommand::Run, None));
    }

    #[test]
    fn insolvency_freezes_and_a_successor_s_final_is_wanted_all_the_same() {
        let mut world = World::insolvent();
        assert_eq!(told(&mut world), (LeaseCommand::Freeze, None));
        world.give(world.resume(TWO));
        assert_eq!(told(&mut world), (LeaseCommand::Freeze, None));
        world.give(world.ask_for_final());
        assert_eq!(told(&mut world), (LeaseCommand::Quiesce, Some(TWO)));
    }
}
