//! Blobs as files of a directory.
//!
//! ```text
//! <root>/sha256/<first two digits>/<64 digits>   a blob, whole and verified when it was put
//! <root>/incoming/<random>                       a blob while it is written
//! ```
//!
//! A blob is written aside, synced, renamed into place, and the directory synced, so that a crash leaves
//! either all of it or none. Several processes may share a directory.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use handoff_protocol::Digest;
use handoff_protocol::limits::BLOB_BYTES;
use handoff_protocol::port::{BlobError, BlobStore};
use rustix::io::Errno;

use crate::beneath::random_name;

/// Bytes that stay free on the filesystem unless the operator says otherwise.
pub const DEFAULT_RESERVE_BYTES: u64 = 256 << 20;
/// Nobody writes one blob for so long; older leftovers are of a crash.
const ABANDONED: Duration = Duration::from_secs(3600);

/// A blob store in a directory.
#[derive(Debug, Clone)]
pub struct DirectoryBlobs {
    root: PathBuf,
    reserve_bytes: u64,
}

impl DirectoryBlobs {
    /// Opens the store, making its directories, and removes what a crash left unfinished. `reserve_bytes`
    /// is the fill mark: a put that would leave less free on the filesystem is refused as full.
    ///
    /// # Errors
    /// Where the directories cannot be made.
    pub fn open(root: impl Into<PathBuf>, reserve_bytes: u64) -> io::Result<Self> {
        let store = Self { root: root.into(), reserve_bytes };
        fs::create_dir_all(store.root.join("sha256"))?;
        fs::create_dir_all(store.incoming())?;
        for entry in fs::read_dir(store.incoming())? {
            let entry = entry?;
            let age = entry
                .metadata()
                .and_then(|data| data.modified())
                .map(|time| SystemTime::now().duration_since(time));
            if matches!(age, Ok(Ok(age)) if age > ABANDONED) {
                // Another process may have removed it first.
                let _ = fs::remove_file(entry.path());
            }
        }
        Ok(store)
    }

    fn incoming(&self) -> PathBuf {
        self.root.join("incoming")
    }

    fn shard(&self, digest: Digest) -> PathBuf {
        self.root.join("sha256").join(&digest.hex()[..2])
    }

    fn path(&self, digest: Digest) -> PathBuf {
        self.shard(digest).join(digest.hex())
    }

    fn put_now(&self, digest: Digest, bytes: &[u8]) -> Result<(), BlobError> {
        if bytes.len() as u64 > BLOB_BYTES || Digest::of(bytes) != digest {
            return Err(BlobError::Mismatch(digest));
        }
        if self.size_now(digest)? == Some(bytes.len() as u64) {
            return Ok(());
        }
        self.check_room(bytes.len() as u64)?;
        let temporary = self.incoming().join(random_name());
        let written = self.write(&temporary, bytes).and_then(|()| self.place(&temporary, digest));
        written.map_err(|error| {
            // The room it took is given back; a leftover would be removed at the next opening.
            let _ = fs::remove_file(&temporary);
            failed(error)
        })
    }

    fn check_room(&self, bytes: u64) -> Result<(), BlobError> {
        let found = rustix::fs::statvfs(&self.root).map_err(|errno| failed(errno.into()))?;
        let free = found.f_bavail.saturating_mul(found.f_frsize);
        if free < self.reserve_bytes.saturating_add(bytes) { Err(BlobError::Full) } else { Ok(()) }
    }

    fn write(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let mut file = File::create_new(path)?;
        file.write_all(bytes)?;
        file.sync_data()
    }

    fn place(&self, temporary: &Path, digest: Digest) -> io::Result<()> {
        let shard = self.shard(digest);
        match fs::create_dir(&shard) {
            Ok(()) => File::open(self.root.join("sha256"))?.sync_all()?,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
        fs::rename(temporary, self.path(digest))?;
        File::open(shard)?.sync_all()
    }

    fn get_now(&self, digest: Digest) -> Result<Vec<u8>, BlobError> {
        match self.size_now(digest)? {
            None => return Err(BlobError::NotFound(digest)),
            Some(size) if size > BLOB_BYTES => return Err(BlobError::Mismatch(digest)),
            Some(_) => {}
        }
        let bytes = fs::read(self.path(digest)).map_err(|error| missing(error, digest))?;
        if Digest::of(&bytes) == digest { Ok(bytes) } else { Err(BlobError::Mismatch(digest)) }
    }

    fn size_now(&self, digest: Digest) -> Result<Option<u64>, BlobError> {
        match fs::metadata(self.path(digest)) {
            Ok(found) => Ok(Some(found.len())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed(error)),
        }
    }

    fn stored_now(&self) -> io::Result<Vec<Digest>> {
        let mut digests = Vec::new();
        for shard in fs::read_dir(self.root.join("sha256"))? {
            for blob in fs::read_dir(shard?.path())? {
                let name = blob?.file_name();
                digests.extend(name.to_str().and_then(|hex| format!("sha256:{hex}").parse::<Digest>().ok()));
            }
        }
        Ok(digests)
    }

    /// The names of all blobs. One that is put or deleted meanwhile may be among them or not.
    ///
    /// # Errors
    /// Where the directory cannot be read.
    pub async fn stored(&self) -> Result<Vec<Digest>, BlobError> {
        self.run(|store| store.stored_now().map_err(failed)).await
    }

    fn delete_now(&self, digest: Digest) -> Result<(), BlobError> {
        match fs::remove_file(self.path(digest)) {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(failed(error)),
        }
    }

    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(Self) -> Result<T, BlobError> + Send + 'static,
    ) -> Result<T, BlobError> {
        let store = self.clone();
        let done = tokio::task::spawn_blocking(move || work(store)).await;
        done.unwrap_or_else(|error| Err(BlobError::Unavailable(Box::new(error))))
    }
}

