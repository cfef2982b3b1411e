//! Refresh: a pending transfer gets another snapshot, or its live holder is asked for the final one.
//!
//! A draft refresh after a final takes the mark away again: that is how a source goes on without returning.

use crate::command::{Refresh, RefreshBy};
use crate::fact::Fact;
use crate::grid::CommandKind;
use crate::policy::Rule;
use crate::refusal::Refusal;
use crate::reply::Reply;
use crate::state::Session;
use crate::transfer::{FinalMark, Ground, Transfer};

use super::stage::is_holder;
use super::{Case, Decision, Holding};

pub(super) fn decide(case: &Case<'_>, refresh: &Refresh) -> Result<Decision, Refusal> {
    let (session, transfer) = case.legal(CommandKind::Refresh, refresh.transfer)?;
    let named = refresh
        .expected_epoch
        .ok_or(Refusal::EpochMissing { session: session.id, present: session.epoch })?;
    super::check_epoch(case, session, named)?;
    match refresh.snapshot {
        Some(snapshot) => {
            check_giver(case, session, refresh, named)?;
            let mark =
                refresh.is_final.then_some(FinalMark { epoch: session.epoch, ground: Ground::Quiesced });
            let known = transfer.snapshot == snapshot && transfer.mark == mark;
            let fact = Fact::Refreshed { transfer: transfer.id, snapshot, mark, by_holder: true };
            let facts = if known { Vec::new() } else { vec![fact] };
            Ok(Decision::new(facts, Reply::Staged { transfer: transfer.id }))
        }
        None => {
            let facts = request_final(case, session, transfer)?;
            Ok(Decision::new(facts, Reply::Staged { transfer: transfer.id }))
        }
    }
}

/// Only the holder may give a snapshot: the source itself, or the live incarnation through its node.
fn check_giver(
    case: &Case<'_>,
    session: &Session,
    refresh: &Refresh,
    epoch: crate::state::Epoch,
) -> Result<(), Refusal> {
    if !case.keeps(Rule::FinalOnlyFromHolder) {
        return Ok(());
    }
    let why = "only its holder can give a snapshot";
    match &refresh.by {
        RefreshBy::Principal(principal) if is_holder(session, principal) => Ok(()),
        RefreshBy::Principal(_) => Err(Refusal::busy(session, why)),
        RefreshBy::Incarnation(node, incarnation) => {
            let live = session.live.and_then(|live| case.state.transfers.get(&live));
            let live = live.ok_or(Refusal::busy(session, why))?;
            let holding = Holding { node: *node, epoch, incarnation: Some(*incarnation) };
            super::check_holder(case, session, live, holding)
        }
    }
}

/// The live holder's next renewal will answer `quiesce`; its node then refreshes with the final. One that rests
/// has stopped already, with its checkpoint accepted.
fn request_final(case: &Case<'_>, session: &Session, pending: &Transfer) -> Result<Vec<Fact>, Refusal> {
    let transfer = pending.id;
    let Some(live) = session.live.and_then(|live| case.state.transfers.get(&live)) else {
        let why = "no live destination holds it: a source gives its own final snapshot";
        return Err(Refusal::busy(session, why));
    };
    match session.last_snapshot {
        Some(accepted) if live.resting && !pending.is_final(session.epoch) => {
            let mark = Some(FinalMark { epoch: session.epoch, ground: Ground::LastAccepted });
            Ok(vec![Fact::Refreshed { transfer, snapshot: accepted.digest, mark, by_holder: false }])
        }
        Some(_) if live.resting || pending.final_requested => Ok(Vec::new()),
        Some(_) | None => Ok(vec![Fact::FinalRequested { transfer }]),
    }
}

#[cfg(test)]
mod tests {
    use handoff_protocol::node::LeaseCommand;
    use handoff_protocol::{ErrorCode, Status};

    use crate::command::Refresh;
    use crate::grid::CommandKind;
    use crate::machine::world::{MINUTE, ONE, TWO, World, digest, incarnation};
    use crate::state::{Epoch, Standing};
    use crate::transfer::{FinalMark, Ground};
    use crate::{Command, Reply};

    const QUIESCED: Option<FinalMark> = Some(FinalMark { epoch: Epoch(1), ground: Ground::Quiesced });

