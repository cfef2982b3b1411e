//! Bytes come back as they came, whatever they are, and never more of them than there is room for.

use handoff_core::Policy;
use handoff_protocol::port::{BlobError, BlobStore};
use handoff_protocol::{Digest, ProjectId};
use handoff_store::{BlobLimits, OpenOptions, SqliteBlobs, SqliteLedger};
use handoff_testkit::contract::world::fresh;
use rusqlite::Connection;
use tempfile::TempDir;

struct Place {
    folder: TempDir,
    project: ProjectId,
}

impl Place {
    fn new() -> Self {
        Self { folder: TempDir::new().expect("a folder for a test"), project: fresh() }
    }

    fn path(&self) -> std::path::PathBuf {
        self.folder.path().join("handoff.db")
    }

    fn open(&self, limits: BlobLimits) -> SqliteBlobs {
        let ledger = SqliteLedger::open(self.path(), Policy::default(), OpenOptions::default());
        ledger.expect("the store opens").blobs(self.project, limits)
    }
}

/// Little enough to keep free that a test's disk always has it.
fn limits() -> BlobLimits {
    BlobLimits { blob_bytes: 1 << 20, keep_free_bytes: 1 << 16 }
}

#[tokio::test]
async fn cases_s02_s14_s16_bytes_are_stored_and_given_back_as_they_came() {
    let place = Place::new();
    let texts: &[&[u8]] = &[
        br#"{"role":"tool","content":"a\u0000b"}"#,
        b"{\"content\":\"raw \x00 in the middle\"}\x00",
        br#"{"n":117.63331139400017,"m":1.5777777777770001,"big":18446744073709551616,"e":1e400,"z":-0}"#,
        br#"{"b":1,"a":2}"#,
        br#"{"a":1,"a":2}"#,
        br#"{"lone":"\ud83d"}"#,
        b"\xff\xfe not text at all \x80",
        b"",
    ];
    let blobs = place.open(limits());
    for text in texts {
        blobs.put(Digest::of(text), text.to_vec()).await.expect("it is stored");
    }
    drop(blobs);
    let blobs = place.open(limits());
    for text in texts {
        let digest = Digest::of(text);
        assert_eq!(blobs.get(digest).await.expect("it is there"), *text);
        assert_eq!(blobs.size(digest).await.expect("it is there"), Some(text.len() as u64));
    }
}

#[tokio::test]
async fn bytes_that_do_not_have_their_name_are_neither_stored_nor_given_out() {
    let place = Place::new();
    let blobs = place.open(limits());
    let digest = Digest::of(b"right");
    let put = blobs.put(digest, b"wrong".to_vec()).await;
    assert!(matches!(put, Err(BlobError::Mismatch(named)) if named == digest), "{put:?}");
    assert_eq!(blobs.size(digest).await.expect("the store answers"), None);
    blobs.put(digest, b"right".to_vec()).await.expect("it is stored");
    let raw = Connection::open(place.path()).expect("the file opens");
    assert_eq!(raw.execute("UPDATE blobs SET bytes = x'7772306e67'", []).expect("it is altered"), 1);
    let get = blobs.get(digest).await;
    assert!(matches!(get, Err(BlobError::Mismatch(named)) if named == digest), "{get:?}");
}

#[tokio::test]
async fn a_blob_is_stored_once_and_forgotten_once() {
    let place = Place::new();
    let blobs = place.open(limits());
    let (digest, bytes) = (Digest::of(b"some"), b"some".to_vec());
    for _ in 0..2 {
        blobs.put(digest, bytes.clone()).await.expect("it is stored");
    }
    for _ in 0..2 {
        blobs.delete(digest).await.expect("the store answers");
        assert!(matches!(blobs.get(digest).await, Err(BlobError::NotFound(_))));
    }
}

/// H-100
#[tokio::test]
async fn a_project_has_its_own_blobs() {
    let place = Place::new();
    let ledger = SqliteLedger::open(place.path(), Policy::default(), OpenOptions::default());
    let ledger = ledger.expect("the store opens");
    let (mine, theirs) = (ledger.blobs(place.project, limits()), ledger.blobs(fresh(), limits()));
    let digest = Digest::of(b"mine");
    mine.put(digest, b"mine".to_vec()).await.expect("it is stored");
    assert!(matches!(theirs.get(digest).await, Err(BlobError::NotFound(_))));
    theirs.delete(digest).await.expect("the store answers");
    assert!(mine.get(digest).await.is_ok());
}

#[tokio::test]
async fn too_large_a_blob_and_a_disk_at_its_fill_mark_are_refused() {
    let place = Place::new();
    let large = vec![7; (1 << 20) + 1];
    let blobs = place.open(limits());
    assert!(matches!(blobs.put(Digest::of(&large), large.clone()).await, Err(BlobError::Full)));
    drop(blobs);
    let blobs = place.open(BlobLimits { keep_free_bytes: u64::MAX / 2, ..limits() });
    assert!(matches!(blobs.put(Digest::of(b"a"), b"a".to_vec()).await, Err(BlobError::Full)));
    assert_eq!(blobs.size(Digest::of(b"a")).await.expect("the store answers"), None);
}
