//! Stage: a snapshot starts a transfer. The source goes on working unless it says that it stopped.

use crate::command::Stage;
use crate::fact::Fact;
use crate::policy::Rule;
use crate::refusal::Refusal;
use crate::reply::Reply;
use crate::state::{Accepted, Epoch, Holder, Session, Standing};
use crate::transfer::{FinalMark, Ground};

use super::{Case, Decision};

pub(super) fn decide(case: &Case<'_>, stage: &Stage) -> Result<Decision, Refusal> {
    if case.state.transfers.contains_key(&stage.transfer) {
        return Err(Refusal::TransferExists { transfer: stage.transfer });
    }
    match &case.state.session {
        Some(session) if session.id == stage.session => known(case, stage, session),
        Some(_) | None => new(case, stage),
    }
}

/// A session that nobody has staged before: whoever stages it holds it.
fn new(case: &Case<'_>, stage: &Stage) -> Result<Decision, Refusal> {
    let no_session = Refusal::NoSession { session: stage.session };
    if stage.expected_epoch.is_some_and(|epoch| epoch != Epoch::FIRST) {
        return Err(no_session);
    }
    let snapshot = stage.snapshot.filter(|_| !stage.abandon_source).ok_or(no_session)?;
    let mark = stage.is_final.then_some(FinalMark { epoch: Epoch::FIRST, ground: Ground::Quiesced });
    let opened = Fact::SessionOpened {
        session: stage.session,
        project: stage.project,
        principal: stage.principal.clone(),
        labels: stage.labels.clone(),
    };
    Ok(staged(case, stage, vec![opened], snapshot, mark, true))
}

fn known(case: &Case<'_>, stage: &Stage, session: &Session) -> Result<Decision, Refusal> {
    let busy = |why| Refusal::busy(session, why);
    let named =
        stage.expected_epoch.ok_or(Refusal::EpochMissing { session: session.id, present: session.epoch })?;
    super::check_epoch(case, session, named)?;
    if session.pending.is_some() {
        return Err(busy("it has a pending transfer"));
    }
    if stage.abandon_source && matches!(session.holder, Holder::Source { .. }) {
        return abandoned(case, stage, session);
    }
    match stage.snapshot {
        Some(snapshot) => {
            let by_holder = is_holder(session, &stage.principal);
            if !by_holder && case.keeps(Rule::FinalOnlyFromHolder) {
                return Err(busy(
                    "only its holder can give a snapshot; leave it out to use the last accepted one",
                ));
            }
            let ground = Ground::Quiesced;
            let mark = stage.is_final.then_some(FinalMark { epoch: session.epoch, ground });
            Ok(staged(case, stage, Vec::new(), snapshot, mark, true))
        }
        None => {
            let accepted = session.last_snapshot.ok_or(busy("it has no snapshot yet"))?;
            let mark = resume_mark(case, session, accepted, stage.is_final)?;
            let mut decision = staged(case, stage, Vec::new(), accepted.digest, mark, false);
            if stage.is_final && mark.is_none() {
                decision.facts.push(Fact::FinalRequested { transfer: stage.transfer });
            }
            Ok(decision)
        }
    }
}

/// Gives up the source that holds the session and goes on from its last snapshot, in one decision: a source is
/// not given up for a transfer that is then refused. A session that no source holds needs none of this.
fn abandoned(case: &Case<'_>, stage: &Stage, session: &Session) -> Result<Decision, Refusal> {
    let busy = |why| Refusal::busy(session, why);
    if stage.snapshot.is_some() {
        return Err(busy("whoever gives up its source goes on from its last snapshot and gives none"));
    }
    let accepted = session.last_snapshot.ok_or(busy("it has no snapshot yet"))?;
    let given_up = super::abandon_source::given_up(session)?;
    let mark = FinalMark { epoch: session.epoch.next(), ground: Ground::LastAccepted };
    Ok(staged(case, stage, vec![given_up], accepted.digest, Some(mark), false))
}

