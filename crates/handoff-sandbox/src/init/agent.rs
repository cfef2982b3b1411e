//! Executing the agent and keeping its two ends: the control connection, which is its descriptor 3, and the
//! pipe that its output comes out of.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::Pid;

use crate::confine::{landlock, privileges};
use crate::launch::plan::{Bare, PLAN_FD, Payload};
use crate::lines::{Outbox, Splitter, later};
use crate::sys;

/// Bytes of lines that wait for an agent that does not read.
const WAITING: usize = 4 << 20;

/// The agent's end of its control connection.
const AGENT_FD: i32 = PLAN_FD;

/// The running agent, or what is left of its connection.
#[derive(Debug)]
pub(super) struct Agent {
    pub(super) pid: Pid,
    pub(super) stream: UnixStream,
    pub(super) incoming: Splitter,
    pub(super) outgoing: Outbox,
    /// The other end is closed.
    pub(super) ended: bool,
}

impl Agent {
    /// Executes it. Returns once the program runs, or says why it does not.
    pub(super) fn start(
        payload: &Payload,
        rooms: Vec<OwnedFd>,
        nproc: bool,
        output: Option<OwnedFd>,
    ) -> io::Result<Self> {
        let (program, arguments) = payload
            .command
            .split_first()
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "the command is empty"))?;
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        sys::place(theirs.as_raw_fd(), AGENT_FD)?;
        let stdio = |output: &Option<OwnedFd>| {
            Ok::<_, io::Error>(
                output.as_ref().map(OwnedFd::try_clone).transpose()?.map_or(Stdio::null(), Stdio::from),
            )
        };
        let mut command = Command::new(program);
        command.args(arguments).env_clear().envs(&payload.env);
        command.current_dir(payload.bare.as_ref().map_or(Path::new("/"), |bare| &bare.dir));
        command.stdin(Stdio::null()).stdout(stdio(&output)?).stderr(stdio(&output)?);
        let pids = payload.pids;
        let bare = payload.bare.clone();
        let confine = move || confine(&rooms, nproc.then_some(pids), bare.as_ref());
        // SAFETY: the closure runs in the child of a process with one thread, so it may allocate and lock.
        unsafe { command.pre_exec(confine) };
        let child = command.spawn()?;
        // Only the agent may hold its end, or its going away would not be seen.
        let null = File::open("/dev/null")?;
        sys::place(null.as_raw_fd(), AGENT_FD)?;
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).expect("a process id");
        Ok(Self {
            pid,
            stream: ours,
            incoming: Splitter::default(),
            outgoing: Outbox::default(),
            ended: false,
        })
    }

    /// Whether more lines may wait for it.
    pub(super) fn takes_more(&self) -> bool {
        self.outgoing.len() < WAITING
    }
}

/// Between fork and exec. The cgroups come first: they count from here on.
fn confine(rooms: &[OwnedFd], nproc: Option<u32>, bare: Option<&Bare>) -> io::Result<()> {
    for room in rooms {
        rustix::io::write(room.as_fd(), b"0")?;
    }
    rustix::process::setsid()?;
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    sys::reset_signals();
    privileges::limits()?;
    if let Some(pids) = nproc {
        privileges::limit_processes(pids)?;
    }
    if bare.is_some() {
        // Nothing else ends it with its init.
        rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
    }
    // A domain within the init's own: the payload can neither signal nor trace the init. Without Landlock,
    // being the first process of its namespace and not dumpable protects it.
    let _ = landlock::restrict(bare);
    Ok(())
}

/// Carries the agent's output to the log until the log is full; the rest is read and thrown away, so that a
/// talkative agent neither fills the disk nor stands still.
#[derive(Debug)]
pub(super) struct Log {
    pub(super) pipe: io::PipeReader,
    file: File,
    left: u64,
}

impl Log {
    /// The log, and the end that the agent writes to.
    pub(super) fn new(file: File, limit: u64) -> io::Result<(Self, OwnedFd)> {
        let (pipe, end) = io::pipe()?;
        rustix::io::ioctl_fionbio(&pipe, true)?;
        let left = limit.saturating_sub(file.metadata()?.len());
        Ok((Self { pipe, file, left }, end.into()))
    }

    /// Moves what has come. False when nothing can come any more.
    pub(super) fn pump(&mut self) -> bool {
        let mut chunk = vec![0; 64 << 10];
        match self.pipe.read(&mut chunk) {
            Ok(0) => false,
            Ok(length) => {
                let take = usize::try_from(self.left).unwrap_or(usize::MAX).min(length);
                // A full disk loses log lines and nothing else.
                let _ = self.file.write_all(&chunk[..take]);
                self.left -= u64::try_from(take).expect("a chunk is small");
                true
            }
            Err(error) => later(&error),
        }
    }
}
