//! Lists: newest first, page by page, by what is known of them.

use handoff_core::ledger::Filter;
use handoff_protocol::{Status, TransferId};

use crate::contract::World;
use crate::contract::world::fresh;

async fn listed(world: &World, filter: Filter) -> Vec<TransferId> {
    let listed = world.ledger().transfers(world.project, &filter).await.expect("the store answers");
    listed.found.into_iter().map(|found| found.transfer.id).collect()
}

/// Each filter alone, and two together.
pub async fn transfers_are_found_by_what_is_known_of_them(world: &World) {
    let (staged, active, other) = (world.staged().await, world.active().await, world.active().await);
    world.accept(other.terminate()).await;
    let ids = [other.transfer, active.transfer, staged.transfer];
    assert_eq!(listed(world, Filter::default()).await, ids, "newest first");
    let live = Filter { statuses: vec![Status::Active, Status::Insolvent], ..Filter::default() };
    assert_eq!(listed(world, live).await, [active.transfer]);
    let session = Filter { session: Some(other.session), ..Filter::default() };
    assert_eq!(listed(world, session).await, [other.transfer]);
    let page = Filter { before: Some(other.transfer), limit: 1, ..Filter::default() };
    assert_eq!(listed(world, page).await, [active.transfer]);
    let unclosed = Filter { unclosed: true, ..Filter::default() };
    assert_eq!(listed(world, unclosed.clone()).await, ids);
    world.accept(other.report(1, 1).closing().send()).await;
    world.accept(other.place_gone()).await;
    assert_eq!(listed(world, unclosed).await, [active.transfer, staged.transfer]);
    let both = Filter {
        statuses: vec![Status::Terminated],
        node: Some(world.node),
        unclosed: true,
        ..Filter::default()
    };
    assert_eq!(listed(world, both).await, []);
}

/// A node sees what it is assigned, and what it was assigned until it proves that absent.
pub async fn a_node_sees_its_present_and_former_assignments(world: &World) {
    let mut moved = world.active().await;
    let of = |node| Filter { node: Some(node), ..Filter::default() };
    let (former, present) = (world.node, fresh());
    assert_eq!(listed(world, of(former)).await, [moved.transfer]);
    let began = world.clock.now();
    world.clock.advance(world.policy.lease_ms + world.policy.reassign_after_ms);
    world.register(present).await;
    world.accept(moved.reassign(began)).await;
    assert_eq!(listed(world, of(present)).await, [moved.transfer]);
    assert_eq!(listed(world, of(former)).await, [moved.transfer], "its sandbox may still be there");
    world.accept(moved.place_gone()).await;
    assert_eq!(listed(world, of(former)).await, []);
    moved.node = present;
    moved.generation = moved.generation.next();
    world.accept(moved.place_gone()).await;
    assert_eq!(listed(world, of(present)).await, [moved.transfer], "the present one stays its node's");
}

/// Sessions, newest first, page by page.
pub async fn sessions_come_page_by_page(world: &World) {
    let mut expected = Vec::new();
    for _ in 0..5 {
        expected.insert(0, world.staged().await.session);
    }
    let ledger = world.ledger();
    let mut found = Vec::new();
    loop {
        let before = found.last().copied();
        let page = ledger.sessions(world.project, before, 2).await.expect("the store answers");
        if page.is_empty() {
            break;
        }
        assert!(page.len() <= 2);
        found.extend(page.into_iter().map(|session| session.id));
    }
    assert_eq!(found, expected);
}

/// Events and audit rows, oldest first, after a cursor.
pub async fn events_come_after_a_cursor(world: &World) {
    let moved = world.active().await;
    let ledger = world.ledger();
    let all = world.events(moved.transfer).await;
    let page = ledger.events(world.project, moved.transfer, 1, 2).await.expect("the store answers");
    assert_eq!(page, all[1..3]);
    let after = ledger.events(world.project, moved.transfer, u64::MAX, 0).await.expect("the store answers");
    assert!(after.is_empty());
    let rows = ledger.audit(world.project, moved.transfer, 0, 0).await.expect("the store answers");
    let last = rows.last().expect("there are some").link;
    let before_last = rows[rows.len() - 2].link;
    let page = ledger.audit(world.project, moved.transfer, before_last, 9).await.expect("the store answers");
    assert_eq!(page.iter().map(|row| row.link).collect::<Vec<_>>(), [last]);
}

/// What is not there is none, not an error.
pub async fn what_is_unknown_is_not_there(world: &World) {
    let ledger = world.ledger();
    assert_eq!(ledger.transfer(world.project, fresh()).await.expect("the store answers"), None);
    assert_eq!(ledger.session(world.project, fresh()).await.expect("the store answers"), None);
    assert!(ledger.events(world.project, fresh(), 0, 0).await.expect("the store answers").is_empty());
    let digest = handoff_protocol::Digest::of(b"unknown");
    assert_eq!(ledger.snapshot(world.project, digest).await.expect("the store answers"), None);
}
