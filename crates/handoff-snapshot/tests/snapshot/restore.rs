//! Fetching and restoring: resumable, whole or not at all.

use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use handoff_protocol::manifest::Part;
use handoff_protocol::port::{BlobError, BlobStore};
use handoff_protocol::{Digest, ErrorCode};
use handoff_snapshot::{
    DirectoryBlobs, RestoreError, RestoreTarget, Restored, fetch, missing, restore, verify,
};
use tokio::sync::Notify;

use crate::world::{World, listing, user};

/// A store that answers some gets and then hangs or fails, and counts them.
struct Cut {
    inner: DirectoryBlobs,
    gets: AtomicUsize,
    after: usize,
    reached: Notify,
    hangs: bool,
}

impl Cut {
    fn new(inner: &DirectoryBlobs, after: usize, hangs: bool) -> Self {
        Self { inner: inner.clone(), gets: AtomicUsize::new(0), after, reached: Notify::new(), hangs }
    }
}

#[async_trait]
impl BlobStore for Cut {
    async fn put(&self, digest: Digest, bytes: Vec<u8>) -> Result<(), BlobError> {
        self.inner.put(digest, bytes).await
    }

    async fn get(&self, digest: Digest) -> Result<Vec<u8>, BlobError> {
        if self.gets.fetch_add(1, Ordering::SeqCst) >= self.after {
            self.reached.notify_one();
            if self.hangs {
                std::future::pending::<()>().await;
            }
            return Err(BlobError::Unavailable("cut".into()));
        }
        self.inner.get(digest).await
    }

    async fn size(&self, digest: Digest) -> Result<Option<u64>, BlobError> {
        self.inner.size(digest).await
    }

    async fn delete(&self, digest: Digest) -> Result<(), BlobError> {
        self.inner.delete(digest).await
    }
}

/// A session with enough parts that it can be cut anywhere.
async fn rich() -> (World, Digest) {
    let world = World::new();
    let lines: Vec<String> =
        (0..300).map(|number| user(&format!("{number} {}", "x".repeat(3_000)))).collect();
    world.messages(&lines.iter().map(String::as_str).collect::<Vec<_>>());
    for number in 0..5u8 {
        fs::write(world.workspace(&format!("large-{number}")), vec![number; 6 << 20]).expect("made");
    }
    let captured = world.capture().await.expect("captured");
    assert!(captured.manifest.of(Part::Workspace).count() >= 6);
    (world, captured.digest)
}

fn other_store(world: &World) -> DirectoryBlobs {
    DirectoryBlobs::open(world.path("other"), 0).expect("opens")
}

#[tokio::test]
async fn a_fetch_that_was_cut_goes_on() {
    let (world, digest) = rich().await;
    let to = other_store(&world);
    let cut = Cut::new(&world.blobs, 6, false);
    let error = fetch(digest, &cut, &to).await.expect_err("cut");
    assert_eq!(error.code(), ErrorCode::StoreUnavailable);
    assert_eq!(to.size(digest).await.expect("answers"), None, "the manifest comes last");
    let rest = Cut::new(&world.blobs, usize::MAX, false);
    let fetched = fetch(digest, &rest, &to).await.expect("the rest");
    assert!(fetched.bytes_fetched < fetched.bytes_total);
    assert_eq!(missing(fetched.verified.manifest(), &to).await.expect("answers"), []);
    let gets = rest.gets.load(Ordering::SeqCst);
    assert!(gets < fetched.verified.manifest().parts.len(), "{gets}");
    let again = fetch(digest, &Cut::new(&world.blobs, 0, false), &to).await.expect("all is there");
    assert_eq!(again.bytes_fetched, 0);
    restore(digest, &to, world.target()).await.expect("restored");
}

#[tokio::test]
async fn a_damaged_blob_is_fetched_again() {
    let (world, digest) = rich().await;
    let to = other_store(&world);
    let fetched = fetch(digest, &world.blobs, &to).await.expect("fetched");
    let part = fetched.verified.manifest().parts[1].clone();
    let hex = part.digest.hex();
    fs::write(world.path("other/sha256").join(&hex[..2]).join(&hex), "damaged").expect("written");
    let error = verify(digest, &to).await.expect_err("damaged");
    assert_eq!(error.code(), ErrorCode::ChecksumMismatch);
    let repaired = fetch(digest, &world.blobs, &to).await.expect("repaired");
    assert_eq!(repaired.bytes_fetched, part.size);
}

