//! The file system inside: an empty memory file system, filled from a list of what may be seen. What is not
//! on the list is not there.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use rustix::fs::CWD;
use rustix::mount::{
    MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags, mount, mount_change,
    move_mount, unmount,
};

use super::identity::{INSIDE, Trees, clone_tree};
use crate::sys::mount_setattr;

/// Programs and libraries. Where the host has a symbolic link, so has the sandbox.
pub(crate) const PROGRAMS: [&str; 7] = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"];

/// What of the host's configuration is shown: the linker's cache, program choices, certificates, the time
/// zone. No users, no hosts, no keys.
pub(crate) const CONFIGURATION: [&str; 8] = [
    "/etc/ld.so.cache",
    "/etc/alternatives",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
    "/etc/ca-certificates",
    "/etc/pki/tls/certs",
    "/etc/pki/ca-trust/extracted",
    "/etc/localtime",
];

pub(crate) const DEVICES: [&str; 5] = ["null", "zero", "full", "random", "urandom"];

/// What /proc shows of the whole machine that nobody inside needs, where it is there.
const HIDDEN: [&str; 6] = ["kcore", "keys", "key-users", "timer_list", "sched_debug", "sysrq-trigger"];

const READ_ONLY: u64 = libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV;
const DEVICE: u64 = libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NOEXEC;

/// Something of the host that will be shown at the same path inside.
enum Shown {
    Directory(PathBuf, OwnedFd),
    File(PathBuf, OwnedFd),
    Link(PathBuf, PathBuf),
}

/// Takes hold of everything that will be shown, as long as the host's paths still lead there.
pub(crate) struct Gathered {
    shown: Vec<Shown>,
    devices: Vec<(&'static str, OwnedFd)>,
    trees: Trees,
}

impl Gathered {
    pub(crate) fn new(trees: Trees) -> io::Result<Self> {
        let mut shown = Vec::new();
        for path in PROGRAMS.iter().chain(&CONFIGURATION) {
            shown.extend(take(Path::new(path))?);
        }
        let device = |name: &'static str| {
            let tree = clone_tree(&Path::new("/dev").join(name), OpenTreeFlags::empty())?;
            mount_setattr(&tree, false, DEVICE, None)?;
            Ok::<_, io::Error>((name, tree))
        };
        let devices = DEVICES.into_iter().map(device).collect::<io::Result<_>>()?;
        Ok(Self { shown, devices, trees })
    }
}

fn take(path: &Path) -> io::Result<Option<Shown>> {
    let Ok(found) = fs::symlink_metadata(path) else { return Ok(None) };
    if found.is_symlink() {
        return Ok(Some(Shown::Link(path.to_owned(), fs::read_link(path)?)));
    }
    let tree = match clone_tree(path, OpenTreeFlags::AT_SYMLINK_NOFOLLOW) {
        Ok(tree) => tree,
        // On the list, but not for this user to see.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Ok(None),
        Err(error) => return Err(error),
    };
    mount_setattr(&tree, true, READ_ONLY, None)?;
    let (path, is_dir) = (path.to_owned(), found.is_dir());
    Ok(Some(if is_dir { Shown::Directory(path, tree) } else { Shown::File(path, tree) }))
}

/// Builds the root, moves into it and lets go of the host's. `source` marks the mount as ours.
pub(crate) fn enter(gathered: Gathered, source: &str, tmp_bytes: u64) -> io::Result<()> {
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
    let base = stand_on(source)?;
    std::env::set_current_dir(base)?;
    for shown in gathered.shown {
        place_shown(shown)?;
    }
    for dir in ["etc", "dev/shm", "proc", "tmp", "run", "var", "workspace", "handoff/bin", "handoff/state"] {
        fs::create_dir_all(dir)?;
    }
    fs::create_dir_all("handoff/door")?;
    symlink("/tmp", "var/tmp")?;
    write_configuration()?;
    devices(gathered.devices)?;
    scratch("tmp", tmp_bytes)?;
    scratch("dev/shm", tmp_bytes)?;
    let trees = gathered.trees;
    attach(&trees.workspace, Path::new("workspace"))?;
    attach(&trees.state, Path::new("handoff/state"))?;
    attach(&trees.door, Path::new("handoff/door"))?;
    fs::File::create("handoff/bin/handoff")?;
    attach(&trees.exe, Path::new("handoff/bin/handoff"))?;
    processes()?;
    leave_host()
}

