//! Checkpoint: a live destination stored a snapshot; the last one is what a re-claim or a resume starts from.
//!
//! After `terminated` the final one is still taken while its epoch is the session's and unclosed, unless a
//! successor is pending, which may already carry an earlier one as its final.
//!
//! A checkpoint names the accepted snapshot that it was taken after: one that was overtaken on its way must not
//! take the place of later work.

use handoff_protocol::{Digest, Status, TransferId};

use crate::fact::Fact;
use crate::grid::CommandKind;
use crate::refusal::Refusal;

use super::{Case, Decision, Holding};

pub(super) fn decide(
    case: &Case<'_>,
    transfer: TransferId,
    holding: Holding,
    (digest, follows): (Digest, Option<Digest>),
) -> Result<Decision, Refusal> {
    let (session, found) = case.legal(CommandKind::Checkpoint, transfer)?;
    super::check_holder(case, session, found, holding)?;
    let busy = |why| Refusal::busy(session, why);
    if case.final_is_pending(session) {
        return Err(busy("it stopped for a transfer that is pending"));
    }
    if found.status == Status::Terminated {
        let open = found.epochs.get(&holding.epoch).is_some_and(|account| account.closed.is_none());
        if !open {
            return Err(Refusal::LeaseOver);
        }
        if session.pending.is_some() || session.live.is_some() {
            return Err(busy("it has a successor"));
        }
    }
    let last = session.last_snapshot;
    if last.is_some_and(|last| last.digest == digest && last.epoch == session.epoch) {
        return Ok(Decision::done([]));
    }
    if let (Some(named), Some(last)) = (follows, last)
        && named != last.digest
    {
        return Err(Refusal::StaleSnapshot { transfer, present: last.digest });
    }
    Ok(Decision::done([Fact::Checkpointed { transfer, epoch: session.epoch, digest }]))
}

#[cfg(test)]
mod tests {
    use handoff_protocol::ErrorCode;

    use crate::Command;
    use crate::grid::CommandKind;
    use crate::machine::world::{MINUTE, NODE, ONE, OTHER_NODE, TWO, World, digest, incarnation};
    use crate::state::{Accepted, Epoch, Standing};

    fn last(world: &World) -> Accepted {
        world.session().last_snapshot.expect("it has a snapshot")
    }

    #[test]
    fn the_last_checkpoint_is_what_a_session_goes_on_from() {
        let mut world = World::active();
        world.give(world.checkpoint("first"));
        let first = Accepted { digest: digest("first"), epoch: Epoch(2), standing: Standing::Checkpoint };
        assert_eq!(last(&world), first);
        assert_eq!(world.make(world.checkpoint("first")).0, [], "it is known");
    }

    /// A checkpoint that was overtaken by a later one must not take its place: the work between them was accepted.
    #[test]
    fn an_overtaken_checkpoint_is_refused() {
        let mut world = World::active();
        let overtaken = world.checkpoint("first");
        world.give(overtaken.clone());
        world.give(world.checkpoint("second"));
        assert_eq!(world.code(&overtaken), ErrorCode::StaleSnapshot);
        assert_eq!(last(&world).digest, digest("second"));
    }

    #[test]
    fn only_the_holder_stores_one() {
        let mut world = World::active();
        let late = world.checkpoint("late");
        let with = |change: fn(&mut Command)| {
            let mut command = world.checkpoint("other");
            change(&mut command);
            world.code(&command)
        };
        let other_node = |command: &mut Command| {
            if let Command::Checkpoint { node, .. } = command {
                *node = OTHER_NODE;
            }
        };
        let other_incarnation = |command: &mut Command| {
            if let Command::Checkpoint { incarnation: found, .. } = command {
                *found = incarnation(9);
            }
        };
        assert_eq!(with(other_node), ErrorCode::Forbidden);
        assert_eq!(with(other_incarnation), ErrorCode::StaleEpoch);
        world = world.later(MINUTE);
        world.give(world.reclaim(incarnation(2)));
        assert_eq!(world.code(&late), ErrorCode::StaleEpoch, "a former incarnation");
    }

    /// H-72
    #[test]
    fn none_is_stored_while_a_successor_carries_the_final() {
        let mut world = World::hop_final();
        let late = world.checkpoint("after the final");
        assert_eq!(world.code(&late), ErrorCode::SessionBusy);
        world.give(world.command(CommandKind::Terminate, TWO));
        world.give(late);
    }

    /// H-88
    #[test]
    fn after_the_end_the_final_one_is_stored_while_the_epoch_is_open_and_nothing_follows() {
        let mut world = World::terminated();
        world.give(world.checkpoint("final"));
        let mut succeeded = world.clone();
        succeeded.give(succeeded.resume(TWO));
        assert_eq!(succeeded.code(&succeeded.checkpoint("too late")), ErrorCode::SessionBusy);
        world.give(world.report(|usage| usage.closing = true));
        assert_eq!(world.code(&world.checkpoint("too late")), ErrorCode::LeaseOver);
        assert_eq!(last(&world).digest, digest("final"));
        assert_eq!(world.of(ONE).assignment.map(|found| found.node), Some(NODE));
    }
}
