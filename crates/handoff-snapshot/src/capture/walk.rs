//! Walking a workspace: every file, directory and link of it, read without following anything.
//!
//! The workspace may change meanwhile, and may be hostile. What cannot be carried is reported and never
//! opened; a file that changes while it is read is read again, and reported if it does not come to rest.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt as _;

use handoff_protocol::document::ReportKind;
use handoff_protocol::limits::SNAPSHOT_LOGICAL_BYTES;
use rustix::fs::{AtFlags, FileType, SeekFrom, Stat};
use rustix::io::Errno;

use super::index::{KnownFile, Piece, Stamp};
use super::pack::Packer;
use super::{CaptureError, Outbox};
use crate::beneath;
use crate::limits::{FILE_BYTES, PACK_BYTES, WORKSPACE_ENTRIES};
use crate::report::Report;
use crate::search::{Search, Sighting};
use crate::tree::{Entry, EntryKind, MODE_BITS, Name, Segment};

/// How often a file that changes while it is read is read again.
const READ_AGAIN: usize = 3;
/// More stretches of data than this in one file are not worth their places in the tree.
const STRETCHES: usize = 4096;
const BECAME_ANOTHER: &str = "it became something else while it was read";

/// One round over the workspace.
pub(crate) struct Walk<'w> {
    pub(crate) packer: &'w mut Packer,
    pub(crate) known: &'w HashMap<Vec<u8>, KnownFile>,
    /// Directories that do not travel, by device and inode.
    pub(crate) excluded: &'w HashSet<(u64, u64)>,
    pub(crate) outbox: &'w Outbox,
    /// A file changed after this may change again within the same tick of its times.
    pub(crate) settled_before_ns: i64,
    pub(crate) found: Found,
    bytes: u64,
    hard_links: u64,
    search: Search,
    buffer: Vec<u8>,
}

/// What a round found.
#[derive(Default)]
pub(crate) struct Found {
    /// Segments name the packer's slots.
    pub(crate) entries: Vec<Entry>,
    pub(crate) files: HashMap<Vec<u8>, KnownFile>,
    pub(crate) report: Report,
}

/// What a file is.
struct Content {
    stamp: Stamp,
    segments: Vec<Segment>,
    seen: Option<Vec<Sighting>>,
}

/// What became of reading a file once.
enum Read {
    Whole(Content),
    Changed(Content),
}

impl<'w> Walk<'w> {
    pub(crate) fn new(
        packer: &'w mut Packer,
        known: &'w HashMap<Vec<u8>, KnownFile>,
        excluded: &'w HashSet<(u64, u64)>,
        outbox: &'w Outbox,
        settled_before_ns: i64,
        search: Search,
    ) -> Self {
        let (found, bytes, hard_links, buffer) = (Found::default(), 0, 0, Vec::new());
        Self { packer, known, excluded, outbox, settled_before_ns, found, bytes, hard_links, search, buffer }
    }

    /// Walks everything beneath `root`.
    pub(crate) fn run(mut self, root: &OwnedFd) -> Result<Found, CaptureError> {
        self.directory(root, &mut Vec::new())?;
        let pack = self.packer.flush();
        self.outbox.send(pack)?;
        if self.hard_links > 0 {
            let why = format!("{} names of hard-linked files become files of their own", self.hard_links);
            self.found.report.add(ReportKind::Degraded, "workspace", why);
        }
        self.search.finish(&mut self.found.report);
        Ok(self.found)
    }

    fn directory(&mut self, dir: &OwnedFd, path: &mut Vec<u8>) -> Result<(), CaptureError> {
        let names = beneath::names(dir, WORKSPACE_ENTRIES + 1);
        let names = names.map_err(|source| CaptureError::io(path, source))?;
        if names.len() > WORKSPACE_ENTRIES {
            return Err(CaptureError::TooLarge { what: "the workspace's number of files" });
        }
        for name in names {
            let length = path.len();
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend_from_slice(&name);
            self.entry(dir, &name, path)?;
            path.truncate(length);
        }
        Ok(())
    }