/// What the last accepted snapshot is worth for a new transfer: a draft while its holder is live, final when the
/// holder's transfer is over or its source was abandoned, and the source's own final while a source holds it. A
/// live one that rests has stopped, if its final is wanted.
fn resume_mark(
    case: &Case<'_>,
    session: &Session,
    accepted: Accepted,
    wanted: bool,
) -> Result<Option<FinalMark>, Refusal> {
    let mark = Some(FinalMark { epoch: session.epoch, ground: Ground::LastAccepted });
    let live = session.live.and_then(|live| case.state.transfers.get(&live));
    match session.holder {
        Holder::Incarnation { .. } if live.is_some_and(|live| live.resting && wanted) => Ok(mark),
        Holder::Incarnation { .. } if live.is_some() => Ok(None),
        Holder::Incarnation { .. } | Holder::None => Ok(mark),
        Holder::Source { .. } => {
            let own_final = accepted.standing == Standing::Final && accepted.epoch == session.epoch;
            if !own_final && case.keeps(Rule::ResumeNeedsFinal) {
                let why = "its source may still be working: have it stop, or abandon it";
                return Err(Refusal::busy(session, why));
            }
            Ok(mark)
        }
    }
}

/// Whether this principal is the source that holds the session.
pub(super) fn is_holder(session: &Session, principal: &str) -> bool {
    matches!(&session.holder, Holder::Source { principal: holder } if holder == principal)
}

fn staged(
    case: &Case<'_>,
    stage: &Stage,
    mut facts: Vec<Fact>,
    snapshot: handoff_protocol::Digest,
    mark: Option<FinalMark>,
    by_holder: bool,
) -> Decision {
    facts.push(Fact::Staged {
        transfer: stage.transfer,
        snapshot,
        mark,
        by_holder,
        at: case.now,
        expires_at: case.now.plus_ms(case.policy.time_to_live_ms),
    });
    Decision::new(facts, Reply::Staged { transfer: stage.transfer })
}

#[cfg(test)]
mod tests {
    use handoff_protocol::{ErrorCode, SessionId, Status};

    use crate::Command;
    use crate::command::Stage;
    use crate::grid::CommandKind;
    use crate::machine::world::{MINUTE, ONE, SOURCE, TWO, World, digest};
    use crate::state::{Accepted, Epoch, Holder, Standing};
    use crate::transfer::{FinalMark, Ground};

    fn stage(command: Command) -> Stage {
        match command {
            Command::Stage(stage) => stage,
            other => unreachable!("{other:?}"),
        }
    }

    #[test]
    fn given_no_session_when_staged_then_it_begins_in_epoch_one_held_by_its_source() {
        let world = World::staged();
        let session = world.session();
        assert_eq!((session.epoch, session.pending, session.live), (Epoch(1), Some(ONE), None));
        assert_eq!(session.holder, Holder::Source { principal: SOURCE.to_owned() });
        let draft = Accepted { digest: digest("draft"), epoch: Epoch(1), standing: Standing::Draft };
        assert_eq!(session.last_snapshot, Some(draft));
        let found = world.of(ONE);
        assert_eq!(
            (found.status, found.mark, found.expires_at),
            (Status::Staged, None, world.now.plus_ms(30 * MINUTE))
        );
        assert_eq!(world.events(ONE), ["snapshot_created"]);
    }

    #[test]
    fn a_new_session_needs_a_snapshot_and_no_other_epoch_than_the_first() {
        let world = World::new();
        let new = stage(world.stage(ONE, "draft", false));
        let without = Command::Stage(Stage { snapshot: None, ..new.clone() });
        assert_eq!(world.code(&without), ErrorCode::NotFound);
        let known = Command::Stage(Stage { expected_epoch: Some(Epoch(2)), ..new });
        assert_eq!(world.code(&known), ErrorCode::NotFound);
    }

    /// H-6
    #[test]
    fn a_known_session_has_one_pending_transfer_and_its_epoch_is_named() {
        let mut world = World::staged();
        let next = stage(world.stage(TWO, "next", false));
        assert_eq!(world.code(&Command::Stage(next.clone())), ErrorCode::SessionBusy);
        world.give(world.command(CommandKind::Terminate, ONE));
        let silent = Stage { expected_epoch: None, ..next.clone() };
        assert_eq!(world.code(&Command::Stage(silent)), ErrorCode::StaleEpoch);
        let stale = Stage { expected_epoch: Some(Epoch(2)), ..next.clone() };
        assert_eq!(world.code(&Command::Stage(stale)), ErrorCode::StaleEpoch);
        world.give(Command::Stage(next));
    }

    /// H-38
    #[test]
    fn a_stranger_and_a_former_source_give_no_snapshot() {
        let mut world = World::staged();
        world.give(world.command(CommandKind::Terminate, ONE));
        let next = stage(world.stage(TWO, "next", true));
        let stranger = Stage { principal: "stranger".to_owned(), ..next };
        assert_eq!(world.code(&Command::Stage(stranger)), ErrorCode::SessionBusy);
        let active = World::active();
        assert_eq!(active.code(&active.stage(TWO, "old", true)), ErrorCode::SessionBusy);
    }

