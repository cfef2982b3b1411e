//! What a sandbox without namespaces may have left behind unseen. Its processes are found by a variable in
//! their environment, which a hostile one can drop; and once the init is gone, nothing says who descended from
//! it. So the init writes down what its payload can never shed, and takes that back when it has seen the last
//! of them end. Where it was killed before, absence is proved by finding nobody on the host who has all of it.
//!
//! What cannot be shed: the user (there is no capability to change it), `no_new_privs`, each installed filter,
//! and lowered hard limits. All of them are inherited. A process that has them all may still be somebody
//! else's, so it is named and not ended.
//!
//! Where the payload is in a cgroup, which it cannot leave, none of this is needed.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::clock::boot_id;
use crate::confine::privileges::NOFILE;
use crate::name::Name;
use crate::proc::{self, Part, Stat};

/// The record's name in the destination's directory. Only the host sees it.
const RECORD: &str = "bare.json";

/// What every process of the payload has, as far as it differs from start to start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Record {
    boot_id: String,
    /// When the init started: nothing of the payload is older.
    start_ticks: u64,
    /// Filters on system calls that the init lives under.
    filters: u32,
}

/// Opens the record, empty: nothing of the payload has run.
pub(crate) fn open(dir: &Path) -> io::Result<OwnedFd> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600).custom_flags(libc::O_NOFOLLOW);
    Ok(options.open(dir.join(RECORD))?.into())
}

/// Says, in an init that is confined and has not executed the agent, what to look for.
pub(crate) fn begin(mut record: &File) -> io::Result<()> {
    let me = i32::try_from(std::process::id()).expect("ids are small");
    let stat = Stat::read(me).ok_or_else(|| io::Error::other("/proc does not show this process"))?;
    let filters = Marks::read(me).map_or(0, |marks| marks.filters);
    let text = serde_json::to_vec(&Record { boot_id: boot_id(), start_ticks: stat.start_ticks, filters })?;
    record.write_all(&text)
}

/// Says that all have ended.
pub(crate) fn end(record: &File) {
    // Where that cannot be said, they are looked for.
    let _ = record.set_len(0);
}

/// Proves that no process of a sandbox is left that does not carry its name, and removes the record.
///
/// # Errors
/// Why that cannot be proved.
pub(crate) fn none_left(name: &Name, dir: &Path) -> Result<(), String> {
    let path = dir.join(RECORD);
    let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let text = match fs::read(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        read => read.map_err(|error| failed(&error))?,
    };
    if !text.is_empty() {
        let record: Record = serde_json::from_slice(&text).map_err(|error| failed(&error))?;
        let found = find(name, &record).map_err(|error| failed(&error))?;
        if !found.is_empty() {
            let ids: Vec<String> = found.iter().map(i32::to_string).collect();
            return Err(format!(
                "its init was killed, and these processes may be of it: {}; end them if they are",
                ids.join(", ")
            ));
        }
    }
    fs::remove_file(&path).map_err(|error| failed(&error))
}

/// Everybody who may be of the payload: younger than the init, with all that it cannot shed, and not below
/// the init of another sandbox.
fn find(name: &Name, record: &Record) -> io::Result<Vec<i32>> {
    if record.boot_id != boot_id() {
        return Ok(Vec::new());
    }
    let all: Vec<(i32, Stat)> =
        proc::pids()?.into_iter().filter_map(|pid| Some((pid, Stat::read(pid)?))).collect();
    let parents: BTreeMap<i32, i32> = all.iter().map(|(pid, stat)| (*pid, stat.parent)).collect();
    let own = rustix::process::geteuid().as_raw();
    let suspect = |pid: i32, stat: &Stat| {
        !stat.ended()
            && stat.start_ticks >= record.start_ticks
            && Marks::read(pid).is_some_and(|marks| marks.may_be_payload(own, record.filters))
            && !is_lowered_elsewhere(pid)
    };
    let found: Vec<i32> = all.iter().filter(|(pid, stat)| suspect(*pid, stat)).map(|(pid, _)| *pid).collect();
    let of_another = |pid: i32| {
        let line = std::iter::successors(Some(pid), |pid| parents.get(pid).copied());
        line.take(parents.len() + 1).any(|ancestor| is_init_of_another(ancestor, name))
    };
    Ok(found.into_iter().filter(|pid| !of_another(*pid)).collect())
}