    fn entry(&mut self, dir: &OwnedFd, name: &[u8], path: &mut Vec<u8>) -> Result<(), CaptureError> {
        if let Err(why) = beneath::check_path(path) {
            return self.exclude(path, why);
        }
        let stat = match rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(errno) => return self.unreadable(path, errno.into()),
        };
        if self.found.entries.len() == WORKSPACE_ENTRIES {
            return Err(CaptureError::TooLarge { what: "the workspace's number of files" });
        }
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => self.enter(dir, name, path, &stat),
            FileType::RegularFile => self.file(dir, name, path, &stat),
            FileType::Symlink => self.link(dir, name, path, &stat),
            other => self.exclude(path, uncarried(other).unwrap_or("its type is not known")),
        }
    }

    fn enter(
        &mut self,
        dir: &OwnedFd,
        name: &[u8],
        path: &mut Vec<u8>,
        stat: &Stat,
    ) -> Result<(), CaptureError> {
        if self.excluded.contains(&(stat.st_dev, stat.st_ino)) {
            return self.exclude(path, "it is the session's own storage, or was named as not to travel");
        }
        let child = match beneath::open_dir(dir, name) {
            Ok(child) => child,
            Err(error) => return self.unreadable(path, error),
        };
        let entry = self.plain(path, EntryKind::Dir, stat);
        self.found.entries.push(entry);
        self.directory(&child, path)
    }

    fn link(&mut self, dir: &OwnedFd, name: &[u8], path: &[u8], stat: &Stat) -> Result<(), CaptureError> {
        let target = match rustix::fs::readlinkat(dir, name, Vec::new()) {
            Ok(target) => target.into_bytes(),
            Err(errno) => return self.unreadable(path, errno.into()),
        };
        if leads_out(path, &target) {
            let why = "the link points outside of the workspace and is carried as it is written";
            self.found.report.add(ReportKind::Degraded, &shown(path), why);
        }
        let entry =
            Entry { mode: 0, target: Some(Name(target)), ..self.plain(path, EntryKind::Symlink, stat) };
        self.found.entries.push(entry);
        Ok(())
    }

    fn file(&mut self, dir: &OwnedFd, name: &[u8], path: &[u8], stat: &Stat) -> Result<(), CaptureError> {
        if Stamp::of(stat).size > FILE_BYTES {
            return Err(CaptureError::TooLarge { what: "a file of the workspace" });
        }
        self.hard_links += u64::from(stat.st_nlink > 1);
        let Content { stamp, segments: content, seen } = match self.reuse(path, stat) {
            Some(content) => content,
            None => match self.read_until_settled(dir, name, path) {
                Ok(found) => found,
                Err(CaptureError::Io { source, .. }) => return self.unreadable(path, source),
                Err(error) => return Err(error),
            },
        };
        let bytes = content.iter().map(|segment| segment.length).sum::<u64>();
        self.check_room(bytes)?;
        self.bytes += bytes;
        self.search.tell(&mut self.found.report, &shown(path), seen.as_deref());
        if stamp.is_older_than(self.settled_before_ns) {
            let piece =
                |segment: &Segment| Piece { at: segment.at, length: segment.length, digest: segment.digest };
            let pieces = content.iter().map(piece).collect();
            self.found.files.insert(path.to_vec(), KnownFile { stamp, pieces, seen });
        }
        let entry = self.plain(path, EntryKind::File, stat);
        self.found.entries.push(Entry { size: stamp.size, mtime_ns: stamp.mtime_ns, content, ..entry });
        Ok(())
    }

    fn check_room(&self, bytes: u64) -> Result<(), CaptureError> {
        if self.bytes.saturating_add(bytes) > SNAPSHOT_LOGICAL_BYTES {
            return Err(CaptureError::TooLarge { what: "the workspace" });
        }
        Ok(())
    }

    /// The content as it is remembered, if the file has not changed and all of its pieces are stored.
    fn reuse(&self, path: &[u8], stat: &Stat) -> Option<Content> {
        let known = self.known.get(path).filter(|known| known.stamp == Stamp::of(stat))?;
        let segment = |piece: &Piece| {
            let place = self.packer.find(piece.digest)?;
            let Piece { at, length, digest } = *piece;
            Some(Segment { at, length, digest, pack: place.slot, offset: place.offset })
        };
        let segments = known.pieces.iter().map(segment).collect::<Option<_>>()?;
        Some(Content { stamp: known.stamp, segments, seen: known.seen.clone() })
    }

    fn read_until_settled(
        &mut self,
        dir: &OwnedFd,
        name: &[u8],
        path: &[u8],
    ) -> Result<Content, CaptureError> {
        for _ in 1..READ_AGAIN {
            if let Read::Whole(content) = self.read(dir, name, path)? {
                return Ok(content);
            }
        }
        match self.read(dir, name, path)? {
            Read::Whole(content) => Ok(content),
            Read::Changed(content) => {
                let why = "it changed while it was read; what is carried may mix two versions";
                self.found.report.add(ReportKind::Degraded, &shown(path), why);
                Ok(content)
            }
        }
    }

    fn read(&mut self, dir: &OwnedFd, name: &[u8], path: &[u8]) -> Result<Read, CaptureError> {
        let at_path = |source: io::Error| CaptureError::io(path, source);
        let file = File::from(beneath::open_file(dir, name).map_err(at_path)?);
        let stat = |file: &File| rustix::fs::fstat(file).map_err(|errno| at_path(errno.into()));
        let before = stat(&file)?;
        let mut stamp = Stamp::of(&before);
        // What is larger or has holes is data.
        let mut seen = Some(Vec::new());
        let mut content = Vec::new();
        let stretches = stretches(&file, &before).map_err(at_path)?;
        // Before anything is read: a sparse file can claim far more than it may ever carry.
        self.check_room(stretches.iter().map(|(start, end)| end - start).sum())?;
        for (start, end) in stretches {
            for at in (start..end).step_by(PACK_BYTES) {
                let length = (end - at).min(PACK_BYTES as u64);
                self.buffer.resize(length as usize, 0);
                let read = read_at(&file, &mut self.buffer, at).map_err(at_path)?;
                if read > 0 && (at, read as u64) == (0, stamp.size) {
                    seen = self.search.look(&self.buffer[..read]);
                }
                if read > 0 {
                    content.push(self.pack(at, read)?);
                }
                if (read as u64) < length {
                    stamp.size = at + read as u64;
                    return Ok(Read::Changed(Content { stamp, segments: content, seen }));
                }
            }
        }
        let same = Stamp::of(&stat(&file)?) == stamp;
        let content = Content { stamp, segments: content, seen };
        Ok(if same { Read::Whole(content) } else { Read::Changed(content) })
    }

    fn pack(&mut self, at: u64, length: usize) -> Result<Segment, CaptureError> {
        let (digest, place, pack) = self.packer.add(&self.buffer[..length]);
        self.outbox.send(pack)?;
        Ok(Segment { at, length: length as u64, digest, pack: place.slot, offset: place.offset })
    }

    fn plain(&mut self, path: &[u8], kind: EntryKind, stat: &Stat) -> Entry {
        let mode = stat.st_mode & 0o7777;
        if kind != EntryKind::Symlink && mode & !MODE_BITS != 0 {
            let why = "its set-uid or set-gid bit does not travel";
            self.found.report.add(ReportKind::Degraded, &shown(path), why);
        }
        let mtime_ns = Stamp::of(stat).mtime_ns;
        let (path, mode) = (Name(path.to_vec()), mode & MODE_BITS);
        Entry { path, kind, mode, mtime_ns, size: 0, content: Vec::new(), target: None }
    }

    fn exclude(&mut self, path: &[u8], why: &str) -> Result<(), CaptureError> {
        self.found.report.add(ReportKind::Excluded, &shown(path), why);
        Ok(())
    }

    /// What is gone was deleted meanwhile and is no loss; what may not be read is reported; the rest fails.
    fn unreadable(&mut self, path: &[u8], error: io::Error) -> Result<(), CaptureError> {
        match Errno::from_io_error(&error) {
            Some(Errno::NOENT) => Ok(()),
            Some(Errno::ACCESS | Errno::PERM) => self.exclude(path, "it may not be read"),
            Some(Errno::LOOP | Errno::NOTDIR | Errno::NXIO) => self.exclude(path, BECAME_ANOTHER),
            _ if error.kind() == ErrorKind::InvalidInput => self.exclude(path, BECAME_ANOTHER),
            _ => Err(CaptureError::io(path, error)),
        }
    }
}

