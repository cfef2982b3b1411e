//! Rest: still active, without a sandbox, a lease or a charge, until somebody wakes it.

use handoff_protocol::TransferId;

use crate::fact::Fact;
use crate::grid::CommandKind;
use crate::refusal::Refusal;
use crate::state::Standing;
use crate::transfer::Transfer;

use super::{Case, Decision, Holding};

pub(super) fn decide(case: &Case<'_>, transfer: TransferId, holding: Holding) -> Result<Decision, Refusal> {
    let (session, found) = case.legal(CommandKind::Rest, transfer)?;
    super::check_holder(case, session, found, holding)?;
    if found.resting {
        return Ok(Decision::done([]));
    }
    let asked = |pending: &Transfer| pending.final_requested && !pending.is_final(session.epoch);
    if case.pending(session).is_some_and(asked) {
        return Err(Refusal::busy(session, "its successor waits for its final"));
    }
    let epoch = holding.epoch;
    let closed = found.epochs.get(&epoch).is_some_and(|account| account.closed.is_some());
    let checkpoint =
        session.last_snapshot.is_some_and(|last| last.standing != Standing::Draft && last.epoch == epoch);
    if !closed {
        return Err(Refusal::EpochOpen { transfer, epoch });
    }
    if !checkpoint {
        return Err(Refusal::busy(session, "it has no checkpoint of this epoch"));
    }
    Ok(Decision::done([Fact::Rested { transfer, at: case.now }]))
}

#[cfg(test)]
mod tests {
    use handoff_protocol::ErrorCode;

    use crate::grid::CommandKind;
    use crate::machine::world::{ONE, OTHER_NODE, TWO, World};
    use crate::state::Epoch;
    use crate::{Command, lease};

    fn closed() -> World {
        let mut world = World::active();
        world.give(world.checkpoint("rest"));
        world.give(world.report(|usage| usage.closing = true));
        world
    }

    /// H-73
    #[test]
    fn given_a_closed_epoch_and_a_checkpoint_then_it_rests_without_a_lease() {
        let mut world = closed();
        world.give(world.command(CommandKind::Rest, ONE));
        assert!(world.of(ONE).resting && lease::is_over(world.session(), world.now));
        assert_eq!(world.make(world.command(CommandKind::Rest, ONE)).0, [], "it rests");
        assert_eq!(world.code(&world.renew()), ErrorCode::LeaseOver);
    }

    #[test]
    fn an_open_epoch_does_not_rest_and_neither_does_a_stranger() {
        let world = World::active();
        assert_eq!(world.code(&world.command(CommandKind::Rest, ONE)), ErrorCode::WrongStatus);
        let world = closed();
        let node = world.of(ONE).assignment.expect("it has a node").node;
        let stale = Command::Rest { transfer: ONE, node, epoch: Epoch(1) };
        assert_eq!(world.code(&stale), ErrorCode::StaleEpoch);
        let stranger = Command::Rest { transfer: ONE, node: OTHER_NODE, epoch: world.epoch() };
        assert_eq!(world.code(&stranger), ErrorCode::Forbidden);
    }

    #[test]
    fn a_draft_successor_is_no_reason_to_stay_awake_and_a_wanted_final_is() {
        let mut world = closed();
        world.give(world.resume(TWO));
        let mut asked = world.clone();
        asked.give(asked.ask_for_final());
        assert_eq!(asked.code(&asked.command(CommandKind::Rest, ONE)), ErrorCode::SessionBusy);
        world.give(world.command(CommandKind::Rest, ONE));
    }

    #[test]
    fn a_final_is_as_good_as_a_checkpoint() {
        let mut world = World::hop_final();
        world.give(world.command(CommandKind::Terminate, TWO));
        world.give(world.report(|usage| usage.closing = true));
        world.give(world.command(CommandKind::Rest, ONE));
    }
}
