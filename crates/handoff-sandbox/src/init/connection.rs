//! The node's connection: commands in, answers and the agent's lines out.

use std::io;
use std::os::unix::net::UnixStream;

use crate::control::FromInit;
use crate::lines::{Cut, Outbox, Splitter};

/// Bytes that wait for a node that does not read; beyond it the agent's lines are left where they are.
const WAITING: usize = 2 << 20;

#[derive(Debug)]
pub(super) struct Connection {
    pub(super) stream: UnixStream,
    incoming: Splitter,
    outgoing: Outbox,
    /// Whether this node has heard that the agent ended.
    pub(super) told_exit: bool,
}

impl Connection {
    pub(super) fn new(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self { stream, incoming: Splitter::default(), outgoing: Outbox::default(), told_exit: false })
    }

    pub(super) fn send(&mut self, message: &FromInit) {
        let line = serde_json::to_vec(message).expect("plain data");
        self.outgoing.push(&line);
    }

    /// Whether more of the agent's lines may be put in.
    pub(super) fn takes_more(&self) -> bool {
        self.outgoing.len() < WAITING
    }

    /// Whether something waits to be written.
    pub(super) fn has_more(&self) -> bool {
        self.outgoing.len() > 0
    }

    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.outgoing.flush(&self.stream)
    }

    /// What came in. `None` when the node is gone.
    pub(super) fn receive(&mut self) -> io::Result<Option<Cut>> {
        self.incoming.read(&self.stream)
    }
}
