//! The init's loop: one thread, one poll. Every turn first brings the payload into the state that lease and
//! commands demand, then looks at who has something to say.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixListener;

use handoff_protocol::IncarnationId;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Signal, WaitOptions, wait};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

use super::agent::{Agent, Log};
use super::connection::Connection;
use super::freezer::Freezer;
use super::reach::Reach;
use crate::clock::{self, timespec};
use crate::control::{AgentState, Cause, FromInit, Refused, Status, ToInit, is_go};
use crate::lease::{Grant, Keeper};
use crate::strays;

/// Bytes of the agent's lines that are kept while nobody reads them: the init's memory is not the tier's. An
/// agent that says more has to wait.
const SAID_BYTES: usize = 4 << 20;

/// Everything the init holds.
#[derive(Debug)]
pub(super) struct Init {
    incarnation: IncarnationId,
    boot_id: String,
    keeper: Keeper,
    freezer: Freezer,
    reach: Reach,
    agent: Agent,
    exit: Option<i32>,
    log: Option<Log>,
    listener: UnixListener,
    connection: Option<Connection>,
    /// What the agent said and nobody has heard yet.
    said: VecDeque<String>,
    /// What they take.
    said_bytes: usize,
    lines_dropped: u64,
    children: OwnedFd,
    /// Runs on CLOCK_BOOTTIME: it fires at the deadline even if the machine slept over it.
    timer: OwnedFd,
    /// Whether the last turn found the lease over.
    lease_over: bool,
    record: Option<File>,
}

/// What an init is made of.
pub(super) struct Parts {
    pub(super) keeper: Keeper,
    pub(super) freezer: Freezer,
    pub(super) reach: Reach,
    pub(super) agent: Agent,
    pub(super) log: Option<Log>,
    pub(super) listener: UnixListener,
    pub(super) children: OwnedFd,
    pub(super) record: Option<File>,
}

/// What one look around found. Each is looked at in this order.
#[derive(Debug, Clone, Copy, Default)]
struct Ready {
    child: bool,
    timer: bool,
    accept: bool,
    command: bool,
    agent: bool,
    log: bool,
}

