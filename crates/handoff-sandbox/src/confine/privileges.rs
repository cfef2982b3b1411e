//! Letting go of every privilege, and reading back that it is gone.

use std::io;

use caps::CapSet;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CapabilitiesSecureBits, set_capabilities_secure_bits, set_no_new_privs};

/// Open files of one process inside.
pub(crate) const NOFILE: u64 = 4096;

/// Keeps the capabilities of the new user namespace over the change of ids that follows.
pub(crate) fn keep_over_setuid() -> io::Result<()> {
    Ok(set_capabilities_secure_bits(CapabilitiesSecureBits::NO_SETUID_FIXUP)?)
}

/// Empties all capability sets, the bounding set included, so that no program brings any back. The permitted
/// set goes last: the others need it.
pub(crate) fn drop_all() -> io::Result<()> {
    let failed = |error: caps::errors::CapsError| io::Error::other(error.to_string());
    caps::clear(None, CapSet::Ambient).map_err(failed)?;
    caps::clear(None, CapSet::Bounding).map_err(failed)?;
    set_capabilities_secure_bits(
        CapabilitiesSecureBits::NO_ROOT
            | CapabilitiesSecureBits::NO_ROOT_LOCKED
            | CapabilitiesSecureBits::NO_SETUID_FIXUP
            | CapabilitiesSecureBits::NO_SETUID_FIXUP_LOCKED
            | CapabilitiesSecureBits::KEEP_CAPS_LOCKED
            | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE
            | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE_LOCKED,
    )?;
    caps::clear(None, CapSet::Inheritable).map_err(failed)?;
    caps::clear(None, CapSet::Effective).map_err(failed)?;
    caps::clear(None, CapSet::Permitted).map_err(failed)
}

/// From here on no program gains a privilege by being run.
pub(crate) fn no_new_privs() -> io::Result<()> {
    Ok(set_no_new_privs(true)?)
}

/// No core files, and no more open files than a program needs. Limits are only ever lowered.
pub(crate) fn limits() -> io::Result<()> {
    lower(Resource::Core, 0)?;
    lower(Resource::Nofile, NOFILE)
}

/// Limits processes and threads by user, for where no cgroup does. Counts within the user namespace only.
pub(crate) fn limit_processes(pids: u32) -> io::Result<()> {
    lower(Resource::Nproc, u64::from(pids))
}

fn lower(resource: Resource, to: u64) -> io::Result<()> {
    let hard = getrlimit(resource).maximum.map_or(to, |hard| hard.min(to));
    Ok(setrlimit(resource, Rlimit { current: Some(hard), maximum: Some(hard) })?)
}

/// The lines of `/proc/self/status` that say what a process may do.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Standing {
    /// Whether all five capability sets are empty.
    pub(crate) no_capabilities: bool,
    pub(crate) no_new_privs: bool,
    /// Whether a filter is installed.
    pub(crate) filtered: bool,
}

impl Standing {
    pub(crate) fn read() -> io::Result<Self> {
        Ok(Self::parse(&std::fs::read_to_string("/proc/self/status")?))
    }

    fn parse(status: &str) -> Self {
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            line.map(str::trim)
        };
        let sets = ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"];
        let empty = |set: &&str| field(set).is_some_and(|bits| bits.bytes().all(|digit| digit == b'0'));
        Self {
            no_capabilities: sets.iter().all(empty),
            no_new_privs: field("NoNewPrivs") == Some("1"),
            filtered: field("Seccomp") == Some("2"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_from_the_status_does_not_count_as_given_up() {
        let good = "CapInh:\t0000\nCapPrm:\t0000\nCapEff:\t0000\nCapBnd:\t0000\nCapAmb:\t0000\nNoNewPrivs:\t1\nSeccomp:\t2\nSeccomp_filters:\t2\n";
        let all = Standing { no_capabilities: true, no_new_privs: true, filtered: true };
        assert_eq!(Standing::parse(good), all);
        let one = Standing::parse(&good.replace("CapBnd:\t0000", "CapBnd:\t0001"));
        assert!(!one.no_capabilities);
        let none = Standing { no_capabilities: false, no_new_privs: false, filtered: false };
        assert_eq!(Standing::parse(""), none);
    }
}
