//! Ending a sandbox, whatever state it is in, and proving that nothing is left: the ledger closes on that
//! proof. Nothing needs to be known of how it was started.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::mount::{UnmountFlags, unmount};
use rustix::process::Signal;

use crate::cgroup::{self, Usage};
use crate::clock::Deadline;
use crate::control::SOCKET;
use crate::name::Name;
use crate::proc::{self, Mount, Process, Stat};
use crate::strays;

/// How long the kernel may take to let go of what was killed.
const PATIENCE: Duration = Duration::from_secs(10);

/// Proof that a sandbox is gone: at the end of `teardown` a search of the whole host found no process of
/// its name, no mount, no cgroup and no socket; and, of one without namespaces, nobody who may be of it
/// without its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Absence {
    /// Which sandbox.
    pub name: Name,
    /// What it had used up, read after its last process had ended and before its cgroups were removed.
    pub usage: Usage,
}

/// What there is of a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "of sandbox {name} there are {} processes, {} mounts, {} cgroups, {} sockets{}",
    processes.len(), mounts.len(), cgroups.len(), sockets.len(), why_text(why)
)]
pub struct Leftovers {
    /// Which sandbox.
    pub name: Name,
    /// Ids of its processes.
    pub processes: Vec<i32>,
    /// Mounts in this process's own view.
    pub mounts: Vec<PathBuf>,
    /// Its cgroups.
    pub cgroups: Vec<PathBuf>,
    /// Its sockets.
    pub sockets: Vec<PathBuf>,
    /// What stood in the way, if anything is known.
    pub why: Option<String>,
}

fn why_text(why: &Option<String>) -> String {
    why.as_ref().map(|why| format!(" ({why})")).unwrap_or_default()
}

impl Leftovers {
    fn none(name: Name) -> Self {
        Self { name, processes: vec![], mounts: vec![], cgroups: vec![], sockets: vec![], why: None }
    }

    fn is_empty(&self) -> bool {
        let Self { name: _, processes, mounts, cgroups, sockets, why } = self;
        processes.is_empty() && mounts.is_empty() && cgroups.is_empty() && sockets.is_empty() && why.is_none()
    }
}

/// Everything on this host that belongs to a sandbox whose name is wanted, by sandbox.
pub(crate) fn search(wanted: impl Fn(&Name) -> bool) -> io::Result<Vec<Leftovers>> {
    let mut found: BTreeMap<Name, Leftovers> = BTreeMap::new();
    for (name, dir) in cgroup::find(&wanted)? {
        let members = cgroup::members(&dir);
        let entry = entry(&mut found, name);
        entry.processes.extend(members);
        entry.cgroups.push(dir);
    }
    for mount in proc::mounts("self")? {
        if let Some(name) = Name::of_mount_source(&mount.source).filter(|name| wanted(name)) {
            entry(&mut found, name).mounts.push(mount.target.into());
        }
    }
    for pid in proc::pids()? {
        let name = proc::part_of(pid).map(|(name, _)| name).or_else(|| lives_in(pid));
        let name = name.or_else(|| proc::marked(pid));
        if let Some(name) = name.filter(|name| wanted(name)) {
            entry(&mut found, name).processes.push(pid);
        }
    }
    for leftovers in found.values_mut() {
        leftovers.processes.sort_unstable();
        leftovers.processes.dedup();
        leftovers.processes.retain(|pid| Stat::read(*pid).is_some_and(|stat| !stat.ended()));
    }
    Ok(found.into_values().filter(|leftovers| !leftovers.is_empty()).collect())
}

fn entry(found: &mut BTreeMap<Name, Leftovers>, name: Name) -> &mut Leftovers {
    found.entry(name.clone()).or_insert_with(|| Leftovers::none(name))
}

/// Whose root a process stands on. Processes of others, which may not be looked at, are not ours: ours can
/// always be looked at by whoever started them, and by root.
fn lives_in(pid: i32) -> Option<Name> {
    let mounts = proc::mounts(&pid.to_string()).ok()?;
    mounts
        .iter()
        .find(|mount| mount.target == "/")
        .and_then(|mount: &Mount| Name::of_mount_source(&mount.source))
}

/// What there is of one sandbox. Not being able to search counts as finding something.
fn search_one(name: &Name, dir: &Path) -> Leftovers {
    let mut found = match search(|other| other == name) {
        Ok(found) => found.into_iter().next().unwrap_or_else(|| Leftovers::none(name.clone())),
        Err(error) => Leftovers { why: Some(error.to_string()), ..Leftovers::none(name.clone()) },
    };
    let socket = dir.join(SOCKET);
    if fs::symlink_metadata(&socket).is_ok() {
        found.sockets.push(socket);
    }
    if let Ok(mounts) = proc::mounts("self") {
        let below = mounts.iter().map(|mount| PathBuf::from(&mount.target)).filter(|at| at.starts_with(dir));
        found.mounts.extend(below);
    }
    found
}

/// The init of a sandbox, if it runs.
pub(crate) fn init_of(name: &Name) -> Option<Process> {
    let ours = |pid: &i32| {
        proc::part_of(*pid).is_some_and(|(other, part)| &other == name && part == proc::Part::Init)
    };
    let process = proc::pids().ok()?.into_iter().find(ours).and_then(|pid| Process::open_now(pid).ok())?;
    // The id was looked at before it was opened: only what still looks like it is it.
    ours(&process.pid).then_some(process)
}

/// What a sandbox has used so far.
pub(crate) fn usage_of(name: &Name) -> Usage {
    let dirs: Vec<PathBuf> =
        cgroup::find(|other| other == name).unwrap_or_default().into_iter().map(|(_, dir)| dir).collect();
    cgroup::usage(&dirs)
}

/// Ends and removes whatever there is of a sandbox.
///
/// # Errors
/// What is still there after ten seconds. Calling again goes on.
pub(crate) fn teardown(name: &Name, dir: &Path) -> Result<Absence, Box<Leftovers>> {
    let deadline = Deadline::within(PATIENCE);
    let mut found = search_one(name, dir);
    // Each round kills what the last search found: a process may have been made since.
    let gone = deadline.until(|| {
        end_processes(&found);
        found = search_one(name, dir);
        found.processes.is_empty()
    });
    if !gone {
        found.why.get_or_insert_with(|| "its processes do not end".to_owned());
        return Err(Box::new(found));
    }
    let usage = usage_of(name);
    let mut why = None;
    for cgroup in &found.cgroups {
        if let Err(error) = cgroup::remove(cgroup, deadline) {
            why = Some(format!("{}: {error}", cgroup.display()));
        }
    }
    for mount in &found.mounts {
        if let Err(error) = unmount(mount, UnmountFlags::DETACH) {
            why = Some(format!("{}: {error}", mount.display()));
        }
    }
    for socket in &found.sockets {
        if let Err(error) = fs::remove_file(socket) {
            why = Some(format!("{}: {error}", socket.display()));
        }
    }
    let mut rest = search_one(name, dir);
    if rest.is_empty() {
        rest.why = strays::none_left(name, dir).err();
    }
    if rest.is_empty() {
        return Ok(Absence { name: name.clone(), usage });
    }
    rest.why = rest.why.or(why);
    Err(Box::new(rest))
}

/// The init first: the kernel ends its whole namespace with it. Then what is frozen may run, to its end.
fn end_processes(found: &Leftovers) {
    for pid in &found.processes {
        if let Ok(process) = Process::open_now(*pid) {
            let _ = process.signal(Signal::KILL);
        }
    }
    for dir in &found.cgroups {
        cgroup::kill(dir);
    }
}