impl Init {
    pub(super) fn new(incarnation: IncarnationId, parts: Parts) -> io::Result<Self> {
        let Parts { keeper, freezer, reach, agent, log, listener, children, record } = parts;
        listener.set_nonblocking(true)?;
        let timer = timerfd_create(TimerfdClockId::Boottime, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?;
        Ok(Self {
            incarnation,
            boot_id: clock::boot_id(),
            keeper,
            freezer,
            reach,
            agent,
            exit: None,
            log,
            listener,
            connection: None,
            said: VecDeque::new(),
            said_bytes: 0,
            lines_dropped: 0,
            children,
            timer,
            lease_over: false,
            record,
        })
    }

    /// Until it is told to end.
    pub(super) fn run(&mut self) -> i32 {
        loop {
            self.keep_lease();
            self.tell();
            let Some(ready) = self.look() else { return self.end() };
            if ready.child {
                self.reap();
            }
            if ready.timer {
                let _ = rustix::io::read(&self.timer, &mut [0; 8]);
            }
            if ready.agent {
                self.hear_agent();
            }
            if ready.log && !self.log.as_mut().is_some_and(Log::pump) {
                self.log = None;
            }
            if ready.accept {
                self.accept();
            }
            if ready.command && self.obey() {
                return self.end();
            }
        }
    }

    /// Waits until something happens. Nothing where waiting itself fails: an init that can no longer hear must
    /// not leave anything running.
    fn look(&self) -> Option<Ready> {
        let (input, output) = (PollFlags::IN, PollFlags::OUT);
        let agent_waits = self.agent.outgoing.len() > 0;
        let agent_flags = flags(self.said_bytes < SAID_BYTES, input) | flags(agent_waits, output);
        let mut fds = vec![
            PollFd::new(&self.children, input),
            PollFd::new(&self.timer, input),
            PollFd::new(&self.listener, input),
        ];
        let listens = !self.agent.ended && !agent_flags.is_empty();
        let agent = add(&mut fds, listens.then(|| (self.agent.stream.as_fd(), agent_flags)));
        let log = add(&mut fds, self.log.as_ref().map(|log| (log.pipe.as_fd(), input)));
        let connection = add(
            &mut fds,
            self.connection
                .as_ref()
                .map(|connection| (connection.stream.as_fd(), input | flags(connection.has_more(), output))),
        );
        let again = self.freezer.again().map(timespec);
        match poll(&mut fds, again.as_ref()) {
            Ok(_) => {}
            Err(Errno::INTR | Errno::AGAIN | Errno::NOMEM) => return Some(Ready::default()),
            Err(_) => return None,
        }
        let came = |index: usize| !fds[index].revents().is_empty();
        Some(Ready {
            child: came(0),
            timer: came(1),
            accept: came(2),
            agent: agent.is_some_and(came),
            log: log.is_some_and(came),
            command: connection.is_some_and(came),
        })
    }

    /// Brings the payload into the state that the reasons demand. Says so when the lease has just run out.
    fn keep_lease(&mut self) {
        let over = self.keeper.reasons(clock::boot_ms()).lease;
        let followed = self.follow();
        if over && !self.lease_over {
            self.say_status(Cause::Lease, followed.err());
        }
        self.lease_over = over;
    }

    fn follow(&mut self) -> Result<(), Refused> {
        let frozen = self.keeper.reasons(clock::boot_ms()).any() && self.exit.is_none();
        self.freezer.bring(frozen).map_err(|error| Refused::NotFollowed { what: error.to_string() })
    }

    /// Takes the newest of those who knock. A node that comes back is the same node: the old connection is
    /// of no use to anyone.
    fn accept(&mut self) {
        while let Ok((stream, _)) = self.listener.accept() {
            if !self.reach.is_outside(&stream) {
                continue;
            }
            if let Ok(connection) = Connection::new(stream) {
                self.connection = Some(connection);
                self.say_status(Cause::Connected, None);
            }
        }
    }

    /// Reads commands and follows them. True when it was told to end.
    fn obey(&mut self) -> bool {
        let Some(connection) = &mut self.connection else { return false };
        if connection.flush().is_err() {
            self.connection = None;
            return false;
        }
        let Ok(Some(cut)) = connection.receive() else {
            self.connection = None;
            return false;
        };
        for line in cut.lines {
            match serde_json::from_str(&line) {
                Ok(ToInit::Kill) => return true,
                Ok(command) => {
                    let refused = self.command(command).err();
                    self.say_status(Cause::Command, refused);
                }
                Err(error) => self.not_understood(&error.to_string()),
            }
        }
        for _ in 0..cut.dropped {
            self.not_understood("a line is too long or no text");
        }
        false
    }

    fn not_understood(&mut self, what: &str) {
        self.say_status(Cause::Command, Some(Refused::NotUnderstood { what: what.to_owned() }));
    }

    fn command(&mut self, command: ToInit) -> Result<(), Refused> {
        match command {
            ToInit::Lease(grant) => self.take_lease(grant),
            ToInit::Freeze => {
                self.keeper.set_commanded(true);
                self.follow()
            }
            ToInit::Thaw => {
                self.keeper.set_commanded(false);
                self.follow()
            }
            ToInit::Status => Ok(()),
            ToInit::Agent { line } => self.pass_on(&line),
            ToInit::Kill => Ok(()),
        }
    }

    fn take_lease(&mut self, grant: Grant) -> Result<(), Refused> {
        let taken = self.keeper.accept(grant, clock::boot_ms());
        taken.map_err(|declined| Refused::Lease { declined })?;
        let deadline = self.keeper.frozen_at_ms().expect("a lease was just taken");
        let value = Timespec {
            tv_sec: i64::try_from(deadline / 1_000).unwrap_or(i64::MAX),
            tv_nsec: i64::try_from(deadline % 1_000).expect("below a thousand") * 1_000_000,
        };
        let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: value };
        // Without the timer the deadline would pass unseen: then the payload must not run at all.
        if let Err(error) = timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &once) {
            self.keeper.set_commanded(true);
            let _ = self.follow();
            return Err(Refused::NotFollowed { what: format!("the timer: {error}") });
        }
        self.lease_over = self.keeper.reasons(clock::boot_ms()).lease;
        self.follow()
    }

    fn pass_on(&mut self, line: &str) -> Result<(), Refused> {
        if self.exit.is_some() || self.agent.ended {
            return Err(Refused::AgentExited);
        }
        if line.contains('\n') {
            return Err(Refused::NotUnderstood { what: "more than one line".to_owned() });
        }
        if is_go(line) && !self.keeper.may_go(clock::boot_ms()) {
            return Err(Refused::NoLease);
        }
        if !self.agent.takes_more() {
            return Err(Refused::AgentBusy);
        }
        self.agent.outgoing.push(line.as_bytes());
        let _ = self.agent.outgoing.flush(&self.agent.stream);
        Ok(())
    }

    fn hear_agent(&mut self) {
        let _ = self.agent.outgoing.flush(&self.agent.stream);
        match self.agent.incoming.read(&self.agent.stream) {
            Ok(Some(cut)) => {
                self.said_bytes += cut.lines.iter().map(|line| weight(line)).sum::<usize>();
                self.said.extend(cut.lines);
                self.lines_dropped += cut.dropped;
            }
            Ok(None) | Err(_) => self.agent.ended = true,
        }
    }

    /// Collects whatever has ended: the agent, and what it left to this process.
    fn reap(&mut self) {
        let _ = rustix::io::read(&self.children, &mut [0; 512]);
        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
            if pid != self.agent.pid || self.exit.is_some() {
                continue;
            }
            let by_signal = status.terminating_signal().map(|signal| 128 + signal);
            self.exit = Some(status.exit_status().or(by_signal).unwrap_or(-1));
            // Nothing of the payload runs unsupervised: what the agent left behind goes with it.
            self.kill_all();
        }
    }

    /// Hands the agent's lines on, and after the last one the word of its end.
    fn tell(&mut self) {
        let Some(connection) = &mut self.connection else { return };
        while connection.takes_more()
            && let Some(line) = self.said.pop_front()
        {
            self.said_bytes -= weight(&line);
            connection.send(&FromInit::Agent { line });
        }
        if let Some(code) = self.exit
            && self.agent.ended
            && self.said.is_empty()
            && !connection.told_exit
        {
            connection.told_exit = true;
            connection.send(&FromInit::Exited { code });
        }
        if connection.flush().is_err() {
            self.connection = None;
        }
    }

    fn say_status(&mut self, cause: Cause, refused: Option<Refused>) {
        let now_ms = clock::boot_ms();
        let status = Status {
            cause,
            incarnation: self.incarnation,
            boot_id: self.boot_id.clone(),
            now_ms,
            agent: self.exit.map_or(AgentState::Running, |code| AgentState::Exited { code }),
            lease: self.keeper.grant().cloned(),
            frozen_at_ms: self.keeper.frozen_at_ms(),
            frozen: self.freezer.is_frozen(),
            reasons: self.keeper.reasons(now_ms),
            lines_dropped: self.lines_dropped,
            refused,
        };
        if let Some(connection) = &mut self.connection {
            connection.send(&FromInit::Status(status));
        }
    }

    /// What is frozen dies once it may run: so kill, thaw, and see that it is done, in this order.
    /// True when nobody is left.
    fn kill_all(&mut self) -> bool {
        let _ = self.reach.signal(Signal::KILL);
        let _ = self.freezer.bring(false);
        self.reach.kill()
    }

    /// A namespace whose first process ends waits for all others, so they are killed before.
    pub(super) fn end(&mut self) -> i32 {
        if self.kill_all()
            && let Some(record) = &self.record
        {
            strays::end(record);
        }
        0
    }
}

/// What a line takes while it is kept; an empty one is not free.
fn weight(line: &str) -> usize {
    line.len() + size_of::<String>()
}

/// Adds what there is to the list, and says where it stands.
fn add<'f>(fds: &mut Vec<PollFd<'f>>, fd: Option<(BorrowedFd<'f>, PollFlags)>) -> Option<usize> {
    let (fd, flags) = fd?;
    fds.push(PollFd::from_borrowed_fd(fd, flags));
    Some(fds.len() - 1)
}

fn flags(when: bool, flag: PollFlags) -> PollFlags {
    if when { flag } else { PollFlags::empty() }
}
