//! Wake: a resting session is to run again; its node then re-claims.

use handoff_protocol::{SessionId, Status};

use crate::fact::Fact;
use crate::grid::CommandKind;
use crate::refusal::Refusal;

use super::{Case, Decision};

pub(super) fn decide(case: &Case<'_>, session: SessionId) -> Result<Decision, Refusal> {
    let session = case.session(session)?;
    let busy = |why| Refusal::busy(session, why);
    let live = session.live.ok_or(busy("it has no live transfer"))?;
    let (_, found) = case.transfer(live)?;
    if found.status != Status::Active {
        return Err(Refusal::WrongStatus { transfer: live, found: found.status, command: CommandKind::Wake });
    }
    if !found.resting {
        return Ok(Decision::done([]));
    }
    if case.final_is_pending(session) {
        return Err(busy("it stopped for a transfer that is pending"));
    }
    Ok(Decision::done([Fact::Woken { transfer: live, at: case.now }]))
}

#[cfg(test)]
mod tests {
    use handoff_protocol::{ErrorCode, Timestamp};

    use crate::grid::CommandKind;
    use crate::machine::world::{MINUTE, ONE, World, incarnation};
    use crate::state::Epoch;
    use crate::{Command, Refusal};

    #[test]
    fn given_resting_when_woken_then_its_node_re_claims_in_a_new_epoch() {
        let mut world = World::resting();
        let wake = world.command(CommandKind::Wake, ONE);
        world.give(wake.clone());
        assert!(!world.of(ONE).resting);
        assert_eq!(world.code(&world.renew()), ErrorCode::LeaseOver, "the one that rested is gone");
        assert_eq!(world.make(wake).0, [], "it is awake");
        world.give(world.reclaim(incarnation(2)));
        assert_eq!(world.epoch(), Epoch(3));
    }

    /// H-70: the minute counts from when it should run again.
    #[test]
    fn one_that_rested_for_long_stays_with_its_node_when_it_is_woken() {
        let mut world = World::resting().later(60 * MINUTE);
        world.give(world.command(CommandKind::Wake, ONE));
        let woken = world.now;
        let reassign = Command::Reassign { transfer: ONE, serving_since: Timestamp::from_unix_ms(0) };
        let at = woken.plus_ms(MINUTE);
        assert_eq!(world.refuse(&reassign), Refusal::TooEarly { transfer: ONE, at });
        let mut lost = world.clone().later(MINUTE);
        lost.give(reassign);
        world.give(world.reclaim(incarnation(2)));
    }

    #[test]
    fn without_a_live_transfer_there_is_nothing_to_wake() {
        for world in [World::pushed(), World::terminated()] {
            assert_eq!(world.code(&world.command(CommandKind::Wake, ONE)), ErrorCode::SessionBusy);
        }
        let insolvent = World::insolvent();
        assert_eq!(insolvent.code(&insolvent.command(CommandKind::Wake, ONE)), ErrorCode::WrongStatus);
    }
}
