//! The control groups of one start: limits, freezer and evidence of use. Found again by their name alone.
//!
//! Never inferred: version 2 is used for a limit only where the controller is listed and the value reads
//! back, else version 1 for that controller, else the limit is lost and the reason said. A host may give
//! memory by the one and the freezer by the other.
//!
//! Only the payload is limited. The init stays outside, so that no quota, no out-of-memory killer and no
//! full process table can keep it from freezing at the deadline.

mod hierarchy;
mod v1;
mod v2;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use handoff_protocol::Tier;
use serde::{Deserialize, Serialize};

use crate::clock::Deadline;
use crate::isolation::{Facet, Isolation};
use crate::name::Name;
use hierarchy::Hierarchies;

/// Where the payload is held still from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FreezerPlace {
    /// The directory with `cgroup.freeze` and `cgroup.events`.
    V2(PathBuf),
    /// The directory with `freezer.state`.
    V1(PathBuf),
}

/// A cgroup that the payload has to be in, and what is lost where it cannot enter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Room {
    pub(crate) dir: PathBuf,
    pub(crate) gives: Vec<Facet>,
}

/// The cgroups made for one start.
#[derive(Debug, Default)]
pub(crate) struct Cgroups {
    /// Limits and freezer: what holds, by what, and what does not.
    pub(crate) facts: Isolation,
    /// The payload enters all of these.
    pub(crate) rooms: Vec<Room>,
    /// The init enters this one.
    pub(crate) init: Option<PathBuf>,
    pub(crate) freezer: Option<FreezerPlace>,
}

/// What a sandbox has used up, by the kernel's own count. Absent where the host does not count it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Usage {
    /// Processor time of the payload, in nanoseconds.
    pub cpu_ns: Option<u64>,
    /// The most memory it held at once, in bytes.
    pub memory_peak_bytes: Option<u64>,
    /// Processes that were killed because they wanted more memory than the tier has.
    pub oom_kills: Option<u64>,
    /// Processes that were not made because the tier has no more.
    pub pids_refused: Option<u64>,
}

impl Usage {
    /// Fills in what another cgroup of the same sandbox counts.
    fn or(self, other: Self) -> Self {
        Self {
            cpu_ns: self.cpu_ns.or(other.cpu_ns),
            memory_peak_bytes: self.memory_peak_bytes.or(other.memory_peak_bytes),
            oom_kills: self.oom_kills.or(other.oom_kills),
            pids_refused: self.pids_refused.or(other.pids_refused),
        }
    }
}

impl Cgroups {
    /// Makes the cgroups of one start and sets the tier's limits. What cannot be had is in the facts.
    pub(crate) fn create(name: &Name, tier: &Tier) -> Self {
        let mut made = Self::default();
        let directory = name.fresh_cgroup();
        match Hierarchies::read() {
            Ok(hierarchies) => {
                if let Some(hierarchy) = &hierarchies.v2 {
                    v2::create(hierarchy, &directory, tier, &mut made);
                }
                v1::create(&hierarchies.v1, &directory, tier, &mut made);
            }
            Err(error) => made.lose_all(&format!("cannot read what is mounted: {error}")),
        }
        made.lose_all("no cgroup hierarchy with this controller is mounted");
        made
    }

    /// Says of what has no fact yet that it is lost.
    fn lose_all(&mut self, why: &str) {
        for facet in [Facet::Memory, Facet::Pids, Facet::Cpu, Facet::Freeze] {
            self.lose(facet, why);
        }
    }

    /// Notes why one way to enforce a facet failed. An earlier reason is kept: both are worth reading.
    fn lose(&mut self, facet: Facet, why: &str) {
        if self.facts.holds(facet) {
            return;
        }
        let known =
            self.facts.losses().find(|(lost, why)| *lost == facet && why != crate::isolation::NOT_TRIED);
        match known {
            Some((_, earlier)) if why.starts_with("no cgroup") => self.facts.lost(facet, earlier),
            Some((_, earlier)) => self.facts.lost(facet, format!("{earlier}; {why}")),
            None => self.facts.lost(facet, why),
        }
    }
}

/// All our cgroups on this host for which `wanted` says yes, of this node or any earlier one.
pub(crate) fn find(wanted: impl Fn(&Name) -> bool) -> io::Result<Vec<(Name, PathBuf)>> {
    let mut found = Vec::new();
    for mount in Hierarchies::read()?.mounts() {
        walk(mount, &wanted, &mut found);
    }
    Ok(found)
}

