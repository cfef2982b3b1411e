//! Whom the init can reach: all of its pid namespace, or, without one, its descendants. As their subreaper it
//! is the parent of every process whose own parent has ended, so none leaves the tree.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::process::{Signal, WaitOptions, wait};

use crate::clock::Deadline;
use crate::proc::{Process, Stat, pids};
use crate::sys;

/// How far the init's signals go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reach {
    /// Everything in the pid namespace that this process is the first of.
    Namespace,
    /// Everything that descends from this process.
    Descendants,
}

impl Reach {
    /// Takes up the second kind.
    pub(super) fn descendants() -> io::Result<Self> {
        let me = rustix::process::getpid();
        rustix::process::set_child_subreaper(Some(me))?;
        Ok(Self::Descendants)
    }

    /// All of them but this process, by id and time of start.
    pub(super) fn others(self) -> io::Result<Vec<(i32, Stat)>> {
        let me = i32::try_from(std::process::id()).expect("ids are small");
        let all: Vec<(i32, Stat)> =
            pids()?.into_iter().filter_map(|pid| Some((pid, Stat::read(pid)?))).collect();
        Ok(match self {
            Self::Namespace => all.into_iter().filter(|(pid, _)| *pid != me).collect(),
            Self::Descendants => below(me, all),
        })
    }

    /// Whether a connection came from somebody else. Inside a namespace nobody sees the socket. Without one the
    /// payload does, and its lease would be its own to grant: who connected has to live, and elsewhere.
    pub(super) fn is_outside(self, stream: &UnixStream) -> bool {
        match self {
            Self::Namespace => true,
            Self::Descendants => {
                let peer = rustix::net::sockopt::socket_peercred(stream).map(|peer| peer.pid.as_raw_pid());
                let (Ok(peer), Ok(others)) = (peer, self.others()) else { return false };
                let lives = Stat::read(peer).is_some_and(|stat| !stat.ended());
                lives && !others.iter().any(|(pid, _)| *pid == peer)
            }
        }
    }

    /// Sends a signal to all of them. Those that were made meanwhile are met by asking again.
    pub(super) fn signal(self, signal: Signal) -> io::Result<()> {
        match self {
            Self::Namespace => sys::signal_all_others(signal),
            Self::Descendants => {
                for (pid, stat) in self.others()?.into_iter().filter(|(_, stat)| !stat.ended()) {
                    if let Ok(process) = Process::open(pid, stat.start_ticks) {
                        process.signal(signal)?;
                    }
                }
                Ok(())
            }
        }
    }

    /// Ends all of them, and collects them where nobody else does. True when nobody is left: whoever descends
    /// from this process has an ancestor among its children, so a process without children is alone.
    pub(super) fn kill(self) -> bool {
        let _ = self.signal(Signal::KILL);
        match self {
            // The kernel ends what is in a namespace with its first process.
            Self::Namespace => true,
            Self::Descendants => Deadline::within(Duration::from_secs(5)).until(|| {
                let _ = self.signal(Signal::KILL);
                loop {
                    match wait(WaitOptions::NOHANG) {
                        Ok(Some(_)) | Err(rustix::io::Errno::INTR) => {}
                        Ok(None) => return false,
                        Err(errno) => return errno == rustix::io::Errno::CHILD,
                    }
                }
            }),
        }
    }
}

/// Those that descend from one process.
fn below(top: i32, all: Vec<(i32, Stat)>) -> Vec<(i32, Stat)> {
    let parents: BTreeMap<i32, i32> = all.iter().map(|(pid, stat)| (*pid, stat.parent)).collect();
    let descends = |pid: i32| {
        let ancestors = std::iter::successors(Some(pid), |pid| parents.get(pid).copied());
        // A chain is no longer than there are processes; one that changes while it is read must not loop.
        ancestors.skip(1).take(parents.len() + 1).any(|ancestor| ancestor == top)
    };
    all.into_iter().filter(|(pid, _)| descends(*pid)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_whole_tree_and_nothing_beside_it() {
        let stat = |parent| Stat { state: b'S', parent, start_ticks: 0 };
        let all = vec![(1, stat(0)), (2, stat(1)), (3, stat(2)), (4, stat(3)), (5, stat(1)), (6, stat(99))];
        let found: Vec<i32> = below(2, all).into_iter().map(|(pid, _)| pid).collect();
        assert_eq!(found, [3, 4]);
        let circle = vec![(7, stat(8)), (8, stat(7))];
        assert!(below(2, circle).is_empty());
    }
}
