//! Batches: each command is decided on what the ones before it led to, and answered on its own.

use handoff_core::command::Command;
use handoff_core::reply::Reply;
use handoff_protocol::request::Operation;
use handoff_protocol::{ErrorCode, Status};

use crate::contract::world::{fresh, refusal};
use crate::contract::{Move, World};

/// A whole move in one batch, from staging to the claim.
pub async fn a_batch_builds_on_itself(world: &World) {
    let moved = Move { node: world.node, ..world.fresh_move() };
    let token = world.token(moved.transfer, Operation::Activate);
    let authorization = token.id;
    let commands = [
        world.stage(&moved),
        world.provision(&moved),
        moved.push(),
        moved.receipt(),
        Command::Activate { transfer: moved.transfer, token },
        moved.claim(authorization),
    ];
    let answers = world.apply_all(commands.map(|command| world.envelope(command)).into()).await;
    let replies: Vec<_> = answers.into_iter().map(|answer| answer.expect("it is accepted").reply).collect();
    assert!(matches!(replies[5], Reply::Claimed { epoch, .. } if epoch.0 == 2), "{replies:?}");
    assert_eq!(world.status(moved.transfer).await, Status::Active);
    assert_eq!(world.events(moved.transfer).await.len(), 4);
}

/// A refused command in the middle is answered alone.
pub async fn one_refusal_does_not_stop_the_others(world: &World) {
    let (first, second) = (world.fresh_move(), world.fresh_move());
    let commands = [
        world.stage(&first),
        world.activate(&first),
        world.fresh_move().push(),
        world.stage(&second),
        first.terminate(),
    ];
    let answers = world.apply_all(commands.map(|command| world.envelope(command)).into()).await;
    let codes: Vec<_> = answers.iter().map(refusal).collect();
    assert_eq!(codes, [None, Some(ErrorCode::WrongStatus), Some(ErrorCode::NotFound), None, None]);
    assert_eq!(world.status(first.transfer).await, Status::Terminated);
    assert_eq!(world.status(second.transfer).await, Status::Staged);
}

/// A hundred sessions in one batch: a batch is not about one.
pub async fn many_sessions_in_one_batch(world: &World) {
    let moves: Vec<Move> = (0..100).map(|_| world.fresh_move()).collect();
    let stages = moves.iter().map(|moved| world.envelope(world.stage(moved)));
    let ends = moves.iter().step_by(2).map(|moved| world.envelope(moved.terminate()));
    let answers = world.apply_all(stages.chain(ends).collect()).await;
    assert!(answers.iter().all(|answer| refusal(answer).is_none()));
    for (place, moved) in moves.iter().enumerate() {
        let expected = if place % 2 == 0 { Status::Terminated } else { Status::Staged };
        assert_eq!(world.status(moved.transfer).await, expected);
    }
}

/// A successor's claim and a third stage in the batch in which the former one ends.
pub async fn a_whole_hop_in_one_batch(world: &World) {
    let first = world.active().await;
    let second = Move { transfer: fresh(), incarnation: fresh(), ..first.clone() };
    let token = world.token(second.transfer, Operation::Activate);
    let authorization = token.id;
    let third = Move { transfer: fresh(), epoch: first.epoch.next(), ..first.clone() };
    world.clock.advance(world.policy.lease_ms);
    let staged = world.stage_successor(&first, second.transfer);
    let first_commands =
        [staged, first.terminate(), world.provision(&second), second.push(), second.receipt()];
    let last_commands = [
        Command::Activate { transfer: second.transfer, token },
        second.claim(authorization),
        world.stage_successor(&third, third.transfer),
    ];
    let commands = first_commands.into_iter().chain(last_commands);
    let answers = world.apply_all(commands.map(|command| world.envelope(command)).collect()).await;
    let codes: Vec<_> = answers.iter().map(refusal).collect();
    assert_eq!(codes, [None; 8]);
    let session = world.session_of(first.transfer).await;
    assert_eq!((session.live, session.pending), (Some(second.transfer), Some(third.transfer)));
}

/// An authorisation that came to its end in the batch that gave the next one.
pub async fn two_authorizations_in_one_batch(world: &World) {
    let moved = world.pushed().await;
    let tokens = [(); 2].map(|()| world.token(moved.transfer, Operation::Activate));
    let ids = [tokens[0].id, tokens[1].id];
    let activates = tokens.map(|token| Command::Activate { transfer: moved.transfer, token });
    let [first, second] = activates;
    let commands = [first, moved.decline(ids[0]), second];
    let answers = world.apply_all(commands.map(|command| world.envelope(command)).into()).await;
    assert!(answers.iter().all(|answer| refusal(answer).is_none()));
    let found = world.found(moved.transfer).await.transfer;
    assert_eq!(found.open_authorization().map(|open| open.id), Some(ids[1]));
    assert_eq!(world.code(moved.claim(ids[0])).await, ErrorCode::LeaseOver);
}

/// No commands, no answers.
pub async fn an_empty_batch_is_answered_with_nothing(world: &World) {
    assert!(world.apply_all(Vec::new()).await.is_empty());
}
