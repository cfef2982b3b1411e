//! What lasts: time, the revision, and what projects may see of each other.

use std::time::Duration;

use handoff_core::command::Stage;
use handoff_core::ledger::{Envelope, Filter};
use handoff_core::{Command, Refusal};
use handoff_protocol::ErrorCode;

use crate::contract::World;
use crate::contract::world::{fresh, refusal};

/// The store's time never steps back, not even over a restart, and goes on from where it was.
pub async fn time_never_steps_back(world: &World) {
    let moved = world.staged().await;
    let before = world.ledger().now().await.expect("the store answers");
    world.clock.set(handoff_protocol::Timestamp::from_unix_ms(before.unix_ms() - 3_600_000));
    assert_eq!(world.ledger().now().await.expect("the store answers"), before);
    world.accept(moved.terminate()).await;
    world.reopen().await;
    let after = world.ledger().now().await.expect("the store answers");
    assert!(after >= before, "{after} after {before}");
    if world.is_durable() {
        world.clock.advance(5);
        assert_eq!(world.ledger().now().await.expect("the store answers"), after.plus_ms(5));
    }
}

/// Whoever waits for a change is woken by it; a renewal is none.
pub async fn a_change_wakes_whoever_waits(world: &World) {
    let moved = world.active().await;
    let ledger = world.ledger();
    let seen = ledger.revision();
    world.accept(moved.renew()).await;
    assert_eq!(ledger.revision(), seen, "a renewal moves a deadline and nothing else");
    assert_eq!(ledger.changed(seen - 1).await, seen, "what was changed before is known at once");
    let waiting = {
        let ledger = world.ledger();
        tokio::spawn(async move { ledger.changed(seen).await })
    };
    world.accept(moved.record_spend(1)).await;
    let woken = tokio::time::timeout(Duration::from_secs(10), waiting).await.expect("it is woken");
    assert!(woken.expect("the task ends well") > seen);
    drop(ledger);
    let last = world.ledger().revision();
    world.clock.advance(10);
    world.reopen().await;
    if world.is_durable() {
        assert!(world.ledger().revision() > last, "nodes ignore what is not newer");
    }
}

/// What belongs to another project is not there.
/// H-100
pub async fn projects_do_not_see_each_other(world: &World) {
    let moved = world.active().await;
    let elsewhere = fresh();
    let ledger = world.ledger();
    let transfer = ledger.transfer(elsewhere, moved.transfer).await.expect("the store answers");
    assert_eq!(transfer, None);
    assert_eq!(ledger.session(elsewhere, moved.session).await.expect("the store answers"), None);
    assert!(ledger.sessions(elsewhere, None, 0).await.expect("the store answers").is_empty());
    let all = ledger.transfers(elsewhere, &Filter::default()).await.expect("the store answers");
    assert!(all.is_empty());
    assert!(ledger.events(elsewhere, moved.transfer, 0, 0).await.expect("the store answers").is_empty());
    assert!(ledger.audit(elsewhere, moved.transfer, 0, 0).await.expect("the store answers").is_empty());
    assert!(ledger.nodes(elsewhere).await.expect("the store answers").is_empty());
    let end = Envelope { project: elsewhere, ..world.envelope(moved.terminate()) };
    let answer = ledger.apply(vec![end]).await.remove(0);
    assert_eq!(refusal(&answer), Some(ErrorCode::NotFound));
}

/// Nobody opens a session in a project that is not his.
pub async fn a_session_is_opened_in_its_callers_project(world: &World) {
    let Command::Stage(stage) = world.stage(&world.fresh_move()) else { unreachable!("a stage is one") };
    let stage = Stage { project: fresh(), ..stage };
    let refused = world.refuse(Command::Stage(stage.clone())).await;
    assert_eq!(refused, Refusal::NoSession { session: stage.session });
}
