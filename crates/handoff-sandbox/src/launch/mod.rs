//! Stage one of a start, on the host side, in a process of its own with one thread: the node has many, and a
//! fork of a process with many threads may do next to nothing safely.
//!
//! It enters the init's cgroup, binds `init.sock`, opens what only the host's side can open, makes a child in
//! new namespaces, maps its ids, says its process id, and ends. The child goes on in [`inside`].

pub(crate) mod bare;
pub(crate) mod identity;
mod inside;
pub(crate) mod plan;
pub(crate) mod root;

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::Path;

use rustix::process::{Pid, WaitOptions, waitpid};

use crate::cgroup::{FreezerPlace, Room};
use crate::control::SOCKET;
use crate::isolation::{Facet, Isolation};
use crate::proc::Stat;
use crate::strays;
use crate::sys::{self, Fork};
use identity::Identity;
use plan::{Failure, LaunchPlan, Report, Stage};

/// Kinds of namespaces: name under `/proc/<pid>/ns`, flag, facet.
pub(crate) const NAMESPACES: [(&str, libc::c_int, Facet); 7] = [
    ("user", libc::CLONE_NEWUSER, Facet::UserNamespace),
    ("mnt", libc::CLONE_NEWNS, Facet::MountNamespace),
    ("pid", libc::CLONE_NEWPID, Facet::PidNamespace),
    ("net", libc::CLONE_NEWNET, Facet::NetNamespace),
    ("ipc", libc::CLONE_NEWIPC, Facet::IpcNamespace),
    ("uts", libc::CLONE_NEWUTS, Facet::UtsNamespace),
    ("cgroup", libc::CLONE_NEWCGROUP, Facet::CgroupNamespace),
];

/// What is lost when the new namespaces cannot be made or filled.
const BY_NAMESPACES: [Facet; 10] = [
    Facet::UserNamespace,
    Facet::MountNamespace,
    Facet::PidNamespace,
    Facet::NetNamespace,
    Facet::IpcNamespace,
    Facet::UtsNamespace,
    Facet::CgroupNamespace,
    Facet::ReadOnlyRoot,
    Facet::NoNetwork,
    Facet::NoHostSockets,
];

/// Runs the launcher: the plan comes on standard input, reports go to standard output.
pub(crate) fn run() -> i32 {
    match launch() {
        Ok(()) => 0,
        Err(failure) => {
            let _ = failure.report().send(io::stdout());
            1
        }
    }
}

fn launch() -> Result<(), Failure> {
    // SAFETY: this is the first thing that the process does; it has opened nothing yet.
    unsafe { sys::close_inherited() }.stage("close what was inherited")?;
    sys::reset_signals();
    // A launcher without a session of its own would be reached by what is sent to the node's terminal.
    let _ = rustix::process::setsid();
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
    let mut text = Vec::new();
    io::stdin().read_to_end(&mut text).stage("read the plan")?;
    let mut plan: LaunchPlan = serde_json::from_slice(&text).stage("read the plan")?;
    let report: OwnedFd = rustix::io::fcntl_dupfd_cloexec(io::stdout(), 10).stage("keep the report")?;
    let carried = Carried::open(&mut plan, report)?;
    if plan.bare {
        return launch_bare(plan, carried);
    }
    let identity = Identity::choose(&plan).stage("choose an identity")?;
    plan.facts.enforced(Facet::UserNamespace, format!("uid {}", identity.by));
    let (hold, mut release) = io::pipe().stage("make a pipe")?;
    let flags = NAMESPACES.iter().fold(0, |flags, (_, flag, _)| flags | flag);
    // SAFETY: this process has one thread; it was executed for this.
    match unsafe { sys::fork(flags) }.losing("make namespaces", &BY_NAMESPACES)? {
        Fork::Child => {
            drop(release);
            inside::run(plan, carried, identity.trees, hold)
        }
        Fork::Parent(pid) => {
            drop(hold);
            identity.give_to(pid).losing("map the ids", &BY_NAMESPACES)?;
            report_init(pid)?;
            release.write_all(b"g").stage("release the init")
        }
    }
}

/// Says who the init is, before it can end: its id is its own as long as the launcher has not collected it.
fn report_init(pid: Pid) -> Result<(), Failure> {
    let pid = pid.as_raw_pid();
    let start_ticks = Stat::read(pid).map(|stat| stat.start_ticks).unwrap_or_default();
    Report::Init { pid, start_ticks }.send(io::stdout()).stage("report the init")
}

fn launch_bare(plan: LaunchPlan, carried: Carried) -> Result<(), Failure> {
    let (mut hold, mut release) = io::pipe().stage("make a pipe")?;
    // SAFETY: this process has one thread; it was executed for this.
    match unsafe { sys::fork(0) }.stage("make the init")? {
        Fork::Child => {
            drop(release);
            match hold.read(&mut [0]) {
                Ok(1) => bare::run(plan, carried),
                Ok(_) | Err(_) => sys::exit_now(1),
            }
        }
        Fork::Parent(pid) => {
            report_init(pid)?;
            release.write_all(b"g").stage("release the init")
        }
    }
}

