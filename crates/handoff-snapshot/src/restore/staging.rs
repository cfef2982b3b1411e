//! Putting two directories in place so that nobody ever sees half of them.
//!
//! ```text
//! <parent>/.<state>.restoring/state      the session directory while it is filled
//! <parent>/.<state>.restoring/placing    device and inode of the filled workspace: it is about to be moved
//! <parent>/.<workspace>.restoring        the workspace while it is filled
//! ```
//!
//! The workspace is moved first, the session directory last: where that stands, the restore is whole. A
//! restore that was killed in between has left `placing`, by which the next one knows that the workspace in
//! place is its own and takes it away; a workspace of anybody else is never touched.

use std::fs;
use std::io::{self, ErrorKind, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use super::{RestoreError, RestoreTarget};
use crate::beneath;

/// The places of one restore.
pub(super) struct Staging {
    target: RestoreTarget,
    area: PathBuf,
    workspace: PathBuf,
}

impl Staging {
    /// Takes away what an earlier restore left, and makes the empty places.
    pub(super) fn start(target: RestoreTarget) -> Result<Self, RestoreError> {
        let staging =
            Self { area: beside(&target.state_dir), workspace: beside(&target.workspace_dir), target };
        for dir in [&staging.target.state_dir, &staging.target.workspace_dir] {
            let parent = dir.parent().unwrap_or(Path::new("."));
            fs::create_dir_all(parent).map_err(|error| RestoreError::io(parent, error))?;
        }
        staging.recover()?;
        for dir in [&staging.target.state_dir, &staging.target.workspace_dir] {
            if !is_free(dir).map_err(|error| RestoreError::io(dir, error))? {
                return Err(RestoreError::TargetInUse(dir.clone()));
            }
        }
        for dir in [&staging.area, &staging.state(), &staging.workspace] {
            let made = fs::DirBuilder::new().mode(0o700).create(dir);
            made.map_err(|error| RestoreError::io(dir, error))?;
        }
        Ok(staging)
    }

    pub(super) fn state(&self) -> PathBuf {
        self.area.join("state")
    }

    pub(super) fn open_state(&self) -> Result<OwnedFd, RestoreError> {
        beneath::open_root(&self.state()).map_err(|error| RestoreError::io(&self.state(), error))
    }

    pub(super) fn open_workspace(&self) -> Result<OwnedFd, RestoreError> {
        beneath::open_root(&self.workspace).map_err(|error| RestoreError::io(&self.workspace, error))
    }

    /// Moves both directories to where they belong.
    pub(super) fn place(self) -> Result<(), RestoreError> {
        self.place_now().map_err(|error| RestoreError::io(&self.target.state_dir, error))
    }

    fn place_now(&self) -> io::Result<()> {
        if self.target.durable {
            rustix::fs::syncfs(beneath::open_root(&self.state())?)?;
            if identity(&self.workspace)?.0 != identity(&self.state())?.0 {
                rustix::fs::syncfs(beneath::open_root(&self.workspace)?)?;
            }
        }
        self.mark()?;
        fs::rename(&self.workspace, &self.target.workspace_dir)?;
        fs::rename(self.state(), &self.target.state_dir)?;
        if self.target.durable {
            for dir in [&self.target.state_dir, &self.target.workspace_dir] {
                fs::File::open(dir.parent().unwrap_or(Path::new(".")))?.sync_all()?;
            }
        }
        beneath::remove_tree(&self.area)
    }

    fn mark(&self) -> io::Result<()> {
        let (device, inode) = identity(&self.workspace)?;
        let mut mark = fs::File::create_new(self.marker())?;
        write!(mark, "{device} {inode}")?;
        mark.sync_all()
    }

    /// Takes everything away again.
    pub(super) fn discard(self) {
        for dir in [&self.area, &self.workspace] {
            if let Err(error) = beneath::remove_tree(dir) {
                tracing::warn!(dir = %dir.display(), %error, "a failed restore's leftovers stay until the next");
            }
        }
    }

    fn marker(&self) -> PathBuf {
        self.area.join("placing")
    }

    fn recover(&self) -> Result<(), RestoreError> {
        let placed = &self.target.workspace_dir;
        let marked = fs::read_to_string(self.marker()).ok();
        let is_ours = marked.is_some_and(|mark| {
            identity(placed).is_ok_and(|(device, inode)| mark == format!("{device} {inode}"))
        });
        if is_ours {
            beneath::remove_tree(placed).map_err(|error| RestoreError::io(placed, error))?;
        }
        for dir in [&self.workspace, &self.area] {
            beneath::remove_tree(dir).map_err(|error| RestoreError::io(dir, error))?;
        }
        Ok(())
    }
}

/// A hidden neighbor, so that a rename stays within one filesystem.
fn beside(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.restoring"))
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let found = fs::symlink_metadata(path)?;
    Ok((found.dev(), found.ino()))
}

/// Missing, or an empty directory, which a rename replaces.
fn is_free(path: &Path) -> io::Result<bool> {
    match fs::read_dir(path) {
        Ok(mut entries) => Ok(entries.next().is_none()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotADirectory => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(root: &Path) -> RestoreTarget {
        RestoreTarget::new(root.join("state"), root.join("workspace"))
    }

    fn left(root: &Path) -> Vec<String> {
        let entries = fs::read_dir(root).expect("readable").map(|entry| entry.expect("readable").file_name());
        let mut names: Vec<_> = entries.map(|name| name.to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    #[test]
    fn case_s31_killed_between_the_two_moves_starts_over() {
        let root = tempfile::tempdir().expect("a directory");
        let killed = Staging::start(target(root.path())).expect("free");
        fs::write(killed.workspace.join("file"), "half").expect("written");
        killed.mark().expect("written");
        fs::rename(&killed.workspace, &killed.target.workspace_dir).expect("moved");
        drop(killed);
        let again = Staging::start(target(root.path())).expect("its own leftovers are no obstacle");
        assert!(!root.path().join("workspace").exists(), "it starts over");
        again.place().expect("placed");
        assert_eq!(left(root.path()), ["state", "workspace"]);
    }

    #[test]
    fn somebody_elses_workspace_is_never_touched() {
        let root = tempfile::tempdir().expect("a directory");
        let killed = Staging::start(target(root.path())).expect("free");
        killed.mark().expect("written");
        drop(killed);
        fs::create_dir(root.path().join("workspace")).expect("made");
        fs::write(root.path().join("workspace/precious"), "x").expect("made");
        assert!(matches!(Staging::start(target(root.path())), Err(RestoreError::TargetInUse(_))));
        assert!(root.path().join("workspace/precious").exists());
    }

    #[test]
    fn empty_targets_are_replaced_and_a_failure_leaves_nothing() {
        let root = tempfile::tempdir().expect("a directory");
        fs::create_dir(root.path().join("state")).expect("made");
        let staging = Staging::start(target(root.path())).expect("an empty one is free");
        fs::write(staging.state().join("session.json"), "{}").expect("written");
        staging.place().expect("placed");
        assert!(root.path().join("state/session.json").exists());
        let other = RestoreTarget::new(root.path().join("s2"), root.path().join("w2"));
        Staging::start(other).expect("free").discard();
        assert_eq!(left(root.path()), ["state", "workspace"]);
    }
}
