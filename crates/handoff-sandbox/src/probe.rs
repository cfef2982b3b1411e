//! What this host gives, found by making a sandbox and removing it; and removing what is left of such a sandbox
//! whose maker was killed.
//!
//! A probe has no destination, so nobody would ever look for it again. Its name says who made it: whoever probes
//! next removes the probes of makers that have ended. Its init ends with its maker.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use handoff_protocol::{IncarnationId, Tier};

use crate::isolation::Isolation;
use crate::name::Name;
use crate::native;
use crate::proc::{self, SUBCOMMAND, Stat};
use crate::spec::{EXE_INSIDE, Spec, StartError};
use crate::teardown;

/// What the name of a probe's directory begins with.
const DIRECTORY: &str = "handoff-";

/// Makes a sandbox whose agent ends at once, in a directory of its own, and removes both.
pub(crate) fn probe(exe: &Path) -> Result<Isolation, String> {
    let maker = Maker::this().map_err(|error| error.to_string())?;
    remove_orphans(&maker);
    let name = maker.fresh_name();
    let dir = directory(&name);
    for part in ["workspace", "state", "door"] {
        fs::create_dir_all(dir.join(part)).map_err(|error| format!("{}: {error}", dir.display()))?;
    }
    let tier = Tier::defaults().swap_remove(0);
    let mut spec = Spec::new(name, &dir, exe, tier, IncarnationId::from_u128(0));
    spec.command = vec![EXE_INSIDE.to_owned(), SUBCOMMAND.to_owned(), "nothing".to_owned()];
    spec.allow_degraded = true;
    spec.ends_with_maker = true;
    let facts = match native::start(&spec) {
        Ok(started) => Ok(started.isolation),
        Err(StartError::IsolationUnavailable(facts)) => Ok(facts),
        Err(error) => Err(error.to_string()),
    };
    let gone = teardown::teardown(&spec.name, &dir).map_err(|left| left.to_string());
    let _ = fs::remove_dir_all(&dir);
    gone.and(facts)
}

fn directory(name: &Name) -> PathBuf {
    std::env::temp_dir().join(format!("{DIRECTORY}{name}"))
}

/// Who makes a probe. Each user removes its own: those of others can neither be judged nor touched by all. Ids of
/// processes mean something in one pid namespace only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Maker {
    uid: u32,
    pid_namespace: u64,
    pid: i32,
    start_ticks: u64,
}

impl Maker {
    fn this() -> io::Result<Self> {
        let pid = i32::try_from(std::process::id()).expect("ids are small");
        let stat = Stat::read(pid).ok_or_else(|| io::Error::other("/proc does not show this process"))?;
        Ok(Self {
            uid: rustix::process::geteuid().as_raw(),
            pid_namespace: fs::metadata("/proc/self/ns/pid")?.ino(),
            pid,
            start_ticks: stat.start_ticks,
        })
    }

    fn fresh_name(self) -> Name {
        let Self { uid, pid_namespace, pid, start_ticks } = self;
        let nonce = uuid::Uuid::new_v4().simple().to_string();
        let name = format!("probe-{uid}-{pid_namespace}-{pid}-{start_ticks}-{}", &nonce[..8]);
        name.parse().expect("numbers of at most twenty digits each")
    }

    fn of(name: &Name) -> Option<Self> {
        let words: Vec<&str> = name.as_str().split('-').collect();
        let ["probe", uid, pid_namespace, pid, start_ticks, _] = words[..] else { return None };
        Some(Self {
            uid: uid.parse().ok()?,
            pid_namespace: pid_namespace.parse().ok()?,
            pid: pid.parse().ok()?,
            start_ticks: start_ticks.parse().ok()?,
        })
    }

    /// Whether this maker may say of another one that it has ended, and it has.
    fn outlives(self, other: Self) -> bool {
        (other.uid, other.pid_namespace) == (self.uid, self.pid_namespace)
            && proc::has_ended(other.pid, other.start_ticks)
    }
}

/// Removes what is left of probes whose makers have ended. What cannot be removed now is tried by the next probe.
fn remove_orphans(this: &Maker) {
    let orphaned = |name: &Name| Maker::of(name).is_some_and(|maker| this.outlives(maker));
    let found = teardown::search(orphaned);
    let found =
        found.inspect_err(|error| tracing::warn!(%error, "probes that were left cannot be looked for"));
    let mut names: BTreeSet<Name> = found.unwrap_or_default().into_iter().map(|left| left.name).collect();
    names.extend(directories().into_iter().filter(orphaned));
    for name in names {
        match remove(&name) {
            Ok(()) => tracing::info!(%name, "removed what an interrupted probe had left"),
            Err(error) => tracing::warn!(%name, error, "of an interrupted probe something is left"),
        }
    }
}

/// Names by the directories that stand where probes are made.
fn directories() -> Vec<Name> {
    let Ok(entries) = fs::read_dir(std::env::temp_dir()) else { return Vec::new() };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names.filter_map(|name| name.strip_prefix(DIRECTORY)?.parse().ok()).collect()
}

fn remove(name: &Name) -> Result<(), String> {
    let dir = directory(name);
    // The name can be known to others by now, and a link that they put there would lead to somebody else's files.
    let taken = match fs::create_dir(&dir) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => fs::symlink_metadata(&dir),
        made => made.and_then(|()| fs::symlink_metadata(&dir)),
    };
    let found = taken.map_err(|error| format!("{}: {error}", dir.display()))?;
    if !found.is_dir() || found.uid() != rustix::process::geteuid().as_raw() {
        return Err(format!("{} is not a directory of this user's", dir.display()));
    }
    teardown::teardown(name, &dir).map_err(|left| left.to_string())?;
    fs::remove_dir_all(&dir).map_err(|error| format!("{}: {error}", dir.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_names_its_maker_and_only_an_ended_one_of_the_same_kind_is_outlived() {
        let this = Maker::this().expect("readable");
        assert_eq!(Maker::of(&this.fresh_name()), Some(this));
        assert!(!this.outlives(this));
        let ended = Maker { start_ticks: this.start_ticks + 1, ..this };
        assert!(this.outlives(ended));
        assert!(!this.outlives(Maker { uid: this.uid + 1, ..ended }));
        assert!(!this.outlives(Maker { pid_namespace: this.pid_namespace + 1, ..ended }));
        let largest = Maker { uid: u32::MAX, pid_namespace: u64::MAX, pid: i32::MAX, start_ticks: u64::MAX };
        assert_eq!(Maker::of(&largest.fresh_name()), Some(largest));
        for other in ["probe-0123", "xfr_01-3", "probe-a-b-c-d-e"] {
            assert_eq!(Maker::of(&other.parse().expect("a name")), None, "{other}");
        }
    }
}
