//! The node's side of `init.sock`, blocking. An asynchronous node takes the connection from [`connect`] and
//! the messages from [`control`](crate::control).

use std::collections::VecDeque;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use crate::clock::Deadline;
use crate::control::{Cause, FromInit, SOCKET, Status, ToInit};
use crate::lines::Splitter;

/// Connects to the init of the sandbox in a destination's directory, however long the directory's path is.
/// The init drops any earlier connection.
///
/// # Errors
/// `ConnectionRefused` or `NotFound` where no init listens.
pub fn connect(dir: &Path) -> io::Result<UnixStream> {
    let dir = std::fs::File::open(dir)?;
    UnixStream::connect(format!("/proc/self/fd/{}/{SOCKET}", dir.as_raw_fd()))
}

/// A connection to an init.
#[derive(Debug)]
pub struct InitClient {
    stream: UnixStream,
    splitter: Splitter,
    heard: VecDeque<FromInit>,
}

impl InitClient {
    /// Connects, and takes the init's first word.
    ///
    /// # Errors
    /// No init listens, or it does not speak in time.
    pub fn connect(dir: &Path, within: Duration) -> io::Result<(Self, Status)> {
        let mut client =
            Self { stream: connect(dir)?, splitter: Splitter::default(), heard: VecDeque::new() };
        let status = client.status_of(Cause::Connected, Deadline::within(within))?;
        Ok((client, status))
    }

    /// Sends a command and waits for its answer. What else comes meanwhile is kept for [`Self::next`].
    ///
    /// # Errors
    /// The connection ended, was replaced, or the answer does not come in time. For [`ToInit::Kill`] the end
    /// is the answer: use [`Self::kill`].
    pub fn ask(&mut self, command: &ToInit, within: Duration) -> io::Result<Status> {
        let deadline = Deadline::within(within);
        self.send(command)?;
        self.status_of(Cause::Command, deadline)
    }

    /// Ends the sandbox's processes. True when the init has gone in time.
    ///
    /// # Errors
    /// The connection was gone before.
    pub fn kill(mut self, within: Duration) -> io::Result<bool> {
        let deadline = Deadline::within(within);
        self.send(&ToInit::Kill)?;
        loop {
            match self.receive(deadline) {
                Ok(true) => {}
                Ok(false) => return Ok(true),
                Err(error) if error.kind() == io::ErrorKind::TimedOut => return Ok(false),
                // Reset instead of closed: it went with our last bytes unread.
                Err(_) => return Ok(true),
            }
        }
    }

    /// The next thing the init says by itself: a line of the agent, the end of the agent, the end of the
    /// lease. `None` when nothing comes in time.
    ///
    /// # Errors
    /// The connection ended.
    pub fn next(&mut self, within: Duration) -> io::Result<Option<FromInit>> {
        let deadline = Deadline::within(within);
        loop {
            if let Some(message) = self.heard.pop_front() {
                return Ok(Some(message));
            }
            match self.receive(deadline) {
                Ok(true) => {}
                Ok(false) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Err(error) if error.kind() == io::ErrorKind::TimedOut => return Ok(None),
                Err(error) => return Err(error),
            }
        }
    }

    fn send(&mut self, command: &ToInit) -> io::Result<()> {
        let mut line = serde_json::to_vec(command)?;
        line.push(b'\n');
        self.stream.write_all(&line)
    }

    fn status_of(&mut self, cause: Cause, deadline: Deadline) -> io::Result<Status> {
        let wanted =
            |message: &FromInit| matches!(message, FromInit::Status(status) if status.cause == cause);
        loop {
            if let Some(at) = self.heard.iter().position(wanted)
                && let Some(FromInit::Status(status)) = self.heard.remove(at)
            {
                return Ok(status);
            }
            if !self.receive(deadline)? {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    /// Takes what comes before the deadline. False at the end of the connection.
    fn receive(&mut self, deadline: Deadline) -> io::Result<bool> {
        let late = || io::Error::from(io::ErrorKind::TimedOut);
        self.stream.set_read_timeout(Some(deadline.left().ok_or_else(late)?))?;
        let Some(cut) = self.splitter.read(&self.stream)? else { return Ok(false) };
        for line in cut.lines {
            self.heard.push_back(serde_json::from_str(&line)?);
        }
        Ok(true)
    }
}