    /// H-61
    /// H-38
    #[test]
    fn a_session_held_by_its_source_is_resumed_from_that_source_s_final_only() {
        let mut draft = World::staged();
        draft.give(draft.command(CommandKind::Terminate, ONE));
        assert_eq!(draft.code(&draft.resume(TWO)), ErrorCode::SessionBusy);
        let mut stopped = World::expired();
        stopped.give(stopped.resume(TWO));
        let mark = Some(FinalMark { epoch: Epoch(1), ground: Ground::LastAccepted });
        assert_eq!((stopped.of(TWO).snapshot, stopped.of(TWO).mark), (digest("final"), mark));
    }

    #[test]
    fn a_successor_of_a_live_transfer_starts_as_a_draft_of_its_last_checkpoint() {
        let mut world = World::active();
        world.give(world.checkpoint("last"));
        world.give(world.resume(TWO));
        assert_eq!((world.of(TWO).snapshot, world.of(TWO).mark), (digest("last"), None));
        let mut over = World::terminated();
        over.give(over.resume(TWO));
        let mark = Some(FinalMark { epoch: Epoch(2), ground: Ground::LastAccepted });
        assert_eq!(over.of(TWO).mark, mark);
    }

    #[test]
    fn staged_as_final_a_live_session_is_asked_to_stop_at_once() {
        let mut world = World::active();
        let resume = stage(world.resume(TWO));
        world.give(Command::Stage(Stage { is_final: true, ..resume }));
        assert!(world.of(TWO).final_requested && world.of(TWO).mark.is_none());
        let mut resting = World::resting();
        let resume = stage(resting.resume(TWO));
        resting.give(Command::Stage(Stage { is_final: true, ..resume }));
        assert!(resting.of(TWO).is_final(resting.epoch()), "it has stopped already");
    }

    /// H-3, H-61: the source is given up and its session staged, or neither.
    #[test]
    fn a_source_is_given_up_with_the_stage_that_goes_on_without_it_or_not_at_all() {
        let mut world = World::staged();
        let resume = |world: &World| Stage { abandon_source: true, ..stage(world.resume(TWO)) };
        assert_eq!(world.code(&Command::Stage(resume(&world))), ErrorCode::SessionBusy, "one is pending");
        world.give(world.command(CommandKind::Terminate, ONE));
        let given_up = resume(&world);
        for (change, code) in [
            (Stage { expected_epoch: None, ..given_up.clone() }, ErrorCode::StaleEpoch),
            (Stage { expected_epoch: Some(Epoch(9)), ..given_up.clone() }, ErrorCode::StaleEpoch),
            (Stage { snapshot: Some(digest("mine")), ..given_up.clone() }, ErrorCode::SessionBusy),
            (Stage { transfer: ONE, ..given_up.clone() }, ErrorCode::IdempotencyConflict),
        ] {
            assert_eq!(world.code(&Command::Stage(change)), code);
        }
        let (facts, _) = world.make(Command::Stage(given_up));
        assert_eq!((facts.len(), world.epoch(), &world.session().holder), (2, Epoch(2), &Holder::None));
        let mark = Some(FinalMark { epoch: Epoch(2), ground: Ground::LastAccepted });
        assert_eq!((world.of(TWO).snapshot, world.of(TWO).mark), (digest("draft"), mark));
    }

    #[test]
    fn where_no_source_holds_the_session_none_is_given_up() {
        let mut world = World::active();
        let resume = stage(world.resume(TWO));
        let (facts, _) = world.make(Command::Stage(Stage { abandon_source: true, ..resume }));
        assert_eq!((facts.len(), world.epoch()), (1, Epoch(2)));
        let new = World::new();
        let first = Stage { abandon_source: true, ..stage(new.stage(ONE, "draft", false)) };
        assert_eq!(new.code(&Command::Stage(first)), ErrorCode::NotFound);
    }

    #[test]
    fn a_transfer_s_id_is_used_once() {
        let mut world = World::staged();
        world.give(world.command(CommandKind::Terminate, ONE));
        assert_eq!(world.code(&world.stage(ONE, "again", false)), ErrorCode::IdempotencyConflict);
    }

    #[test]
    fn a_session_that_does_not_exist_and_a_transfer_that_does_are_told_apart() {
        let world = World::staged();
        let wake = Command::Wake { session: SessionId::from_u128(9) };
        assert_eq!(world.code(&wake), ErrorCode::NotFound);
        assert_eq!(world.code(&Command::Push { transfer: TWO, checksum: None }), ErrorCode::NotFound);
    }
}
