//! What is remembered between two captures of the same directories, so that a refresh reads only what
//! changed. It is a cache: without it, or with an old one, the result is the same and takes longer.

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::Mutex;

use handoff_protocol::Digest;
use rustix::fs::Stat;
use serde::{Deserialize, Serialize};

use crate::conversation::KnownChunks;
use crate::search::Sighting;
use crate::tree::Name;

/// The memory of one session's captures. It must be kept where the captured side cannot write.
#[derive(Debug, Default)]
pub struct CaptureIndex(Mutex<Memory>);

impl CaptureIndex {
    /// Reads what [`CaptureIndex::save`] wrote; empty where that is missing or unreadable.
    pub fn load(path: &Path) -> Self {
        let read = std::fs::read(path).ok();
        let memory = read.and_then(|bytes| serde_json::from_slice::<Saved>(&bytes).ok());
        Self(Mutex::new(memory.map(Memory::from).unwrap_or_default()))
    }

    /// Writes it to a file, by a rename.
    ///
    /// # Errors
    /// Where the file cannot be written.
    pub fn save(&self, path: &Path) -> io::Result<()> {
        let saved = Saved::from(&*self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner));
        let bytes = serde_json::to_vec(&saved).map_err(io::Error::other)?;
        let beside = path.with_extension("new");
        std::fs::write(&beside, bytes)?;
        std::fs::rename(beside, path)
    }

    /// Takes the memory for one capture. A capture that runs at the same time finds nothing.
    pub(crate) fn take(&self) -> Memory {
        std::mem::take(&mut self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
    }

    pub(crate) fn put_back(&self, memory: Memory) {
        *self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = memory;
    }
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Memory {
    pub(crate) files: HashMap<Vec<u8>, KnownFile>,
    pub(crate) chunks: KnownChunks,
}

/// A file's content as it was at a stamp.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KnownFile {
    pub(crate) stamp: Stamp,
    pub(crate) pieces: Vec<Piece>,
    /// What looks like a credential in it; none where it was not looked through.
    #[serde(default)]
    pub(crate) seen: Option<Vec<Sighting>>,
}

/// Bytes of a file that are one piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Piece {
    pub(crate) at: u64,
    pub(crate) length: u64,
    pub(crate) digest: Digest,
}

/// Changes whenever a file's content does. The time of change of the inode is in it because nobody but the
/// kernel can set that.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Stamp {
    device: u64,
    inode: u64,
    pub(crate) size: u64,
    pub(crate) mtime_ns: i64,
    ctime_ns: i64,
}

impl Stamp {
    pub(crate) fn of(stat: &Stat) -> Self {
        Self {
            device: stat.st_dev,
            inode: stat.st_ino,
            size: u64::try_from(stat.st_size).unwrap_or(0),
            mtime_ns: nanoseconds(stat.st_mtime, stat.st_mtime_nsec),
            ctime_ns: nanoseconds(stat.st_ctime, stat.st_ctime_nsec),
        }
    }

    /// Whether a write just after the stamp could carry the same times: they are as coarse as the kernel's
    /// tick, and on some filesystems as coarse as two seconds.
    pub(crate) fn is_older_than(&self, ns: i64) -> bool {
        self.mtime_ns.max(self.ctime_ns) < ns
    }
}

fn nanoseconds(seconds: i64, nanoseconds: u64) -> i64 {
    seconds.saturating_mul(1_000_000_000).saturating_add_unsigned(nanoseconds)
}

#[derive(Serialize, Deserialize)]
struct Saved {
    files: Vec<(Name, KnownFile)>,
    chunks: Vec<(Digest, crate::conversation::SealedChunk)>,
}

impl From<Saved> for Memory {
    fn from(saved: Saved) -> Self {
        Self {
            files: saved.files.into_iter().map(|(name, file)| (name.0, file)).collect(),
            chunks: saved.chunks.into_iter().collect(),
        }
    }
}

impl From<&Memory> for Saved {
    fn from(memory: &Memory) -> Self {
        let files = memory.files.iter().map(|(name, file)| (Name(name.clone()), file.clone()));
        let chunks = memory.chunks.iter().map(|(digest, chunk)| (*digest, chunk.clone()));
        Self { files: files.collect(), chunks: chunks.collect() }
    }
}
