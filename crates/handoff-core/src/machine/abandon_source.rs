//! Abandon source: an orchestrator gives up a source that it cannot stop. What that source still does is no
//! longer the session; its last snapshot, draft or not, is what a resume starts from.

use handoff_protocol::SessionId;

use crate::fact::Fact;
use crate::refusal::Refusal;
use crate::state::{Holder, Session};

use super::{Case, Decision};

pub(super) fn decide(case: &Case<'_>, session: SessionId) -> Result<Decision, Refusal> {
    Ok(Decision::done([given_up(case.session(session)?)?]))
}

/// The fact that a session's source is given up, if it may be.
pub(super) fn given_up(session: &Session) -> Result<Fact, Refusal> {
    let busy = |why| Refusal::busy(session, why);
    if session.pending.is_some() {
        return Err(busy("it has a pending transfer: terminate it first"));
    }
    if session.live.is_some() {
        return Err(busy("it runs elsewhere: there is no source to abandon"));
    }
    match session.holder {
        Holder::Source { .. } => Ok(Fact::SourceAbandoned { epoch: session.epoch.next() }),
        Holder::Incarnation { .. } | Holder::None => Err(busy("no source holds it")),
    }
}

#[cfg(test)]
mod tests {
    use handoff_protocol::ErrorCode;

    use crate::grid::CommandKind;
    use crate::machine::world::{ONE, TWO, World, digest};
    use crate::state::{Epoch, Holder};
    use crate::transfer::{FinalMark, Ground};

    #[test]
    fn an_abandoned_source_holds_nothing_and_its_last_draft_can_be_resumed() {
        let mut world = World::staged();
        world.give(world.command(CommandKind::Terminate, ONE));
        assert_eq!(world.code(&world.resume(TWO)), ErrorCode::SessionBusy, "its source may still work");
        world.give(world.command(CommandKind::AbandonSource, ONE));
        assert_eq!((world.epoch(), &world.session().holder), (Epoch(2), &Holder::None));
        world.give(world.resume(TWO));
        let mark = Some(FinalMark { epoch: Epoch(2), ground: Ground::LastAccepted });
        assert_eq!((world.of(TWO).snapshot, world.of(TWO).mark), (digest("draft"), mark));
    }

    #[test]
    fn only_a_source_is_abandoned_and_only_while_nothing_else_is_under_way() {
        for world in [World::pushed(), World::active(), World::terminated()] {
            assert_eq!(world.code(&world.command(CommandKind::AbandonSource, ONE)), ErrorCode::SessionBusy);
        }
        let mut world = World::expired();
        world.give(world.command(CommandKind::AbandonSource, ONE));
        assert_eq!(world.code(&world.command(CommandKind::AbandonSource, ONE)), ErrorCode::SessionBusy);
    }

    #[test]
    fn an_abandoned_source_neither_returns_nor_gives_snapshots() {
        let mut world = World::expired();
        let late = world.give_back(7);
        world.give(world.command(CommandKind::AbandonSource, ONE));
        assert_eq!(world.code(&late), ErrorCode::SessionBusy);
        assert_eq!(world.code(&world.stage(TWO, "more work", true)), ErrorCode::SessionBusy);
    }
}
