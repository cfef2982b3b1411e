//! Every command of the grid: kept once it is accepted, without effect once it is refused.

use std::collections::BTreeSet;

use handoff_core::command::{Command, RefreshBy};
use handoff_core::grid::CommandKind;
use handoff_core::state::{Epoch, Generation};
use handoff_protocol::node::ObservedState;
use handoff_protocol::{Digest, Status};

use crate::contract::world::{SOURCE, fresh};
use crate::contract::{Move, World};

/// Each command of the grid is accepted once, and its effect is there after opening the store anew.
pub async fn every_command_is_kept_once_it_is_accepted(world: &World) {
    let moved = before_the_claim(world).await;
    let moved = running(world, moved).await;
    a_hop_and_the_end(world, moved).await;
    a_source_comes_back(world).await;
    let every: BTreeSet<CommandKind> = CommandKind::ALL.iter().copied().collect();
    let missing: Vec<_> = every.difference(&world.accepted_kinds()).copied().collect();
    assert_eq!(missing, [], "the story leaves these out");
}

async fn step(world: &World, command: Command) {
    world.accept(command).await;
    world.check_kept().await;
}

async fn before_the_claim(world: &World) -> Move {
    let mut moved = world.staged().await;
    world.check_kept().await;
    moved.snapshot = Digest::of(b"a later one");
    let by = RefreshBy::Principal(SOURCE.to_owned());
    step(world, moved.refresh(by, Some(moved.snapshot), true)).await;
    let moved = world.accept_provision(moved).await;
    world.check_kept().await;
    step(world, moved.push()).await;
    let missing = vec!["env://local/KEY".to_owned()];
    let Command::Receipt { transfer, node, generation, digest, .. } = moved.receipt() else {
        unreachable!("a receipt is one")
    };
    step(world, Command::Receipt { transfer, node, generation, digest, missing }).await;
    step(world, moved.push()).await;
    step(world, moved.receipt()).await;
    let first = world.authorize(&moved).await;
    world.check_kept().await;
    step(world, moved.decline(first)).await;
    let second = world.authorize(&moved).await;
    step(world, moved.withdraw(second)).await;
    moved
}

async fn running(world: &World, moved: Move) -> Move {
    let mut moved = world.active_with(moved).await;
    world.check_kept().await;
    step(world, moved.renew()).await;
    step(world, moved.observe(ObservedState::Running)).await;
    step(world, moved.report(1, 5).send()).await;
    step(world, moved.record_spend(7)).await;
    step(world, moved.raise(20_000_000_000)).await;
    moved.snapshot = Digest::of(b"a checkpoint");
    step(world, moved.checkpoint(moved.snapshot)).await;
    step(world, moved.report(2, 6).closing().send()).await;
    step(world, moved.rest()).await;
    step(world, Command::Wake { session: moved.session }).await;
    moved.incarnation = fresh();
    world.take(moved.reclaim(), &mut moved).await;
    world.check_kept().await;
    moved
}

async fn a_hop_and_the_end(world: &World, mut moved: Move) {
    let (began, before) = (world.clock.now(), moved.clone());
    world.clock.advance(world.policy.lease_ms + world.policy.reassign_after_ms);
    moved.node = fresh();
    world.register(moved.node).await;
    moved.generation = moved.generation.next();
    step(world, moved.reassign(began)).await;
    moved.incarnation = fresh();
    world.take(moved.reclaim(), &mut moved).await;
    step(world, moved.report(1, 8).exhausted().send()).await;
    step(world, before.report(1, 9).closing().send()).await;
    world.spend_all_from(&moved, 2).await;
    world.check_kept().await;
    let successor = world.successor(&moved).await;
    let by = RefreshBy::Principal(SOURCE.to_owned());
    step(world, successor.refresh(by, None, true)).await;
    step(world, moved.terminate()).await;
    world.clock.advance(world.policy.lease_ms);
    step(world, Command::WriteOff { transfer: moved.transfer, epoch: moved.epoch }).await;
    step(world, moved.place_gone()).await;
    let former = Move { node: world.node, generation: Generation::FIRST, ..moved.clone() };
    step(world, former.place_gone()).await;
    assert!(world.found(moved.transfer).await.transfer.ledger_closed, "all is reported and proved");
}

async fn a_source_comes_back(world: &World) {
    let moved = world.staged().await;
    step(world, moved.terminate()).await;
    step(world, moved.take_back(fresh())).await;
    step(world, Command::AbandonSource { session: moved.session }).await;
    let other = world.staged().await;
    world.clock.advance(world.policy.time_to_live_ms);
    step(world, other.expire()).await;
    assert_eq!(world.status(other.transfer).await, Status::Expired);
}

/// Each command of the grid is refused once, and nothing is different.
/// H-3
pub async fn every_command_that_is_refused_changes_nothing(world: &World) {
    let moved = world.active().await;
    let before = (world.sessions().await, world.transfers().await, world.events(moved.transfer).await);
    for kind in CommandKind::ALL {
        world.refuse(out_of_place(world, *kind, &moved)).await;
    }
    let after = (world.sessions().await, world.transfers().await, world.events(moved.transfer).await);
    assert_eq!(before, after);
}

/// A command that is out of place while this one is active.
fn out_of_place(world: &World, kind: CommandKind, moved: &Move) -> Command {
    let other = Move { incarnation: fresh(), ..moved.clone() };
    let stale = Move { epoch: Epoch::FIRST, ..moved.clone() };
    match kind {
        CommandKind::Stage => world.stage(&Move { transfer: fresh(), ..moved.clone() }),
        CommandKind::Refresh => {
            moved.refresh(RefreshBy::Principal(SOURCE.to_owned()), Some(moved.snapshot), true)
        }
        CommandKind::Provision => world.provision(moved),
        CommandKind::Push => moved.push(),
        CommandKind::Receipt => moved.receipt(),
        CommandKind::Activate => world.activate(moved),
        CommandKind::Decline => moved.decline(fresh()),
        CommandKind::Withdraw => moved.withdraw(fresh()),
        CommandKind::Claim => other.claim(fresh()),
        CommandKind::Reclaim => other.reclaim(),
        CommandKind::Renew => stale.renew(),
        CommandKind::Checkpoint => stale.checkpoint(moved.snapshot),
        CommandKind::Rest => moved.rest(),
        CommandKind::Wake => Command::Wake { session: fresh() },
        CommandKind::ReportUsage => stale.report(1, 1).send(),
        CommandKind::RecordSpend => Move { transfer: fresh(), ..moved.clone() }.record_spend(1),
        CommandKind::RaiseBudget => moved.raise(1),
        CommandKind::Reassign => moved.reassign(world.clock.now()),
        CommandKind::Terminate => moved.reap(),
        CommandKind::Expire => moved.expire(),
        CommandKind::Return => moved.take_back(fresh()),
        CommandKind::AbandonSource => Command::AbandonSource { session: moved.session },
        CommandKind::Observe => Move { generation: Generation(9), ..moved.clone() }.place_gone(),
        CommandKind::WriteOff => Command::WriteOff { transfer: moved.transfer, epoch: Epoch(99) },
    }
}
