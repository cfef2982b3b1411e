//! Opening what is inside a directory and nothing else.
//!
//! Paths are relative bytes of plain names. `openat2` refuses links, magic links and `..` on every component.
//! Where the kernel or a filter has no `openat2`, the path is walked name by name without following links,
//! which comes to the same as long as names are plain; [`check_path`] makes sure that they are.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use crate::limits::{NAME_BYTES, PATH_BYTES, WORKSPACE_DEPTH};

const INSIDE: ResolveFlags =
    ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS).union(ResolveFlags::NO_MAGICLINKS);
/// A lookup that races with a rename is answered with EAGAIN; the race does not last.
const TRIES: usize = 16;
/// Directories that are open at once while a tree is removed.
const OPEN_LEVELS: usize = 64;
/// Names of one directory that are in memory at once while a tree is removed.
const REMOVED_AT_ONCE: usize = 10_000;

/// A name that nobody can guess.
pub(crate) fn random_name() -> String {
    let mut bytes = [0; 16];
    // Whoever uses the name makes it exclusively, so a short read of randomness only makes a clash likelier.
    let _ = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Opens a directory that the caller names and trusts.
pub(crate) fn open_root(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

/// Opens a directory beneath `root`.
pub(crate) fn open_dir(root: impl AsFd, path: &[u8]) -> io::Result<OwnedFd> {
    open(root, path, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())
}

/// Opens a regular file beneath `root` for reading; anything else is refused without being waited for.
pub(crate) fn open_file(root: impl AsFd, path: &[u8]) -> io::Result<OwnedFd> {
    let file = open(root, path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY, Mode::empty())?;
    let found = rustix::fs::fstat(&file)?;
    if FileType::from_raw_mode(found.st_mode) == FileType::RegularFile {
        Ok(file)
    } else {
        Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"))
    }
}

/// Makes a new file beneath `root`, readable and writable by its owner only.
pub(crate) fn create_file(root: impl AsFd, path: &[u8]) -> io::Result<OwnedFd> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
    open(root, path, flags, Mode::RUSR | Mode::WUSR)
}

/// Opens beneath `root` without following any link.
pub(crate) fn open(root: impl AsFd, path: &[u8], flags: OFlags, mode: Mode) -> io::Result<OwnedFd> {
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    for _ in 0..TRIES {
        match rustix::fs::openat2(root.as_fd(), path, flags, mode, INSIDE) {
            Err(Errno::AGAIN) => {}
            Err(Errno::NOSYS | Errno::PERM) => return walk(root.as_fd(), path, flags, mode),
            opened => return Ok(opened?),
        }
    }
    Err(Errno::AGAIN.into())
}

fn walk(root: BorrowedFd<'_>, path: &[u8], flags: OFlags, mode: Mode) -> io::Result<OwnedFd> {
    check_path(path).map_err(|why| io::Error::new(io::ErrorKind::InvalidInput, why))?;
    let (parents, name) = split(path);
    let step = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut at: Option<OwnedFd> = None;
    for parent in parents.split(|byte| *byte == b'/').filter(|parent| !parent.is_empty()) {
        let from = at.as_ref().map_or(root, OwnedFd::as_fd);
        at = Some(rustix::fs::openat(from, parent, step, Mode::empty())?);
    }
    Ok(rustix::fs::openat(at.as_ref().map_or(root, OwnedFd::as_fd), name, flags, mode)?)
}

/// The path of the parent, empty for the root itself, and the last name.
pub(crate) fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(slash) => (&path[..slash], &path[slash + 1..]),
        None => (b"", path),
    }
}

/// Refuses everything but plain relative names: no empty one, no `.`, no `..`, no NUL, not too long or deep.
pub(crate) fn check_path(path: &[u8]) -> Result<(), &'static str> {
    if path.len() > PATH_BYTES {
        return Err("the path is longer than 4095 bytes");
    }
    let mut depth = 0;
    for name in path.split(|byte| *byte == b'/') {
        depth += 1;
        match name {
            b"" => return Err("the path is absolute or has an empty name"),
            b"." | b".." => return Err("the path has the name '.' or '..'"),
            _ if name.len() > NAME_BYTES => return Err("a name is longer than 255 bytes"),
            _ if name.contains(&0) => return Err("the path has a NUL"),
            _ => {}
        }
    }
    if depth > WORKSPACE_DEPTH { Err("the path is deeper than 256 levels") } else { Ok(()) }
}

/// The names in a directory, sorted by their bytes; not more than so many, and then not the first ones.
pub(crate) fn names(dir: impl AsFd, at_most: usize) -> io::Result<Vec<Vec<u8>>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(dir)? {
        if names.len() == at_most {
            break;
        }
        let name = entry?.file_name().to_bytes().to_vec();
        if name != b"." && name != b".." {
            names.push(name);
        }
    }
    names.sort_unstable();
    Ok(names)
}

