//! How a session goes its way.

use handoff_protocol::Status;

use crate::contract::World;

/// Staged, provisioned, pushed, active, insolvent, terminated: each step is there when it was answered.
pub async fn a_session_walks_through_every_status(world: &World) {
    let moved = world.staged().await;
    assert_eq!(world.status(moved.transfer).await, Status::Staged);
    let moved = world.accept_provision(moved).await;
    assert_eq!(world.status(moved.transfer).await, Status::Provisioned);
    let moved = world.pushed_with(moved).await;
    assert_eq!(world.status(moved.transfer).await, Status::Pushed);
    let moved = world.active_with(moved).await;
    assert_eq!(world.status(moved.transfer).await, Status::Active);
    world.spend_all(&moved).await;
    assert_eq!(world.status(moved.transfer).await, Status::Insolvent);
    world.clock.advance(world.policy.grace_ms);
    world.accept(moved.reap()).await;
    assert_eq!(world.status(moved.transfer).await, Status::Terminated);
}
