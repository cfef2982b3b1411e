//! Who the payload is on the host: a user of its own that owns nothing where root starts it and the file
//! system can map owners, else the owner of the destination's directory.
//!
//! Inside it is always uid and gid [`INSIDE`]. A user namespace alone does not change who it is for files of
//! the host: root mapped to 1000 is still the owner of `/proc/sys`. With a uid that owns nothing, what might
//! become visible by a mistake elsewhere still cannot be written to, nor read unless everyone may.

use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::CWD;
use rustix::mount::{OpenTreeFlags, open_tree};
use rustix::process::{Pid, WaitOptions, geteuid, waitpid};

use super::plan::LaunchPlan;
use crate::sys::{self, Fork};

/// The uid and gid inside.
pub(crate) const INSIDE: u32 = 1000;

/// First of the 65536 ids that destinations get. Above what systemd, container engines and subordinate id
/// ranges use (systemd's UIDS-GIDS: 1879048192 to 2147483647 are free).
const FIRST: u32 = 0x7000_0000;

/// The trees that come from the destination: workspace, state, door, binary.
pub(crate) struct Trees {
    pub(crate) workspace: OwnedFd,
    pub(crate) state: OwnedFd,
    pub(crate) door: OwnedFd,
    pub(crate) exe: OwnedFd,
}

/// Who the payload is on the host.
pub(crate) struct Identity {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// Opened by root before it is somebody else; a plain user opens them inside.
    pub(crate) trees: Option<Trees>,
    pub(crate) by: String,
}

impl Identity {
    pub(crate) fn choose(plan: &LaunchPlan) -> io::Result<Self> {
        let owner = fs::metadata(plan.dir.join("workspace"))?;
        let (uid, gid) = (owner.uid(), owner.gid());
        if !geteuid().is_root() {
            let (uid, gid) = (geteuid().as_raw(), rustix::process::getegid().as_raw());
            return Ok(Self { uid, gid, trees: None, by: format!("{INSIDE} inside, this user outside") });
        }
        let own = FIRST + hash16(plan.name.as_str());
        if let Ok(map) = IdMap::new(uid, gid, own)
            && let Ok(trees) = Trees::open(plan, Some(&map.namespace))
        {
            return Ok(Self {
                uid: own,
                gid: own,
                trees: Some(trees),
                by: format!("{INSIDE} inside, {own} outside"),
            });
        }
        // Without CAP_SYS_ADMIN root can open no tree either; the child can, in its own namespace.
        let trees = Trees::open(plan, None).ok();
        Ok(Self { uid, gid, trees, by: format!("{INSIDE} inside, the directory's owner {uid} outside") })
    }

    /// Maps the ids of a process that has just begun in a new user namespace.
    pub(crate) fn give_to(&self, pid: Pid) -> io::Result<()> {
        let file = |name: &str| format!("/proc/{}/{name}", pid.as_raw_pid());
        let uids = format!("{INSIDE} {} 1", self.uid);
        let gids = format!("{INSIDE} {} 1", self.gid);
        fs::write(file("uid_map"), uids)?;
        if fs::write(file("gid_map"), &gids).is_ok() {
            return Ok(());
        }
        // A plain user may map its group only after giving up the right to change groups.
        fs::write(file("setgroups"), "deny")?;
        fs::write(file("gid_map"), gids)
    }
}

impl Trees {
    /// Opens the four, from the host's paths as this process sees them.
    pub(crate) fn open(plan: &LaunchPlan, idmap: Option<&OwnedFd>) -> io::Result<Self> {
        let rw = libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV;
        let ro = rw | libc::MOUNT_ATTR_RDONLY;
        let open = |path: &Path, attributes| {
            let tree = clone_tree(path, OpenTreeFlags::AT_SYMLINK_NOFOLLOW)?;
            sys::mount_setattr(&tree, true, attributes, idmap)?;
            Ok::<_, io::Error>(tree)
        };
        Ok(Self {
            workspace: open(&plan.dir.join("workspace"), rw)?,
            state: open(&plan.dir.join("state"), rw)?,
            door: open(&plan.dir.join("door"), ro)?,
            exe: open(&plan.exe, ro)?,
        })
    }
}

/// A mount of its own of what is at a path, with everything mounted below.
pub(crate) fn clone_tree(path: &Path, flags: OpenTreeFlags) -> io::Result<OwnedFd> {
    let all = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_RECURSIVE;
    Ok(open_tree(CWD, path, all | flags)?)
}

/// A user namespace that exists only to say how owners on disk are shown: the mapping of an idmapped mount.
struct IdMap {
    namespace: OwnedFd,
}

impl IdMap {
    /// What belongs to `uid` and `gid` on disk is shown as belonging to `shown`, and the other way when
    /// something is made.
    fn new(uid: u32, gid: u32, shown: u32) -> io::Result<Self> {
        let (mut hold, release) = io::pipe()?;
        // SAFETY: the launcher has one thread.
        match unsafe { sys::fork(libc::CLONE_NEWUSER) }? {
            Fork::Child => {
                drop(release);
                let _ = hold.read(&mut [0]);
                sys::exit_now(0)
            }
            Fork::Parent(pid) => {
                let namespace = Self::map(pid, uid, gid, shown);
                drop(release);
                waitpid(Some(pid), WaitOptions::empty())?;
                Ok(Self { namespace: namespace? })
            }
        }
    }

    fn map(pid: Pid, uid: u32, gid: u32, shown: u32) -> io::Result<OwnedFd> {
        let file = |name: &str| format!("/proc/{}/{name}", pid.as_raw_pid());
        fs::OpenOptions::new()
            .write(true)
            .open(file("uid_map"))?
            .write_all(format!("{uid} {shown} 1").as_bytes())?;
        fs::OpenOptions::new()
            .write(true)
            .open(file("gid_map"))?
            .write_all(format!("{gid} {shown} 1").as_bytes())?;
        Ok(fs::File::open(file("ns/user"))?.into())
    }
}

/// Spreads names over the id range: two sandboxes rarely share an id, and lose nothing that matters if they
/// do (FNV-1a, folded).
fn hash16(text: &str) -> u32 {
    let hash =
        text.bytes().fold(0x811c_9dc5u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    (hash >> 16) ^ (hash & 0xffff)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_id_is_in_the_range() {
        for name in ["a", "xfr_01-1", ""] {
            assert!(hash16(name) <= 0xffff);
        }
        assert_ne!(hash16("a"), hash16("b"));
    }
}
