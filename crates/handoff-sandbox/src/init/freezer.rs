//! Holding the payload still and letting it go on, by whichever way this sandbox has, and asking the kernel
//! whether it does.

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::time::Duration;

use rustix::process::Signal;

use super::reach::Reach;
use crate::clock::Deadline;
use crate::launch::plan::FreezerFds;
use crate::proc::Stat;
use crate::sys;

/// How long one attempt may take before the init looks after its other duties again.
const ATTEMPT: Duration = Duration::from_secs(2);
/// How soon a freeze or thaw that has not come true is tried again.
const SOON: Duration = Duration::from_millis(50);
/// How often what is held by signals is looked after.
const WATCH: Duration = Duration::from_millis(250);

/// The way, with its open files.
#[derive(Debug)]
enum Way {
    V2 {
        freeze: File,
        events: File,
    },
    V1 {
        state: File,
    },
    /// SIGSTOP to everything but this process. What is stopped can neither fork nor send SIGCONT, so once
    /// all that /proc shows is stopped it stays so; what was forked meanwhile is met in the next round.
    Signals(Reach),
}

/// The freezer and what was last asked of it.
#[derive(Debug)]
pub(super) struct Freezer {
    way: Way,
    wanted: bool,
    settled: bool,
}

impl Freezer {
    pub(super) fn new(fds: Option<FreezerFds>, reach: Reach) -> io::Result<Self> {
        let file = |number| sys::inherited(number).map(File::from);
        let way = match fds {
            Some(FreezerFds::V2 { freeze, events }) => {
                Way::V2 { freeze: file(freeze)?, events: file(events)? }
            }
            Some(FreezerFds::V1 { state }) => Way::V1 { state: file(state)? },
            None => Way::Signals(reach),
        };
        Ok(Self { way, wanted: false, settled: true })
    }

    /// Whether it works by signals, for want of a cgroup.
    pub(super) fn by_signals(&self) -> bool {
        matches!(self.way, Way::Signals(_))
    }

    /// How soon the payload has to be looked at again, if at all: soon while it does not follow yet, and now
    /// and then while signals hold it, because the kernel lets stopped processes go on when the last process
    /// outside their group that cared for them is killed.
    pub(super) fn again(&self) -> Option<Duration> {
        let held_by_signals = self.wanted && self.by_signals();
        if self.settled { held_by_signals.then_some(WATCH) } else { Some(SOON) }
    }

    /// Brings the payload into the wanted state, if it is not in it.
    ///
    /// # Errors
    /// The kernel refused, or it takes longer than one attempt; ask again.
    pub(super) fn bring(&mut self, frozen: bool) -> io::Result<()> {
        if self.settled && self.wanted == frozen && !(frozen && self.by_signals()) {
            return Ok(());
        }
        self.wanted = frozen;
        self.settled = false;
        self.way.ask(frozen)?;
        let mut last = Ok(false);
        let done = Deadline::within(ATTEMPT).until(|| {
            last = self.way.reached(frozen);
            matches!(last, Ok(true))
        });
        last?;
        if !done {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "not all of it follows yet"));
        }
        self.settled = true;
        Ok(())
    }

    /// Whether all of the payload stands still, as the kernel says.
    pub(super) fn is_frozen(&mut self) -> bool {
        self.wanted && self.way.reached(true).unwrap_or(false)
    }
}

impl Way {
    fn ask(&mut self, frozen: bool) -> io::Result<()> {
        match self {
            Self::V2 { freeze, .. } => rewrite(freeze, if frozen { b"1" } else { b"0" }),
            Self::V1 { state } => rewrite(state, if frozen { b"FROZEN" } else { b"THAWED" }),
            Self::Signals(reach) => reach.signal(if frozen { Signal::STOP } else { Signal::CONT }),
        }
    }

    fn reached(&mut self, frozen: bool) -> io::Result<bool> {
        match self {
            Self::V2 { events, .. } => {
                let wanted = if frozen { "frozen 1" } else { "frozen 0" };
                Ok(reread(events)?.lines().any(|line| line == wanted))
            }
            Self::V1 { state } => Ok(reread(state)?.trim_end() == if frozen { "FROZEN" } else { "THAWED" }),
            Self::Signals(reach) if frozen => {
                let still = all_still(&reach.others()?);
                if !still {
                    reach.signal(Signal::STOP)?;
                }
                Ok(still)
            }
            // A process may have stopped for a reason of its own: that it was told to go on is enough.
            Self::Signals(_) => Ok(true),
        }
    }
}

/// Whether no thread of these processes can go on by itself: each has stopped or ended, or stands in vfork,
/// where it takes no signal until its child has become another program, and that child has stopped.
fn all_still(processes: &[(i32, Stat)]) -> bool {
    let in_vfork = |pid: i32| processes.iter().any(|(_, child)| child.parent == pid && child.stopped());
    processes.iter().all(|(pid, _)| {
        let threads = Stat::threads(*pid);
        let waits = |thread: &Stat| thread.uninterruptible() && in_vfork(*pid);
        threads.iter().all(|thread| thread.ended() || thread.stopped() || waits(thread))
    })
}

fn rewrite(file: &mut File, word: &[u8]) -> io::Result<()> {
    file.rewind()?;
    file.write_all(word)
}

fn reread(file: &mut File) -> io::Result<String> {
    let mut text = String::new();
    file.rewind()?;
    file.read_to_string(&mut text)?;
    Ok(text)
}