/// Why an entry of this type is not carried; none for what is.
pub(crate) fn uncarried(kind: FileType) -> Option<&'static str> {
    match kind {
        FileType::Directory | FileType::RegularFile | FileType::Symlink => None,
        FileType::Fifo => Some("a named pipe has no content to carry"),
        FileType::Socket => Some("a socket has no content to carry"),
        FileType::CharacterDevice | FileType::BlockDevice => Some("a device belongs to its host"),
        FileType::Unknown => Some("its type is not known"),
    }
}

fn shown(path: &[u8]) -> String {
    String::from_utf8_lossy(path).into_owned()
}

/// Whether a link at `path` points outside of the workspace, judged by its words alone.
fn leads_out(path: &[u8], target: &[u8]) -> bool {
    let mut depth = path.iter().filter(|byte| **byte == b'/').count();
    target.starts_with(b"/")
        || target.split(|byte| *byte == b'/').any(|name| match name {
            b".." if depth == 0 => true,
            b".." => {
                depth -= 1;
                false
            }
            b"" | b"." => false,
            _ => {
                depth += 1;
                false
            }
        })
}

/// Where a file has data. A file without holes is one stretch.
fn stretches(file: &File, stat: &Stat) -> io::Result<Vec<(u64, u64)>> {
    let size = u64::try_from(stat.st_size).unwrap_or(0);
    let whole = if size == 0 { Vec::new() } else { vec![(0, size)] };
    if u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(512) >= size {
        return Ok(whole);
    }
    let (mut found, mut at) = (Vec::new(), 0);
    while at < size {
        let start = match rustix::fs::seek(file.as_fd(), SeekFrom::Data(at)) {
            Ok(start) => start,
            Err(Errno::NXIO) => break,
            // The filesystem does not know its holes.
            Err(Errno::INVAL) => return Ok(whole),
            Err(errno) => return Err(errno.into()),
        };
        let end = rustix::fs::seek(file.as_fd(), SeekFrom::Hole(start))?.min(size);
        if end <= start || found.len() == STRETCHES {
            return Ok(whole);
        }
        found.push((start, end));
        at = end;
    }
    Ok(found)
}

/// Reads until the buffer is full or the file ends.
fn read_at(file: &File, buffer: &mut [u8], at: u64) -> io::Result<usize> {
    let mut read = 0;
    while read < buffer.len() {
        match file.read_at(&mut buffer[read..], at + read as u64) {
            Ok(0) => break,
            Ok(more) => read += more,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(read)
}
