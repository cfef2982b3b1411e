//! Two adapters live through the same script, and stay the same.

use handoff_core::grid::CommandKind;
use handoff_core::ledger::{AuditRow, Envelope};
use handoff_protocol::{Digest, EventId, NodeId};
use handoff_testkit::contract::World;
use handoff_testkit::contract::script::{Script, pause_ms};
use handoff_testkit::contract::world::fresh;
use proptest::prelude::*;

use crate::stores::{MemoryStore, SqliteStore};

/// What must be the same: everything but the ids of events and the hashes over them.
async fn contents(world: &World) -> impl PartialEq + std::fmt::Debug + use<> {
    let mut books = Vec::new();
    for found in world.transfers().await {
        let id = found.transfer.id;
        let mut events = world.events(id).await;
        events.iter_mut().for_each(|event| event.event_id = EventId::from_u128(0));
        let audit = world.ledger().audit(world.project, id, 0, 0).await.expect("the store answers");
        let hash = Digest::of(b"");
        let audit: Vec<AuditRow> = audit.into_iter().map(|row| AuditRow { hash, ..row }).collect();
        books.push((found, events, audit));
    }
    let rooms = world.ledger().rooms(world.project).await.expect("the store answers");
    (world.sessions().await, books, rooms)
}

async fn live_through(choices: &[u32]) {
    let memory = World::start(Box::new(MemoryStore)).await;
    let sqlite = memory.twin(Box::new(SqliteStore::default())).await;
    let other: NodeId = fresh();
    memory.register(other).await;
    sqlite.register(other).await;
    let mut script = Script::default();
    for batch in choices.chunk_by(|a, b| (a ^ b) & 3 != 0) {
        let mut envelopes: Vec<Envelope> = Vec::new();
        for choice in batch {
            envelopes.push(script.next(&memory, *choice).await);
        }
        let here = memory.apply_all(envelopes.clone()).await;
        let there = sqlite.apply_all(envelopes).await;
        assert_eq!(format!("{here:?}"), format!("{there:?}"));
        memory.clock.advance(pause_ms(batch[0]));
        for node in [memory.node, other] {
            memory.ledger().see_node(node).await.expect("the store answers");
            sqlite.ledger().see_node(node).await.expect("the store answers");
        }
    }
    let expected = contents(&memory).await;
    assert_eq!(expected, contents(&sqlite).await);
    sqlite.reopen().await;
    assert_eq!(expected, contents(&sqlite).await);
    memory.finish().await;
    sqlite.finish().await;
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24 * handoff_testkit::rounds::rounds()))]

    #[test]
    fn memory_and_sqlite_stay_the_same_over_any_script(choices in prop::collection::vec(any::<u32>(), 1..160)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(live_through(&choices));
    }
}

/// A script that never gets anywhere would prove nothing.
#[tokio::test]
async fn a_long_script_has_every_command_accepted() {
    let world = World::start(Box::new(MemoryStore)).await;
    let other: NodeId = fresh();
    world.register(other).await;
    let mut script = Script::default();
    let mut choice = 2_463_534_242u32;
    for _ in 0..6_000 {
        // Marsaglia's xorshift: the same script every time.
        choice ^= choice << 13;
        choice ^= choice >> 17;
        choice ^= choice << 5;
        let envelope = script.next(&world, choice).await;
        let _ = world.apply(envelope).await;
        world.clock.advance(pause_ms(choice));
        world.ledger().see_node(world.node).await.expect("the store answers");
        world.ledger().see_node(other).await.expect("the store answers");
    }
    let accepted = world.accepted_kinds();
    let missing: Vec<_> = CommandKind::ALL.iter().filter(|kind| !accepted.contains(kind)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}
