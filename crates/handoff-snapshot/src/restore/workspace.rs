//! Writing a workspace from its tree and packs into an empty directory.
//!
//! Directories first, then files pack by pack, then links, and modes and times last: nothing that is written
//! can lead a later write elsewhere, and a directory without write permission can still be filled.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt as _;

use handoff_protocol::Digest;
use rustix::fs::{AtFlags, Mode, OFlags, Timespec, Timestamps, UTIME_OMIT};

use super::RestoreError;
use crate::beneath;
use crate::tree::{Entry, EntryKind, MODE_BITS, Tree};

/// A workspace while it is written.
pub(super) struct Writer {
    root: OwnedFd,
    tree: Tree,
    /// By pack: the entries and their segments that it holds.
    by_pack: HashMap<u32, Vec<(usize, usize)>>,
    /// By entry: the segments that are still to come.
    missing: Vec<usize>,
}

impl Writer {
    /// Makes all directories and all files without content.
    pub(super) fn start(root: OwnedFd, tree: Tree) -> Result<Self, RestoreError> {
        check_room(&root, &tree)?;
        let mut by_pack: HashMap<u32, Vec<(usize, usize)>> = HashMap::new();
        for (entry, found) in tree.entries.iter().enumerate() {
            for (segment, place) in found.content.iter().enumerate() {
                by_pack.entry(place.pack).or_default().push((entry, segment));
            }
        }
        let missing = tree.entries.iter().map(|entry| entry.content.len()).collect();
        let writer = Self { root, tree, by_pack, missing };
        writer.each(EntryKind::Dir, |parent, name, _| Ok(rustix::fs::mkdirat(parent, name, Mode::RWXU)?))?;
        for entry in writer.tree.entries.iter().filter(|entry| entry.kind == EntryKind::File) {
            let file = beneath::create_file(&writer.root, &entry.path.0).map_err(at(entry))?;
            if entry.content.is_empty() {
                finish_file(&File::from(file), entry).map_err(at(entry))?;
            }
        }
        Ok(writer)
    }

    /// Writes everything that a pack holds.
    pub(super) fn pack(&mut self, index: u32, raw: &[u8]) -> Result<(), RestoreError> {
        for (entry_index, segment_index) in self.by_pack.remove(&index).unwrap_or_default() {
            let entry = &self.tree.entries[entry_index];
            let segment = &entry.content[segment_index];
            let bytes = raw.get(segment.offset as usize..(segment.offset + segment.length) as usize);
            let Some(bytes) = bytes.filter(|bytes| Digest::of(bytes) == segment.digest) else {
                return Err(RestoreError::Content { path: entry.path.shown() });
            };
            let file = beneath::open(&self.root, &entry.path.0, OFlags::WRONLY, Mode::empty());
            let file = File::from(file.map_err(at(entry))?);
            file.write_all_at(bytes, segment.at).map_err(at(entry))?;
            self.missing[entry_index] -= 1;
            if self.missing[entry_index] == 0 {
                finish_file(&file, entry).map_err(at(entry))?;
            }
        }
        Ok(())
    }

    /// Makes the links, then sets the modes and times of directories from the innermost outwards.
    pub(super) fn finish(self) -> Result<(), RestoreError> {
        if let Some(entry) = self.missing.iter().position(|missing| *missing > 0) {
            return Err(RestoreError::Content { path: self.tree.entries[entry].path.shown() });
        }
        self.each(EntryKind::Symlink, |parent, name, entry| {
            let target = entry.target.as_ref().expect("a checked link has a target");
            rustix::fs::symlinkat(target.0.as_slice(), parent, name)?;
            let times = times(entry);
            Ok(rustix::fs::utimensat(parent, name, &times, AtFlags::SYMLINK_NOFOLLOW)?)
        })?;
        for entry in self.tree.entries.iter().rev().filter(|entry| entry.kind == EntryKind::Dir) {
            let dir = beneath::open_dir(&self.root, &entry.path.0).map_err(at(entry))?;
            set_mode_and_times(dir.as_fd(), entry).map_err(at(entry))?;
        }
        rustix::fs::fchmod(&self.root, Mode::from(0o755))
            .map_err(|errno| RestoreError::io(".".as_ref(), errno.into()))
    }

    /// Does something to each entry of a kind, given its opened parent.
    fn each(
        &self,
        kind: EntryKind,
        make: impl Fn(BorrowedFd<'_>, &[u8], &Entry) -> io::Result<()>,
    ) -> Result<(), RestoreError> {
        // Neighbors mostly share their parent.
        let mut parent: Option<(&[u8], OwnedFd)> = None;
        for entry in self.tree.entries.iter().filter(|entry| entry.kind == kind) {
            let (path, name) = beneath::split(&entry.path.0);
            if path.is_empty() {
                make(self.root.as_fd(), name, entry).map_err(at(entry))?;
                continue;
            }
            let dir = match parent.take() {
                Some((known, dir)) if known == path => dir,
                Some(_) | None => beneath::open_dir(&self.root, path).map_err(at(entry))?,
            };
            make(dir.as_fd(), name, entry).map_err(at(entry))?;
            parent = Some((path, dir));
        }
        Ok(())
    }
}

/// Refuses what does not fit before anything is written. Holes take no room.
fn check_room(root: &OwnedFd, tree: &Tree) -> Result<(), RestoreError> {
    let found = rustix::fs::fstatvfs(root).map_err(|errno| RestoreError::io(".".as_ref(), errno.into()))?;
    let free = found.f_bavail.saturating_mul(found.f_frsize);
    if tree.totals().bytes > free { Err(RestoreError::Full) } else { Ok(()) }
}

fn finish_file(file: &File, entry: &Entry) -> io::Result<()> {
    file.set_len(entry.size)?;
    set_mode_and_times(file.as_fd(), entry)
}

/// Set on the opened file, so the umask has no say.
fn set_mode_and_times(file: BorrowedFd<'_>, entry: &Entry) -> io::Result<()> {
    rustix::fs::fchmod(file, Mode::from(entry.mode & MODE_BITS))?;
    Ok(rustix::fs::futimens(file, &times(entry))?)
}

fn times(entry: &Entry) -> Timestamps {
    const SECOND: i64 = 1_000_000_000;
    Timestamps {
        last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        last_modification: Timespec {
            tv_sec: entry.mtime_ns.div_euclid(SECOND),
            tv_nsec: entry.mtime_ns.rem_euclid(SECOND),
        },
    }
}

fn at(entry: &Entry) -> impl FnOnce(io::Error) -> RestoreError + '_ {
    |error| RestoreError::io(entry.path.shown().as_ref(), error)
}
