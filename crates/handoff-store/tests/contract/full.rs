//! A full disk: a coded answer, nothing lost, nothing half-done, and it works again when there is room.

use std::path::{Path, PathBuf};
use std::process::Command as Process;
use std::sync::Arc;

use async_trait::async_trait;
use handoff_core::command::{Command, Stage};
use handoff_core::ledger::{Envelope, Ledger, LedgerError};
use handoff_core::{Policy, Session};
use handoff_store::{OpenOptions, SqliteLedger};
use handoff_testkit::clock::ManualClock;
use handoff_testkit::contract::{Store, World};
use tempfile::TempDir;

/// A store in a given folder that may grow to a limit, which the next opening lifts.
struct Small {
    path: PathBuf,
    limit_bytes: Option<u64>,
    _folder: Folder,
}

/// What goes away with the store.
enum Folder {
    Plain(#[expect(dead_code, reason = "its drop removes the folder")] TempDir),
    Disk(#[expect(dead_code, reason = "its drop unmounts the disk")] Disk),
}

#[async_trait]
impl Store for Small {
    async fn open(&mut self, policy: Policy, clock: &ManualClock) -> Arc<dyn Ledger> {
        let limit_bytes = self.limit_bytes.take();
        let options = OpenOptions { clock: Arc::new(clock.reader()), limit_bytes, ..OpenOptions::default() };
        Arc::new(SqliteLedger::open(&self.path, policy, options).expect("the store opens"))
    }

    fn is_durable(&self) -> bool {
        true
    }
}

/// A disk of a few megabytes in memory.
struct Disk {
    folder: TempDir,
}

impl Disk {
    /// None without the right to mount.
    fn mount(bytes: u64) -> Option<Self> {
        let folder = TempDir::new().expect("a folder for a test");
        let options = format!("size={bytes}");
        let mount = Process::new("mount")
            .args(["-t", "tmpfs", "-o", &options, "handoff-test"])
            .arg(folder.path())
            .output();
        mount.is_ok_and(|output| output.status.success()).then_some(Self { folder })
    }

    fn grow(folder: &Path, bytes: u64) {
        let options = format!("remount,size={bytes}");
        let mount = Process::new("mount").args(["-o", &options]).arg(folder).status();
        assert!(mount.is_ok_and(|status| status.success()), "the disk grows");
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let unmount = Process::new("umount").arg(self.folder.path()).status();
        assert!(unmount.is_ok_and(|status| status.success()), "nothing is left mounted");
    }
}

/// A stage with so many bytes of labels.
fn stage(world: &World, bytes: usize) -> Envelope {
    let Command::Stage(stage) = world.stage(&world.fresh_move()) else { unreachable!("a stage is one") };
    let labels = [("filler".to_owned(), "x".repeat(bytes))].into();
    world.envelope(Command::Stage(Stage { labels, ..stage }))
}

/// Stages until there is no room, and gives what the store holds then.
async fn fill(world: &World) -> Vec<Session> {
    for _ in 0..10_000 {
        match world.apply(stage(world, 20_000)).await {
            Ok(_) => {}
            Err(LedgerError::Full) => return world.sessions().await,
            Err(error) => panic!("{error}"),
        }
    }
    panic!("it never was full")
}

async fn nothing_is_lost(world: &World, held: &[Session]) {
    assert!(!held.is_empty());
    for _ in 0..3 {
        let answer = world.apply(stage(world, 20_000)).await;
        assert!(matches!(answer, Err(LedgerError::Full)), "{answer:?}");
    }
    assert_eq!(world.sessions().await, held);
    world.check().await;
}

#[tokio::test]
async fn at_its_limit_the_store_refuses_and_keeps_what_it_has() {
    let folder = TempDir::new().expect("a folder for a test");
    let path = folder.path().join("handoff.db");
    let small = Small { path, limit_bytes: Some(2 << 20), _folder: Folder::Plain(folder) };
    let world = World::start(Box::new(small)).await;
    let held = fill(&world).await;
    nothing_is_lost(&world, &held).await;
    world.reopen().await;
    assert_eq!(world.sessions().await, held);
    assert!(world.apply(stage(&world, 20_000)).await.is_ok(), "there is room again");
    world.finish().await;
}

#[tokio::test]
async fn on_a_full_disk_the_store_refuses_and_works_again_when_there_is_room() {
    let Some(disk) = Disk::mount(4 << 20) else {
        assert!(!rustix::process::geteuid().is_root(), "root can mount");
        return;
    };
    let folder = disk.folder.path().to_owned();
    let small = Small { path: folder.join("handoff.db"), limit_bytes: None, _folder: Folder::Disk(disk) };
    let world = World::start(Box::new(small)).await;
    let held = fill(&world).await;
    nothing_is_lost(&world, &held).await;
    Disk::grow(&folder, 64 << 20);
    assert!(world.apply(stage(&world, 20_000)).await.is_ok(), "there is room again");
    world.finish().await;
}

#[tokio::test]
async fn one_command_too_large_does_not_fail_the_others_of_its_batch() {
    let folder = TempDir::new().expect("a folder for a test");
    let path = folder.path().join("handoff.db");
    let small = Small { path, limit_bytes: Some(2 << 20), _folder: Folder::Plain(folder) };
    let world = World::start(Box::new(small)).await;
    let batch = [100, 4 << 20, 100].map(|bytes| stage(&world, bytes));
    let answers = world.apply_all(batch.into()).await;
    assert!(answers[0].is_ok() && answers[2].is_ok(), "{answers:?}");
    assert!(matches!(answers[1], Err(LedgerError::Full)), "{answers:?}");
    assert_eq!(world.sessions().await.len(), 2);
    world.finish().await;
}
