//! The workspace as the kernel guards it: every path is resolved beneath it, and links that lead out of it lead
//! nowhere.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{Mode, OFlags, ResolveFlags};

/// A workspace that is open.
#[derive(Debug)]
pub(crate) struct Workspace {
    root: OwnedFd,
    path: PathBuf,
    /// Where the workspace was on other hosts: histories still name files there.
    elsewhere: Vec<PathBuf>,
}

impl Workspace {
    /// Opens the workspace at this path. `elsewhere` are absolute paths that mean it too.
    pub(crate) fn open(path: &Path, elsewhere: Vec<PathBuf>) -> io::Result<Self> {
        let path = path.canonicalize()?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(&path, flags, Mode::empty())?;
        Ok(Self { root, path, elsewhere })
    }

    /// Its absolute path here.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The path within the workspace that is meant; relative paths start at `cwd`. Whether it leads out is for
    /// the kernel to say.
    pub(crate) fn relative(&self, cwd: &str, asked: &str) -> Result<PathBuf, String> {
        let asked = Path::new(asked);
        let within = if asked.is_absolute() {
            let known = std::iter::once(&self.path).chain(&self.elsewhere);
            let within = known.filter_map(|root| asked.strip_prefix(root).ok()).next();
            within
                .ok_or_else(|| format!("error: {} is outside of the workspace", asked.display()))?
                .to_owned()
        } else {
            Path::new(cwd).join(asked)
        };
        let parts = within.components().filter(|part| *part != Component::CurDir);
        let plain: PathBuf = parts.collect();
        Ok(if plain.as_os_str().is_empty() { PathBuf::from(".") } else { plain })
    }

    /// Opens something beneath the workspace, never waiting for it.
    pub(crate) fn open_at(&self, path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
        let waits =
            if flags.contains(OFlags::PATH) { OFlags::empty() } else { OFlags::NONBLOCK | OFlags::NOCTTY };
        let flags = flags | waits | OFlags::CLOEXEC;
        let mode = if flags.contains(OFlags::CREATE) { Mode::from_raw_mode(0o644) } else { Mode::empty() };
        let how = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        // A rename beside the resolution makes the kernel give up rather than guess.
        let mut tries = 0;
        loop {
            match rustix::fs::openat2(&self.root, path, flags, mode, how) {
                Err(rustix::io::Errno::AGAIN) if tries < 8 => tries += 1,
                opened => return Ok(opened?),
            }
        }
    }

    /// Opens a regular file; anything else is refused unread.
    pub(crate) fn file(&self, path: &Path, flags: OFlags) -> io::Result<File> {
        let file = File::from(self.open_at(path, flags)?);
        if file.metadata()?.is_file() {
            Ok(file)
        } else {
            Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"))
        }
    }

    /// Opens a directory.
    pub(crate) fn directory(&self, path: &Path) -> io::Result<OwnedFd> {
        self.open_at(path, OFlags::RDONLY | OFlags::DIRECTORY)
    }

    /// Makes the directories that a file at this path needs.
    pub(crate) fn make_parents(&self, path: &Path) -> io::Result<()> {
        let mut above = PathBuf::from(".");
        for part in path.parent().unwrap_or(Path::new("")).components() {
            let parent = self.open_at(&above, OFlags::PATH | OFlags::DIRECTORY)?;
            above.push(part);
            if let Component::Normal(name) = part {
                match rustix::fs::mkdirat(&parent, name, Mode::from_raw_mode(0o755)) {
                    Ok(()) | Err(rustix::io::Errno::EXIST) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Ok(())
    }
}

/// What the model is told about a path that could not be had.
pub(crate) fn told(path: &Path, error: &io::Error) -> String {
    let path = path.display();
    match rustix::io::Errno::from_io_error(error) {
        Some(rustix::io::Errno::XDEV) => format!("error: {path} is outside of the workspace"),
        _ => format!("error: {path}: {error}"),
    }
}