/// Directories that vanish or are closed to us while walking hold nothing of ours.
fn walk(dir: &Path, wanted: &impl Fn(&Name) -> bool, found: &mut Vec<(Name, PathBuf)>) {
    for child in children(dir) {
        let directory = child.file_name().unwrap_or_default().to_string_lossy();
        match Name::of_cgroup(&directory) {
            Some(name) if wanted(&name) => found.push((name, child)),
            Some(_) => {}
            None => walk(&child, wanted, found),
        }
    }
}

fn children(dir: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(dir) else { return Vec::new() };
    let directories = entries.filter_map(|entry| {
        let entry = entry.ok()?;
        entry.file_type().ok()?.is_dir().then(|| entry.path())
    });
    directories.collect()
}

/// The processes in a cgroup and everything below it.
pub(crate) fn members(dir: &Path) -> Vec<i32> {
    let own = fs::read_to_string(dir.join("cgroup.procs")).unwrap_or_default();
    let mut pids: Vec<i32> = own.lines().filter_map(|line| line.parse().ok()).collect();
    pids.extend(children(dir).iter().flat_map(|child| members(child)));
    pids
}

/// Lets everything in a cgroup run again and kills it, in the order in which nothing gets to run between:
/// what is frozen by version 1 dies only after the thaw, and then before its next instruction.
pub(crate) fn kill(dir: &Path) {
    if fs::write(dir.join("cgroup.kill"), "1").is_err() {
        for pid in members(dir) {
            if let Ok(process) = crate::proc::Process::open_now(pid) {
                let _ = process.signal(rustix::process::Signal::KILL);
            }
        }
    }
    thaw(dir);
}

fn thaw(dir: &Path) {
    for child in children(dir) {
        thaw(&child);
    }
    // Only one of the two files is there, and where neither is nothing can be frozen.
    for (file, word) in [("freezer.state", "THAWED"), ("cgroup.freeze", "0")] {
        let path = dir.join(file);
        if path.exists() {
            let _ = fs::write(path, word);
        }
    }
}

/// What the payload used, read from all cgroups of its sandbox.
pub(crate) fn usage(dirs: &[PathBuf]) -> Usage {
    let each = dirs.iter().map(|dir| v2::usage(dir).or(v1::usage(dir)));
    each.fold(Usage::default(), Usage::or)
}

/// Removes a cgroup with everything below it. The kernel lets go of an emptied one a moment later, so it is
/// asked until the deadline.
pub(crate) fn remove(dir: &Path, deadline: Deadline) -> io::Result<()> {
    for child in children(dir) {
        remove(&child, deadline)?;
    }
    let mut last = Ok(());
    deadline.until(|| {
        last = match fs::remove_dir(dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            done => done,
        };
        last.is_ok()
    });
    last
}

/// Writes a value and reads it back. A number may come back rounded down to whole pages.
fn set(path: &Path, value: &str) -> Result<(), String> {
    let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    fs::write(path, value).map_err(|error| format!("{file}: {error}"))?;
    let read = fs::read_to_string(path).map_err(|error| format!("{file}: {error}"))?;
    let read = read.trim_end();
    if read == value || rounded_down(read, value) {
        Ok(())
    } else {
        Err(format!("{file} was set to {value} and reads {read}"))
    }
}

fn rounded_down(read: &str, wanted: &str) -> bool {
    let page = u64::try_from(rustix::param::page_size()).expect("a page is small");
    match (read.parse::<u64>(), wanted.parse::<u64>()) {
        (Ok(read), Ok(wanted)) => read <= wanted && wanted - read < page,
        _ => false,
    }
}

fn number_in(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim_end().parse().ok()
}

/// The number after a word in a file of `word number` lines.
fn number_after(path: &Path, word: &str) -> Option<u64> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(word)?.strip_prefix(' '));
    line?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_may_come_back_in_whole_pages_and_no_larger() {
        assert!(rounded_down("4096", "5000") && rounded_down("4096", "4096"));
        assert!(!rounded_down("8192", "5000") && !rounded_down("0", "5000") && !rounded_down("max", "5000"));
    }

    #[test]
    fn reasons_add_up_and_a_later_success_counts() {
        let mut made = Cgroups::default();
        made.lose(Facet::Memory, "cgroup v2: not listed");
        made.lose(Facet::Memory, "cgroup v1: denied");
        made.lose_all("no cgroup hierarchy");
        let why = made.facts.get(Facet::Memory).to_string();
        assert_eq!(why, "lost: cgroup v2: not listed; cgroup v1: denied");
        assert_eq!(made.facts.get(Facet::Cpu).to_string(), "lost: no cgroup hierarchy");
        made.facts.enforced(Facet::Memory, "cgroup v1");
        made.lose(Facet::Memory, "no matter");
        assert!(made.facts.holds(Facet::Memory));
    }
}