#[async_trait]
impl BlobStore for DirectoryBlobs {
    async fn put(&self, digest: Digest, bytes: Vec<u8>) -> Result<(), BlobError> {
        self.run(move |store| store.put_now(digest, &bytes)).await
    }

    async fn get(&self, digest: Digest) -> Result<Vec<u8>, BlobError> {
        self.run(move |store| store.get_now(digest)).await
    }

    async fn size(&self, digest: Digest) -> Result<Option<u64>, BlobError> {
        self.run(move |store| store.size_now(digest)).await
    }

    async fn delete(&self, digest: Digest) -> Result<(), BlobError> {
        self.run(move |store| store.delete_now(digest)).await
    }
}

fn missing(error: io::Error, digest: Digest) -> BlobError {
    if error.kind() == io::ErrorKind::NotFound { BlobError::NotFound(digest) } else { failed(error) }
}

fn failed(error: io::Error) -> BlobError {
    match Errno::from_io_error(&error) {
        Some(Errno::NOSPC | Errno::DQUOT) => BlobError::Full,
        _ => BlobError::Unavailable(Box::new(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store(root: &Path) -> DirectoryBlobs {
        DirectoryBlobs::open(root, 0).expect("opens")
    }

    fn files(root: &Path) -> usize {
        fs::read_dir(root.join("incoming")).expect("there").count()
    }

    #[tokio::test]
    async fn what_is_put_comes_back_and_twice_is_once() {
        let root = tempfile::tempdir().expect("a directory");
        let store = store(root.path());
        let digest = Digest::of(b"abc");
        assert_eq!(store.size(digest).await.expect("answers"), None);
        assert!(matches!(store.get(digest).await, Err(BlobError::NotFound(found)) if found == digest));
        for _ in 0..2 {
            store.put(digest, b"abc".to_vec()).await.expect("stored");
        }
        assert_eq!(store.get(digest).await.expect("there"), b"abc");
        assert_eq!(store.size(digest).await.expect("answers"), Some(3));
        for _ in 0..2 {
            store.delete(digest).await.expect("gone");
        }
        assert_eq!(store.size(digest).await.expect("answers"), None);
        assert_eq!(files(root.path()), 0);
    }

    #[tokio::test]
    async fn other_bytes_than_the_name_says_are_refused_both_ways() {
        let root = tempfile::tempdir().expect("a directory");
        let store = store(root.path());
        let digest = Digest::of(b"abc");
        assert!(matches!(store.put(digest, b"abd".to_vec()).await, Err(BlobError::Mismatch(_))));
        store.put(digest, b"abc".to_vec()).await.expect("stored");
        fs::write(store.path(digest), b"abd").expect("the disk changes it");
        assert!(matches!(store.get(digest).await, Err(BlobError::Mismatch(_))));
    }

    #[tokio::test]
    async fn the_fill_mark_refuses_and_leaves_nothing() {
        let root = tempfile::tempdir().expect("a directory");
        let full = DirectoryBlobs::open(root.path(), u64::MAX).expect("opens");
        let digest = Digest::of(b"abc");
        assert!(matches!(full.put(digest, b"abc".to_vec()).await, Err(BlobError::Full)));
        assert_eq!(full.size(digest).await.expect("answers"), None);
        assert_eq!(files(root.path()), 0);
        store(root.path()).put(digest, b"abc".to_vec()).await.expect("stored");
        full.put(digest, b"abc".to_vec()).await.expect("what is there needs no room");
    }

    #[test]
    fn no_space_and_no_quota_are_full() {
        for errno in [Errno::NOSPC, Errno::DQUOT] {
            assert!(matches!(failed(errno.into()), BlobError::Full));
        }
        assert!(matches!(failed(Errno::IO.into()), BlobError::Unavailable(_)));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn many_put_the_same_and_other_blobs_at_once() {
        let root = tempfile::tempdir().expect("a directory");
        let store = store(root.path());
        let puts = (0u8..64).map(|number| {
            let (store, bytes) = (store.clone(), vec![number % 8; 10_000]);
            tokio::spawn(async move { store.put(Digest::of(&bytes), bytes).await })
        });
        for put in puts.collect::<Vec<_>>() {
            put.await.expect("no panic").expect("stored");
        }
        for number in 0u8..8 {
            let bytes = vec![number; 10_000];
            assert_eq!(store.get(Digest::of(&bytes)).await.expect("there"), bytes);
        }
        assert_eq!(files(root.path()), 0);
    }

    #[test]
    fn leftovers_of_a_crash_are_removed_and_a_running_put_is_not() {
        let root = tempfile::tempdir().expect("a directory");
        let store_path = root.path();
        store(store_path);
        let (old, new) = (store_path.join("incoming/old"), store_path.join("incoming/new"));
        File::create(&new).expect("made");
        let long_ago = SystemTime::now() - 2 * ABANDONED;
        File::create(&old).and_then(|file| file.set_modified(long_ago)).expect("made");
        store(store_path);
        assert!(!old.exists() && new.exists());
    }
}
