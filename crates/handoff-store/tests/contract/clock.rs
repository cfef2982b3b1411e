//! The host's clock is stepped and the store opened anew: what was promised in time still holds.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use async_trait::async_trait;
use handoff_core::ledger::Ledger;
use handoff_core::{Policy, Refusal};
use handoff_protocol::Timestamp;
use handoff_store::{OpenOptions, Reading, SqliteLedger, StoreClock};
use handoff_testkit::clock::ManualClock;
use handoff_testkit::contract::{Store, World};
use tempfile::TempDir;

/// The clocks of a host: the test's clock is its boot time, and the one on the wall is off it.
struct Host {
    clock: ManualClock,
    wall_off_ms: Arc<AtomicI64>,
    boot: &'static str,
}

impl StoreClock for Host {
    fn boot_id(&self) -> &str {
        self.boot
    }

    fn read(&self) -> Reading {
        let now = self.clock.now().unix_ms();
        let wall = Timestamp::from_unix_ms(now + self.wall_off_ms.load(Ordering::SeqCst));
        Reading { boot_ms: now.unsigned_abs(), wall }
    }
}

/// A store in a file, on a host whose clock is stepped and which may be booted with every opening.
struct OnHost {
    folder: TempDir,
    wall_off_ms: Arc<AtomicI64>,
    boots: Vec<&'static str>,
}

#[async_trait]
impl Store for OnHost {
    async fn open(&mut self, policy: Policy, clock: &ManualClock) -> Arc<dyn Ledger> {
        let boot = self.boots.pop().unwrap_or("the only boot");
        let host = Host { clock: clock.clone(), wall_off_ms: Arc::clone(&self.wall_off_ms), boot };
        let options = OpenOptions { clock: Arc::new(host), ..OpenOptions::default() };
        let path = self.folder.path().join("handoff.db");
        Arc::new(SqliteLedger::open(path, policy, options).expect("the store opens"))
    }

    fn is_durable(&self) -> bool {
        true
    }
}

async fn world(boots: &[&'static str]) -> (World, Arc<AtomicI64>) {
    let wall_off_ms = Arc::new(AtomicI64::new(0));
    let boots = boots.iter().rev().copied().collect();
    let folder = TempDir::new().expect("a folder for a test");
    let store = OnHost { folder, wall_off_ms: Arc::clone(&wall_off_ms), boots };
    (World::start(Box::new(store)).await, wall_off_ms)
}

async fn now(world: &World) -> Timestamp {
    world.ledger().now().await.expect("the store answers")
}

/// H-63
#[tokio::test]
async fn a_lease_outlives_a_step_of_the_hosts_clock_and_a_restart() {
    for step in [60_000, -60_000] {
        let (world, wall_off_ms) = world(&[]).await;
        let mut moved = world.active().await;
        world.clock.advance(1_000);
        let before = now(&world).await;
        wall_off_ms.store(step, Ordering::SeqCst);
        world.reopen().await;
        assert_eq!(now(&world).await, before, "a step of {step} ms");
        moved.incarnation = handoff_testkit::contract::world::fresh();
        let refusal = world.refuse(moved.reclaim()).await;
        assert!(matches!(refusal, Refusal::FormerHolderMayRun { .. }), "{refusal}");
        world.clock.advance(world.policy.lease_ms);
        world.reopen().await;
        world.take(moved.reclaim(), &mut moved).await;
        world.finish().await;
    }
}

#[tokio::test]
async fn the_stores_time_nears_the_hosts_clock_over_restarts() {
    let (world, wall_off_ms) = world(&[]).await;
    let (moved, off_ms) = (world.active().await, 9_000);
    wall_off_ms.store(off_ms, Ordering::SeqCst);
    for _ in 0..40 {
        let before = now(&world).await;
        world.clock.advance(10_000);
        world.accept(moved.renew()).await;
        world.reopen().await;
        let passed = now(&world).await.ms_since(before);
        assert!((10_000..=10_501).contains(&passed), "{passed}");
    }
    assert_eq!(now(&world).await, Timestamp::from_unix_ms(world.clock.now().unix_ms() + off_ms));
    world.finish().await;
}

#[tokio::test]
async fn another_boot_begins_with_the_hosts_clock() {
    let (world, wall_off_ms) = world(&["one", "two", "three"]).await;
    world.staged().await;
    wall_off_ms.store(60_000, Ordering::SeqCst);
    world.reopen().await;
    let ahead = now(&world).await;
    assert_eq!(ahead, world.clock.now().plus_ms(60_000));
    world.staged().await;
    wall_off_ms.store(-60_000, Ordering::SeqCst);
    world.reopen().await;
    assert_eq!(now(&world).await, ahead, "and never behind the newest time");
    world.finish().await;
}