/// Removes a directory and all that is in it, whatever modes the entries have, following no link. What is
/// not there is fine.
///
/// # Errors
/// Where something cannot be removed; the rest may be gone.
pub fn remove_tree(path: &Path) -> io::Result<()> {
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
        Ok(found) if !found.is_dir() => return std::fs::remove_file(path),
        Ok(_) => {}
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let root = rustix::fs::open(path, flags | OFlags::PATH, Mode::empty())?;
    empty(&root)?;
    match std::fs::remove_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

/// Neither recursion nor one open file per level: a hostile tree may be deeper than both. What lies deep is
/// moved up to the root and comes later.
fn empty(root: &OwnedFd) -> io::Result<()> {
    let mut levels = vec![Level::of(readable(root.as_fd())?, Vec::new())?];
    while let Some(level) = levels.last_mut() {
        if level.names.is_empty() {
            level.names = names(&level.dir, REMOVED_AT_ONCE)?;
        }
        let Some(name) = level.names.pop() else {
            let emptied = levels.pop().expect("just seen");
            if let Some(parent) = levels.last() {
                rustix::fs::unlinkat(&parent.dir, emptied.name, AtFlags::REMOVEDIR)?;
            }
            continue;
        };
        let found = match rustix::fs::statat(&level.dir, name.as_slice(), AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => continue,
            found => found?,
        };
        if FileType::from_raw_mode(found.st_mode) != FileType::Directory {
            rustix::fs::unlinkat(&level.dir, name.as_slice(), AtFlags::empty())?;
            continue;
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let child = rustix::fs::openat(&level.dir, name.as_slice(), flags, Mode::empty())?;
        let child = readable(child.as_fd())?;
        if levels.len() < OPEN_LEVELS {
            levels.push(Level::of(child, name)?);
        } else {
            // A name that the tree's author cannot have taken.
            let up = random_name();
            let from = &levels.last().expect("just seen").dir;
            rustix::fs::renameat(from, name.as_slice(), &levels[0].dir, up)?;
        }
    }
    Ok(())
}

struct Level {
    dir: OwnedFd,
    name: Vec<u8>,
    names: Vec<Vec<u8>>,
}

impl Level {
    fn of(dir: OwnedFd, name: Vec<u8>) -> io::Result<Self> {
        Ok(Self { names: names(&dir, REMOVED_AT_ONCE)?, dir, name })
    }
}

/// Gives the owner all rights on a directory and opens it.
fn readable(dir: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let found = rustix::fs::fstat(dir)?;
    if found.st_mode & 0o700 != 0o700 {
        let link = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&dir));
        rustix::fs::chmod(link, Mode::RWXU)?;
    }
    Ok(rustix::fs::openat(dir, ".", flags, Mode::empty())?)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn plain_relative_paths_only() {
        for good in [&b"a"[..], b"a/b", b"..a/b..", b"\xff/\xc3\xa9", &[b'x'; 255]] {
            assert_eq!(check_path(good), Ok(()), "{good:?}");
        }
        let deep = vec![&b"d"[..]; WORKSPACE_DEPTH + 1].join(&b'/');
        for bad in
            [&b""[..], b"/a", b"a/", b"a//b", b".", b"..", b"a/../b", b"../a", b"a\0", &[b'x'; 256], &deep]
        {
            assert!(check_path(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn no_way_leads_out() {
        let root = tempfile::tempdir().expect("a directory");
        std::fs::create_dir(root.path().join("in")).expect("made");
        std::fs::write(root.path().join("secret"), "x").expect("made");
        std::fs::write(root.path().join("in/file"), "x").expect("made");
        symlink("../secret", root.path().join("in/link")).expect("made");
        symlink("..", root.path().join("in/up")).expect("made");
        symlink("file", root.path().join("in/inside")).expect("made");
        let dir = open_root(&root.path().join("in")).expect("opens");
        for path in ["link", "up/secret", "inside", "../secret", "/etc/passwd"] {
            assert!(open_file(&dir, path.as_bytes()).is_err(), "{path}");
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW;
            assert!(walk(dir.as_fd(), path.as_bytes(), flags, Mode::empty()).is_err(), "{path} by walking");
        }
        assert!(open_file(&dir, b"file").is_ok());
        assert!(walk(dir.as_fd(), b"file", OFlags::RDONLY, Mode::empty()).is_ok());
    }

    #[test]
    fn a_pipe_is_refused_and_not_waited_for() {
        let root = tempfile::tempdir().expect("a directory");
        let dir = open_root(root.path()).expect("opens");
        rustix::fs::mknodat(&dir, "pipe", FileType::Fifo, Mode::RUSR, 0).expect("made");
        assert_eq!(open_file(&dir, b"pipe").expect_err("no file").kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn a_tree_goes_whatever_its_modes_and_depth_and_links_are_not_followed() {
        let root = tempfile::tempdir().expect("a directory");
        let (tree, outside) = (root.path().join("tree"), root.path().join("outside"));
        std::fs::create_dir(&outside).expect("made");
        std::fs::write(outside.join("kept"), "x").expect("made");
        let deep = (0..300).fold(tree.clone(), |path, _| path.join("d"));
        std::fs::create_dir_all(&deep).expect("made");
        for number in 0..REMOVED_AT_ONCE + 5 {
            std::fs::write(tree.join(format!("d/file-{number}")), "").expect("made");
        }
        symlink(&outside, tree.join("link")).expect("made");
        for path in [tree.join("d/d"), tree.join("d"), tree.clone()] {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o000)).expect("set");
        }
        remove_tree(&tree).expect("removed");
        remove_tree(&tree).expect("is gone already");
        assert!(!tree.exists() && outside.join("kept").exists());
    }
}