    #[test]
    fn a_draft_becomes_final_when_its_source_stopped_and_a_draft_again_when_it_goes_on() {
        let mut world = World::staged();
        world.give(world.refresh(ONE, "stopped", true));
        assert_eq!((world.of(ONE).snapshot, world.of(ONE).mark), (digest("stopped"), QUIESCED));
        assert_eq!(world.session().last_snapshot.map(|last| last.standing), Some(Standing::Final));
        world.give(world.refresh(ONE, "working", false));
        assert_eq!((world.of(ONE).snapshot, world.of(ONE).mark), (digest("working"), None));
        assert_eq!(world.session().last_snapshot.map(|last| last.standing), Some(Standing::Draft));
        assert_eq!(world.status(ONE), Status::Staged);
    }

    #[test]
    fn the_same_final_again_changes_nothing_and_leaves_an_open_push() {
        let mut world = World::provisioned();
        world.give(world.command(CommandKind::Push, ONE));
        assert_eq!(world.make(world.refresh(ONE, "final", true)).0, []);
        world.give(world.command(CommandKind::Receipt, ONE));
    }

    #[test]
    fn an_open_push_is_void() {
        let mut world = World::provisioned();
        world.give(world.command(CommandKind::Push, ONE));
        world.give(world.refresh(ONE, "later", true));
        assert_eq!((&world.of(ONE).push, world.of(ONE).receipt), (&None, false));
    }

    /// H-38
    #[test]
    fn only_the_holder_gives_snapshots_and_it_names_its_epoch() {
        let world = World::staged();
        let Command::Refresh(refresh) = world.refresh(ONE, "other", true) else {
            unreachable!("it refreshes")
        };
        let stranger = super::RefreshBy::Principal("stranger".to_owned());
        let by_other = Refresh { by: stranger, ..refresh.clone() };
        assert_eq!(world.code(&Command::Refresh(by_other)), ErrorCode::SessionBusy);
        let stale = Refresh { expected_epoch: Some(Epoch(2)), ..refresh.clone() };
        assert_eq!(world.code(&Command::Refresh(stale)), ErrorCode::StaleEpoch);
        let silent = Refresh { expected_epoch: None, ..refresh };
        assert_eq!(world.code(&Command::Refresh(silent)), ErrorCode::StaleEpoch);
        assert_eq!(world.code(&world.ask_for_final_of(ONE)), ErrorCode::SessionBusy, "a source is not asked");
    }

    /// H-71
    #[test]
    fn a_live_holder_that_is_asked_stops_for_its_successor_and_gives_the_final() {
        let mut world = World::hopping();
        world.give(world.ask_for_final());
        assert_eq!(world.make(world.ask_for_final()).0, [], "it was asked");
        let renewed = world.give(world.renew());
        assert_eq!(renewed, Reply::Renewed { command: LeaseCommand::Quiesce, for_transfer: Some(TWO) });
        world.give(world.final_of_holder("hop"));
        let mark = Some(FinalMark { epoch: Epoch(2), ground: Ground::Quiesced });
        assert_eq!((world.of(TWO).snapshot, world.of(TWO).mark), (digest("hop"), mark));
        assert_eq!(world.session().last_snapshot.map(|last| last.digest), Some(digest("hop")));
    }

    #[test]
    fn a_former_incarnation_gives_no_final() {
        let mut world = World::hopping();
        let late = world.final_of_holder("late");
        world = world.later(MINUTE);
        world.give(world.reclaim(incarnation(5)));
        assert_eq!(world.code(&late), ErrorCode::StaleEpoch);
        assert_eq!(world.code(&world.refresh(TWO, "old source", true)), ErrorCode::SessionBusy);
    }

    #[test]
    fn what_rests_has_stopped_already() {
        let mut world = World::resting();
        world.give(world.resume(TWO));
        assert_eq!(world.of(TWO).mark, None);
        world.give(world.ask_for_final());
        let mark = Some(FinalMark { epoch: Epoch(2), ground: Ground::LastAccepted });
        assert_eq!(world.of(TWO).mark, mark);
        assert_eq!(world.code(&world.command(CommandKind::Wake, ONE)), ErrorCode::SessionBusy);
        for kind in [CommandKind::Provision, CommandKind::Push, CommandKind::Receipt] {
            world.give(world.command(kind, TWO));
        }
        world.give(world.command(CommandKind::Activate, TWO));
        world.give(world.claim(TWO, incarnation(2)));
        assert_eq!((world.status(ONE), world.status(TWO)), (Status::Terminated, Status::Active));
    }
}
