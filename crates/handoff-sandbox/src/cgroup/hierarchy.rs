//! Which cgroup hierarchies are mounted, with which controllers, and where in them a new cgroup may stand.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::proc::{Mount, mounts};

/// One mounted hierarchy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Hierarchy {
    /// Where it is mounted.
    pub(super) mount: PathBuf,
    /// This process's own cgroup, below the mount.
    own: PathBuf,
}

impl Hierarchy {
    /// Places for a new cgroup, from the mount down to this process's own cgroup: the nearer to the top, the
    /// less it depends on how this process was started and on when that ends. Root takes the top; a user
    /// gets the highest place that was delegated.
    fn places(&self) -> Vec<PathBuf> {
        let mut places = vec![self.mount.clone()];
        for step in &self.own {
            let below = places.last().expect("starts with the mount").join(step);
            places.push(below);
        }
        places
    }

    /// One that is mounted there, with this process at its top.
    #[cfg(test)]
    pub(super) fn at(mount: &Path) -> Self {
        Self { mount: mount.to_owned(), own: PathBuf::new() }
    }

    /// Makes a cgroup in the highest place where that is allowed.
    pub(super) fn make(&self, directory: &str) -> Result<PathBuf, String> {
        let mut why = String::new();
        for place in self.places() {
            let dir = place.join(directory);
            match fs::create_dir(&dir) {
                Ok(()) => return Ok(dir),
                Err(error) => why = format!("no cgroup may be made in {}: {error}", self.mount.display()),
            }
        }
        Err(why)
    }
}

/// All mounted hierarchies.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Hierarchies {
    pub(super) v2: Option<Hierarchy>,
    /// By controller; several controllers may share one.
    pub(super) v1: BTreeMap<String, Hierarchy>,
}

impl Hierarchies {
    pub(super) fn read() -> io::Result<Self> {
        Ok(Self::from(&mounts("self")?, &fs::read_to_string("/proc/self/cgroup")?))
    }

    /// From the mounts of this process and the text of its `/proc/self/cgroup`.
    fn from(mounts: &[Mount], own: &str) -> Self {
        let mut found = Self::default();
        for line in own.lines() {
            let mut parts = line.splitn(3, ':').skip(1);
            let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
            if controllers.is_empty() {
                found.v2 = place(mounts, path, |mount| mount.kind == "cgroup2");
                continue;
            }
            for controller in controllers.split(',').filter(|name| !name.contains('=')) {
                let carries = |mount: &Mount| {
                    mount.kind == "cgroup"
                        && mount.super_options.split(',').any(|option| option == controller)
                };
                if let Some(hierarchy) = place(mounts, path, carries) {
                    found.v1.insert(controller.to_owned(), hierarchy);
                }
            }
        }
        found
    }

    /// Every mount point, once.
    pub(super) fn mounts(&self) -> impl Iterator<Item = &Path> {
        let all = self.v2.iter().chain(self.v1.values()).map(|hierarchy| hierarchy.mount.as_path());
        all.collect::<std::collections::BTreeSet<_>>().into_iter()
    }
}

/// A mount may show a part of its hierarchy only; paths in `/proc/self/cgroup` count from the hierarchy's
/// top (or the cgroup namespace's).
fn place(mounts: &[Mount], own: &str, wanted: impl Fn(&Mount) -> bool) -> Option<Hierarchy> {
    let mount = mounts.iter().find(|mount| wanted(mount))?;
    let below = Path::new(own).strip_prefix(&mount.root).unwrap_or(Path::new(""));
    let climbs = below.components().any(|step| step == std::path::Component::ParentDir);
    let own = if climbs { PathBuf::new() } else { below.to_owned() };
    Some(Hierarchy { mount: PathBuf::from(&mount.target), own })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mount(kind: &str, root: &str, target: &str, options: &str) -> Mount {
        let [kind, root, target, super_options] = [kind, root, target, options].map(str::to_owned);
        Mount { root, target, source: kind.clone(), kind, super_options }
    }

    #[test]
    fn hybrid_hosts_have_both() {
        let mounts = [
            mount("cgroup", "/", "/c/cpu", "rw,cpu,cpuacct"),
            mount("cgroup", "/docker/1", "/c/memory", "rw,memory"),
            mount("cgroup2", "/", "/c/unified", "rw,nsdelegate"),
        ];
        let own = "3:name=systemd:/x\n2:cpu,cpuacct:/\n1:memory:/docker/1/a\n4:pids:/\n0::/user/a\n";
        let found = Hierarchies::from(&mounts, own);
        let v2 = found.v2.as_ref().expect("mounted");
        let places = ["/c/unified", "/c/unified/user", "/c/unified/user/a"].map(PathBuf::from);
        assert_eq!(v2.places(), places);
        assert_eq!(found.v1.keys().collect::<Vec<_>>(), ["cpu", "cpuacct", "memory"]);
        assert_eq!(found.v1["memory"].places(), ["/c/memory", "/c/memory/a"].map(PathBuf::from));
        assert_eq!(found.mounts().count(), 3);
    }

    #[test]
    fn a_cgroup_outside_the_namespace_gives_no_way_up() {
        let mounts = [mount("cgroup2", "/", "/c", "rw")];
        let found = Hierarchies::from(&mounts, "0::/../../other\n");
        assert_eq!(found.v2.expect("mounted").places(), [PathBuf::from("/c")]);
    }
}