/// Any process may call itself an init; one whose limits were never lowered is not of a payload and may be
/// believed.
fn is_init_of_another(pid: i32, name: &Name) -> bool {
    is_lowered_elsewhere(pid)
        && proc::part_of(pid).is_some_and(|(other, part)| &other != name && part == Part::Init)
}

/// Whether a process has a hard limit above what every payload is lowered to. What cannot be read is no.
fn is_lowered_elsewhere(pid: i32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/limits")).is_ok_and(|limits| above(&limits))
}

fn above(limits: &str) -> bool {
    let hard = |name: &str| {
        let line = limits.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_ascii_whitespace().nth(1)
    };
    let exceeds =
        |hard: &str, most: u64| hard == "unlimited" || hard.parse().is_ok_and(|hard: u64| hard > most);
    hard("Max open files").is_some_and(|hard| exceeds(hard, NOFILE))
        || hard("Max core file size").is_some_and(|hard| exceeds(hard, 0))
}

/// What `/proc/<pid>/status` shows of what is inherited for good.
#[derive(Debug, PartialEq, Eq)]
struct Marks {
    uid: Option<u32>,
    no_new_privs: bool,
    filters: u32,
    /// In this process's own pid namespace, and not one below.
    here: bool,
}

impl Marks {
    fn read(pid: i32) -> Option<Self> {
        Some(Self::parse(&fs::read_to_string(format!("/proc/{pid}/status")).ok()?))
    }

    fn parse(status: &str) -> Self {
        let field = |name: &str| {
            status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
        };
        let first = |name: &str| field(name).and_then(|text| text.split_ascii_whitespace().next());
        Self {
            uid: first("Uid").and_then(|uid| uid.parse().ok()),
            no_new_privs: field("NoNewPrivs") == Some("1"),
            filters: first("Seccomp_filters").and_then(|count| count.parse().ok()).unwrap_or(0),
            here: field("NSpid").is_none_or(|ids| ids.split_ascii_whitespace().count() == 1),
        }
    }

    fn may_be_payload(&self, uid: u32, filters: u32) -> bool {
        self.here && self.no_new_privs && self.filters >= filters && self.uid.is_none_or(|own| own == uid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_lowered_is_suspected() {
        let limits = |files: &str, core: &str| {
            format!(
                "Limit  Soft  Hard  Units\nMax core file size   0   {core}   bytes\nMax open files   1024   {files}   files\n"
            )
        };
        assert!(!above(&limits("4096", "0")) && !above(&limits("16", "0")) && !above(""));
        assert!(
            above(&limits("4097", "0"))
                && above(&limits("unlimited", "0"))
                && above(&limits("16", "unlimited"))
        );
    }

    #[test]
    fn marks_are_read_as_the_kernel_writes_them() {
        let status = "Uid:\t7\t7\t7\t7\nNSpid:\t12\nNoNewPrivs:\t1\nSeccomp:\t2\nSeccomp_filters:\t3\n";
        let marks = Marks::parse(status);
        assert_eq!(marks, Marks { uid: Some(7), no_new_privs: true, filters: 3, here: true });
        assert!(marks.may_be_payload(7, 3) && !marks.may_be_payload(8, 3) && !marks.may_be_payload(7, 4));
        assert!(!Marks::parse(&status.replace("12", "12\t1")).may_be_payload(7, 3));
        assert!(!Marks::parse(&status.replace("Privs:\t1", "Privs:\t0")).may_be_payload(7, 3));
    }

    #[test]
    fn a_record_that_ended_or_counts_on_another_boot_leaves_nobody() {
        let dir = tempfile::tempdir().expect("a directory");
        let name = "a".parse().expect("a name");
        assert_eq!(none_left(&name, dir.path()), Ok(()), "there never was one");
        drop(open(dir.path()).expect("room"));
        assert_eq!(none_left(&name, dir.path()), Ok(()));
        let other = Record { boot_id: "other".to_owned(), start_ticks: 0, filters: 0 };
        fs::write(dir.path().join(RECORD), serde_json::to_vec(&other).expect("plain data")).expect("room");
        assert_eq!(none_left(&name, dir.path()), Ok(()));
        assert!(!dir.path().join(RECORD).exists());
        fs::write(dir.path().join(RECORD), "{").expect("room");
        assert!(none_left(&name, dir.path()).is_err(), "what cannot be read proves nothing");
    }
}
