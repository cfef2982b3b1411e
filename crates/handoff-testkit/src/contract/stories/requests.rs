//! Requests: the same one is answered again, another body under its id is a conflict, and a refused one is free.

use handoff_core::command::{Actor, Role};
use handoff_core::ledger::{Envelope, LedgerError, Request};
use handoff_protocol::{Digest, ErrorCode};

use crate::contract::World;
use crate::contract::world::{fresh, refusal};

/// The answer of the first time, also when the state has moved on and the store was opened anew.
pub async fn the_same_request_is_answered_again(world: &World) {
    let moved = world.fresh_move();
    let stage = world.envelope(world.stage(&moved));
    let first = world.apply(stage.clone()).await.expect("it is accepted");
    assert!(!first.replayed);
    let provision = world.envelope(world.provision(&moved));
    let provisioned = world.apply(provision.clone()).await.expect("it is accepted");
    world.reopen().await;
    for (envelope, reply) in [(stage, first.reply), (provision, provisioned.reply)] {
        let again = world.apply(envelope).await.expect("it is answered again");
        assert!(again.replayed);
        assert_eq!(again.reply, reply);
    }
    assert_eq!(world.events(moved.transfer).await.len(), 2);
}

/// Same id, another body: nothing is changed and nothing is answered in its place.
/// H-17
pub async fn another_body_under_a_known_id_is_a_conflict(world: &World) {
    let moved = world.fresh_move();
    let stage = world.envelope(world.stage(&moved));
    world.apply(stage.clone()).await.expect("it is accepted");
    let request = stage.request.expect("people's commands carry one");
    let other = Envelope {
        request: Some(Request { body: Digest::of(b"another body"), ..request }),
        ..world.envelope(world.stage(&world.fresh_move()))
    };
    let answer = world.apply(other).await;
    assert!(matches!(answer, Err(LedgerError::RequestConflict)), "{answer:?}");
    assert_eq!(world.transfers().await.len(), 1);
}

/// A refused request is not remembered: its id may be used again, with another body too.
/// H-18
pub async fn a_refused_request_id_may_be_used_again(world: &World) {
    let moved = world.provisioned().await;
    let early = world.envelope(world.activate(&moved));
    assert_eq!(refusal(&world.apply(early.clone()).await), Some(ErrorCode::WrongStatus));
    let moved = world.pushed_with(moved).await;
    let again = Envelope { request: early.request, ..world.envelope(world.activate(&moved)) };
    let applied = world.apply(again).await.expect("the id is free");
    assert!(!applied.replayed);
}

/// An id belongs to one principal and one command.
/// H-17
pub async fn a_request_id_is_its_callers_and_its_commands_own(world: &World) {
    let moved = world.fresh_move();
    let stage = world.envelope(world.stage(&moved));
    world.apply(stage.clone()).await.expect("it is accepted");
    let other_command =
        Envelope { request: stage.request.clone(), ..world.envelope(world.provision(&moved)) };
    assert!(!world.apply(other_command).await.expect("it is accepted").replayed);
    let elsewhere = world.fresh_move();
    let other_caller = Envelope {
        request: stage.request.clone(),
        actor: Actor { principal: "somebody else".to_owned(), role: Role::Source },
        ..world.envelope(world.stage(&elsewhere))
    };
    assert!(!world.apply(other_caller).await.expect("it is accepted").replayed);
}

/// Twice in one batch, and twenty times at once: applied once, answered each time.
pub async fn a_repetition_at_the_same_moment_is_applied_once(world: &World) {
    let moved = world.active().await;
    let spend = world.envelope(moved.record_spend(11));
    let answers = world.apply_all(vec![spend.clone(), spend.clone()]).await;
    let replayed: Vec<bool> =
        answers.into_iter().map(|answer| answer.expect("it is accepted").replayed).collect();
    assert_eq!(replayed, [false, true]);
    let spend = world.envelope(moved.record_spend(13));
    let answers = world.race(vec![spend; 20]).await;
    let first =
        answers.iter().filter(|answer| answer.as_ref().is_ok_and(|applied| !applied.replayed)).count();
    assert_eq!((first, answers.iter().all(Result::is_ok)), (1, true));
    assert_eq!(world.found(moved.transfer).await.transfer.spent().nano(), 24);
}

/// If-Match: the version is the one that the caller has seen, or nothing happens.
pub async fn a_version_that_has_moved_on_is_refused(world: &World) {
    let moved = world.active().await;
    let seen = world.found(moved.transfer).await.transfer.version;
    let at = |version, command| Envelope { expected_version: Some(version), ..world.envelope(command) };
    world.apply(at(seen, moved.record_spend(1))).await.expect("it is the present one");
    let answer = world.apply(at(seen, moved.record_spend(1))).await;
    let present = world.found(moved.transfer).await.transfer.version;
    assert!(present > seen);
    match answer {
        Err(LedgerError::VersionMismatch { present: named }) => assert_eq!(named, present),
        other => panic!("{other:?}"),
    }
    let unknown =
        Envelope { expected_version: Some(1), ..world.envelope(world.fresh_move().record_spend(1)) };
    assert_eq!(refusal(&world.apply(unknown).await), Some(ErrorCode::NotFound));
    assert_eq!(world.found(moved.transfer).await.transfer.spent().nano(), 1);
}

/// A new transfer takes an id that is free.
pub async fn the_id_of_a_transfer_is_taken_once(world: &World) {
    let moved = world.staged().await;
    world.accept(moved.terminate()).await;
    let again = crate::contract::Move { session: fresh(), ..world.fresh_move() };
    let again = crate::contract::Move { transfer: moved.transfer, ..again };
    let answer = world.apply(world.envelope(world.stage(&again))).await;
    assert!(matches!(answer, Err(LedgerError::RequestConflict)), "{answer:?}");
    assert_eq!(world.found(moved.transfer).await.transfer.session, moved.session);
}