/// Descriptors that the init will own, opened where the host's paths and rights still are.
pub(crate) struct Carried {
    pub(crate) report: OwnedFd,
    pub(crate) listener: OwnedFd,
    pub(crate) log: Option<OwnedFd>,
    pub(crate) rooms: Vec<OwnedFd>,
    pub(crate) freezer: Option<Freezer>,
    /// Where nothing else would show what a payload without namespaces left behind.
    pub(crate) record: Option<OwnedFd>,
    pub(crate) host_namespaces: BTreeMap<String, u64>,
}

/// The freezer's open files.
pub(crate) enum Freezer {
    V2 { freeze: OwnedFd, events: OwnedFd },
    V1 { state: OwnedFd },
}

impl Carried {
    fn open(plan: &mut LaunchPlan, report: OwnedFd) -> Result<Self, Failure> {
        if let Some(dir) = &plan.init_cgroup {
            let entered = fs::write(dir.join("cgroup.procs"), "0");
            entered.losing("enter the init's cgroup", &[Facet::Freeze])?;
        }
        let rooms = open_rooms(&plan.rooms, &mut plan.facts).stage("try the cgroups")?;
        let freezer = match &plan.freezer {
            Some(place) if plan.facts.holds(Facet::Freeze) => {
                Some(Freezer::open(place).stage("open the freezer")?)
            }
            Some(_) | None => None,
        };
        let unseen = plan.bare && rooms.is_empty();
        let record = unseen.then(|| strays::open(&plan.dir)).transpose().stage("open the record")?;
        let log = plan.log.as_deref().map(open_log).transpose().stage("open the log")?;
        Ok(Self {
            report,
            listener: bind(&plan.dir).stage("bind the control socket")?,
            log,
            rooms,
            freezer,
            record,
            host_namespaces: namespaces().stage("read the host's namespaces")?,
        })
    }
}

impl Freezer {
    fn open(place: &FreezerPlace) -> io::Result<Self> {
        let open = |path: &Path, write| {
            Ok::<_, io::Error>(OwnedFd::from(OpenOptions::new().read(true).write(write).open(path)?))
        };
        Ok(match place {
            FreezerPlace::V2(dir) => Self::V2 {
                freeze: open(&dir.join("cgroup.freeze"), true)?,
                events: open(&dir.join("cgroup.events"), false)?,
            },
            FreezerPlace::V1(dir) => Self::V1 { state: open(&dir.join("freezer.state"), true)? },
        })
    }
}

/// Opens each cgroup's list and lets a child, which ends at once, try to enter: a limit on a cgroup that the
/// payload cannot enter is none.
fn open_rooms(rooms: &[Room], facts: &mut Isolation) -> io::Result<Vec<OwnedFd>> {
    let mut open = Vec::new();
    for room in rooms {
        let entered = OpenOptions::new().write(true).open(room.dir.join("cgroup.procs"));
        match entered.and_then(|file| tried(&file).map(|()| file)) {
            Ok(file) => open.push(file.into()),
            Err(error) => {
                for facet in &room.gives {
                    facts.lost(*facet, format!("the cgroup cannot be entered: {error}"));
                }
            }
        }
    }
    Ok(open)
}

fn tried(procs: &File) -> io::Result<()> {
    // SAFETY: the launcher has one thread.
    match unsafe { sys::fork(0) }? {
        Fork::Child => match { procs }.write_all(b"0") {
            Ok(()) => sys::exit_now(0),
            Err(error) => sys::exit_now(error.raw_os_error().unwrap_or(libc::EIO)),
        },
        Fork::Parent(pid) => {
            let ended = waitpid(Some(pid), WaitOptions::empty())?;
            match ended.and_then(|(_, status)| status.exit_status()) {
                Some(0) => Ok(()),
                Some(errno) => Err(io::Error::from_raw_os_error(errno)),
                None => Err(io::Error::other("the child that tried was killed")),
            }
        }
    }
}

fn open_log(path: &Path) -> io::Result<OwnedFd> {
    let mut options = OpenOptions::new();
    options.append(true).create(true).mode(0o600).custom_flags(libc::O_NOFOLLOW);
    Ok(options.open(path)?.into())
}

/// Binds from within the directory: a socket's path may have 107 bytes only, and nodes' homes can be longer.
fn bind(dir: &Path) -> io::Result<OwnedFd> {
    std::env::set_current_dir(dir)?;
    match fs::remove_file(SOCKET) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Err(_) | Ok(()) => {}
    }
    let listener = UnixListener::bind(SOCKET)?;
    fs::set_permissions(SOCKET, Permissions::from_mode(0o600))?;
    std::env::set_current_dir("/")?;
    Ok(listener.into())
}

/// The namespaces that this process is in, by kind.
pub(crate) fn namespaces() -> io::Result<BTreeMap<String, u64>> {
    let inode = |kind: &str| fs::metadata(format!("/proc/self/ns/{kind}")).map(|found| found.ino());
    NAMESPACES.iter().map(|(kind, _, _)| Ok(((*kind).to_owned(), inode(kind)?))).collect()
}

/// Moves a descriptor out of the way of the low numbers and leaves it open for the next program.
pub(crate) fn carry(fd: OwnedFd) -> io::Result<OwnedFd> {
    let moved = rustix::io::fcntl_dupfd_cloexec(&fd, 10)?;
    rustix::io::fcntl_setfd(&moved, rustix::io::FdFlags::empty())?;
    debug_assert!(moved.as_raw_fd() > plan::PLAN_FD);
    Ok(moved)
}