/// Mounts the new root over some directory of the host, which nobody else sees and which is gone a moment
/// later. Which one does not matter, as long as it is there.
fn stand_on(source: &str) -> io::Result<&'static str> {
    let base = ["/tmp", "/var", "/usr"].into_iter().find(|path| Path::new(path).is_dir());
    let base = base.ok_or_else(|| io::Error::other("the host has none of /tmp, /var, /usr"))?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    mount(source, base, "tmpfs", flags, c"size=1m,nr_inodes=512,mode=0755")?;
    Ok(base)
}

fn place_shown(shown: Shown) -> io::Result<()> {
    match shown {
        Shown::Directory(path, tree) => {
            let inside = below(&path);
            fs::create_dir_all(inside)?;
            attach(&tree, inside)
        }
        Shown::File(path, tree) => {
            let inside = below(&path);
            parent_of(inside)?;
            fs::File::create(inside)?;
            attach(&tree, inside)
        }
        Shown::Link(path, target) => {
            let inside = below(&path);
            parent_of(inside)?;
            symlink(target, inside)
        }
    }
}

fn below(path: &Path) -> &Path {
    path.strip_prefix("/").unwrap_or(path)
}

fn parent_of(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), fs::create_dir_all)
}

fn attach(tree: &OwnedFd, inside: &Path) -> io::Result<()> {
    Ok(move_mount(tree, "", CWD, inside, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?)
}

/// Files that exist only here: one user, one host, no name service.
fn write_configuration() -> io::Result<()> {
    let passwd = format!(
        "agent:x:{INSIDE}:{INSIDE}:agent:/workspace:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n"
    );
    fs::write("etc/passwd", passwd)?;
    fs::write("etc/group", format!("agent:x:{INSIDE}:\nnogroup:x:65534:\n"))?;
    fs::write("etc/hosts", "127.0.0.1 localhost handoff\n::1 localhost\n")?;
    fs::write("etc/hostname", "handoff\n")?;
    fs::write("etc/resolv.conf", "")?;
    fs::write("etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files\n")
}

fn devices(devices: Vec<(&'static str, OwnedFd)>) -> io::Result<()> {
    for (name, tree) in devices {
        let inside = Path::new("dev").join(name);
        fs::File::create(&inside)?;
        attach(&tree, &inside)?;
    }
    for (name, target) in [("fd", ""), ("stdin", "/0"), ("stdout", "/1"), ("stderr", "/2")] {
        symlink(format!("/proc/self/fd{target}"), Path::new("dev").join(name))?;
    }
    Ok(())
}

fn scratch(inside: &str, bytes: u64) -> io::Result<()> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    let options = std::ffi::CString::new(format!("size={bytes},nr_inodes=64k,mode=1777"));
    let options = options.expect("digits and letters");
    Ok(mount("tmpfs", inside, "tmpfs", flags, options.as_c_str())?)
}

/// Its own /proc, which nothing inside can write to: a payload that is root on the host would own what is in
/// /proc/sys.
fn processes() -> io::Result<()> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC | MountFlags::RDONLY;
    mount("proc", "proc", "proc", flags, None)?;
    for name in HIDDEN {
        let hidden = Path::new("proc").join(name);
        if hidden.exists() {
            attach(&clone_tree(Path::new("dev/null"), OpenTreeFlags::empty())?, &hidden)?;
        }
    }
    Ok(())
}

/// Makes the current directory the root and detaches the host's (pivot_root(2): with both on the same
/// directory the old root ends up on top of the new one, from where it is unmounted).
fn leave_host() -> io::Result<()> {
    rustix::process::pivot_root(".", ".")?;
    unmount(".", UnmountFlags::DETACH)?;
    std::env::set_current_dir("/")?;
    mount_setattr(fs::File::open("/")?, false, READ_ONLY, None)
}