#[tokio::test]
async fn a_missing_blob_is_named() {
    let (world, digest) = rich().await;
    let manifest = verify(digest, &world.blobs).await.expect("whole").manifest().clone();
    let lost = manifest.parts[2].clone();
    world.blobs.delete(lost.digest).await.expect("gone");
    assert_eq!(missing(&manifest, &world.blobs).await.expect("answers"), [lost]);
    let error = world.restore(digest).await.expect_err("not whole");
    assert_eq!(error.code(), ErrorCode::NotFound);
    assert!(!world.path("there").exists());
}

#[tokio::test]
async fn a_full_store_refuses_a_fetch_and_a_capture() {
    let (world, digest) = rich().await;
    let full = DirectoryBlobs::open(world.path("full"), u64::MAX).expect("opens");
    let error = fetch(digest, &world.blobs, &full).await.expect_err("full");
    assert_eq!(error.code(), ErrorCode::StorageFull);
    let source = world.source(handoff_snapshot::Moment::Final);
    let error = handoff_snapshot::capture(source, &full, None).await.expect_err("full");
    assert_eq!(error.code(), ErrorCode::StorageFull);
}

/// Stops a restore at its n-th read, as a kill would: whatever runs is dropped, nothing cleans up.
async fn killed_at(world: &World, digest: Digest, reads: usize) {
    let cut = Cut::new(&world.blobs, reads, true);
    let stopped = tokio::select! {
        _ = restore(digest, &cut, world.target()) => false,
        () = cut.reached.notified() => true,
    };
    assert!(stopped, "it would have ended before read {reads}");
}

#[tokio::test]
async fn case_s31_a_restore_killed_half_way_starts_over() {
    let (world, digest) = rich().await;
    let parts = verify(digest, &world.blobs).await.expect("whole").manifest().parts.len();
    // While verifying, while reading documents, and at every part that is written.
    for reads in [parts / 2, parts + 2, parts + 4, parts + 6, parts + 8, 2 * parts] {
        killed_at(&world, digest, reads).await;
        assert!(!world.path("there/state").exists(), "never half, at {reads}");
        assert!(!world.path("there/workspace").exists(), "never half, at {reads}");
    }
    let restored = tokio::time::timeout(Duration::from_secs(60), world.restore(digest)).await;
    restored.expect("in time").expect("it starts over");
    assert_eq!(listing(&world.path("there/workspace")), listing(&world.path("workspace")));
    assert_eq!(fs::read_dir(world.path("there")).expect("there").count(), 2, "nothing is left over");
}

#[tokio::test]
async fn a_place_in_use_is_refused_and_untouched() {
    let (world, digest) = rich().await;
    for dir in ["there/workspace", "there/state"] {
        fs::create_dir_all(world.path(dir)).expect("made");
        fs::write(world.path(dir).join("precious"), "x").expect("made");
        let error = world.restore(digest).await.expect_err("in use");
        assert!(matches!(error, RestoreError::TargetInUse(path) if path == world.path(dir)));
        assert!(world.path(dir).join("precious").exists());
        fs::remove_dir_all(world.path(dir)).expect("removed");
    }
    let first = world.restore(digest).await.expect("free");
    assert!(matches!(world.restore(digest).await, Err(RestoreError::TargetInUse(_))));
    let durable = RestoreTarget { durable: true, ..RestoreTarget::new(world.path("d/s"), world.path("d/w")) };
    let second: Restored = restore(digest, &world.blobs, durable).await.expect("elsewhere");
    assert_eq!(second, first);
}

#[tokio::test]
async fn a_restored_session_is_captured_as_it_was() {
    let (world, digest) = rich().await;
    world.restore(digest).await.expect("restored");
    let mut source = world.source(handoff_snapshot::Moment::Final);
    source.state_dir = world.path("there/state");
    source.workspace_dir = Some(world.path("there/workspace"));
    let again = handoff_snapshot::capture(source, &world.blobs, Some(digest)).await.expect("captured");
    assert_eq!(again.session.lineage.parent, Some(digest));
    assert!(again.new_blobs <= 2, "the session part and the manifest: {}", again.new_blobs);
}
