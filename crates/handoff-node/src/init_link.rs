//! The connection to one sandbox's init: commands out, statuses and the agent's lines in.
//!
//! The init answers every command with one status, in order. So an answer that did not come in time makes the
//! connection useless: it would be taken for the next command's. Whoever meets that drops it and connects anew.
//! Lines of the agent come from inside the sandbox and are treated as hostile: they are parsed, and never
//! followed as commands to this node.

use std::path::Path;
use std::time::Duration;

use handoff_sandbox::control::{Cause, FromInit, LINE_BYTES, Status, ToInit};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc;
use tokio::time::timeout;

/// How long an init may take to answer. It does nothing slow.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// Places in the queue that agent lines may not take.
const RESERVED: usize = 16;

/// Bytes of one line on this connection: a line of the agent whose every byte is a control character, written as
/// `\u0000`, and what stands around it.
const LINE_LIMIT: usize = LINE_BYTES * 6 + 1024;

/// What comes in besides answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Inbound {
    /// A line of the agent.
    Agent(String),
    /// The agent ended.
    Exited(i32),
    /// The lease ran out, and the init froze the payload.
    LeaseRanOut,
    /// The connection was lost. Whether the init is gone too has to be looked at.
    Lost,
}

/// Why an init did not do as told.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InitError {
    /// It cannot be reached, or the connection was lost.
    #[error("the sandbox's init cannot be reached")]
    Gone,
    /// It does not answer in time.
    #[error("the sandbox's init does not answer")]
    Silent,
    /// It said no.
    #[error("the sandbox's init refused: {0}")]
    Refused(handoff_sandbox::control::Refused),
}

/// One connection.
pub(crate) struct InitLink {
    out: OwnedWriteHalf,
    answers: mpsc::Receiver<Status>,
    inbound: mpsc::Receiver<Inbound>,
    /// An answer is outstanding.
    useless: bool,
}

impl InitLink {
    /// Connects to the init of the sandbox in a destination's directory; its first word is its status.
    pub(crate) async fn connect(dir: &Path) -> Result<(Self, Status), InitError> {
        let stream = handoff_sandbox::connect(dir)
            .and_then(|stream| stream.set_nonblocking(true).map(|()| stream))
            .and_then(UnixStream::from_std)
            .map_err(|_| InitError::Gone)?;
        let (read, out) = stream.into_split();
        let (answer, answers) = mpsc::channel(16);
        let (inbound_out, inbound) = mpsc::channel(256);
        tokio::spawn(read_lines(read, answer, inbound_out));
        let mut link = Self { out, answers, inbound, useless: false };
        let status = link.answer().await?;
        Ok((link, status))
    }

    /// Sends a command and waits for its answer.
    pub(crate) async fn command(&mut self, command: &ToInit) -> Result<Status, InitError> {
        self.send(command).await?;
        let status = self.answer().await?;
        match status.refused {
            Some(refused) => Err(InitError::Refused(refused)),
            None => Ok(status),
        }
    }

    /// Passes a line to the agent.
    pub(crate) async fn tell_agent<M: serde::Serialize>(&mut self, message: &M) -> Result<(), InitError> {
        let line = serde_json::to_string(message).expect("control messages are plain data");
        self.command(&ToInit::Agent { line }).await.map(|_| ())
    }

    /// Ends everything inside. The end of the connection is the answer.
    pub(crate) async fn kill(mut self) -> Result<(), InitError> {
        if self.send(&ToInit::Kill).await.is_err() {
            return Ok(());
        }
        let gone = async {
            while let Some(inbound) = self.inbound.recv().await {
                if inbound == Inbound::Lost {
                    break;
                }
            }
        };
        timeout(ANSWER_WITHIN, gone).await.map_err(|_| InitError::Silent)
    }

    /// What comes in next. Cancelling loses nothing.
    pub(crate) async fn next(&mut self) -> Inbound {
        self.inbound.recv().await.unwrap_or(Inbound::Lost)
    }

    async fn send(&mut self, command: &ToInit) -> Result<(), InitError> {
        let mut line = serde_json::to_vec(command).expect("control messages are plain data");
        line.push(b'\n');
        if self.useless {
            return Err(InitError::Gone);
        }
        // Until the answer is here, whatever comes to pass meanwhile: this call may be dropped at any time.
        self.useless = true;
        match timeout(ANSWER_WITHIN, self.out.write_all(&line)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(InitError::Gone),
            Err(_) => Err(InitError::Silent),
        }
    }

    async fn answer(&mut self) -> Result<Status, InitError> {
        match timeout(ANSWER_WITHIN, self.answers.recv()).await {
            Ok(Some(status)) => {
                self.useless = false;
                Ok(status)
            }
            Ok(None) => Err(InitError::Gone),
            Err(_) => Err(InitError::Silent),
        }
    }
}

/// Sorts what the init says.
async fn read_lines(read: OwnedReadHalf, answers: mpsc::Sender<Status>, inbound: mpsc::Sender<Inbound>) {
    let mut reader = BufReader::new(read);
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = (&mut reader).take(LINE_LIMIT as u64).read_until(b'\n', &mut line).await;
        let message = match read {
            Ok(0) | Err(_) => break,
            Ok(_) => serde_json::from_slice::<FromInit>(&line),
        };
        let sent = match message {
            Ok(FromInit::Status(status)) if status.cause == Cause::Lease => {
                inbound.send(Inbound::LeaseRanOut).await
            }
            Ok(FromInit::Status(status)) => {
                let _ = answers.send(status).await;
                continue;
            }
            Ok(FromInit::Agent { line }) => {
                // An agent that floods loses its own lines; it must not hold back the init's answers.
                if inbound.capacity() > RESERVED {
                    let _ = inbound.try_send(Inbound::Agent(line));
                }
                continue;
            }
            Ok(FromInit::Exited { code }) => inbound.send(Inbound::Exited(code)).await,
            Err(_) => break,
        };
        if sent.is_err() {
            return;
        }
    }
    let _ = inbound.send(Inbound::Lost).await;
}

#[cfg(test)]
mod tests {
    use handoff_sandbox::control::SOCKET;
    use handoff_sandbox::lease::Reasons;
    use tokio::net::UnixListener;

    use super::*;

    fn status() -> Status {
        Status {
            cause: Cause::Connected,
            incarnation: handoff_protocol::IncarnationId::from_u128(1),
            boot_id: "b".to_owned(),
            now_ms: 1,
            agent: handoff_sandbox::control::AgentState::Running,
            lease: None,
            frozen_at_ms: None,
            frozen: false,
            reasons: Reasons::default(),
            lines_dropped: 0,
            refused: None,
        }
    }

    async fn say(stream: &mut UnixStream, message: &FromInit) {
        let mut line = serde_json::to_vec(message).expect("plain data");
        line.push(b'\n');
        stream.write_all(&line).await.expect("read");
    }

    /// A home whose path does not fit into a socket address.
    #[tokio::test]
    async fn the_path_of_a_home_may_be_long() {
        let home = tempfile::tempdir().expect("a directory");
        let dir = home.path().join("x".repeat(120));
        std::fs::create_dir(&dir).expect("made");
        let here = tempfile::tempdir().expect("a directory");
        let listener = UnixListener::bind(here.path().join(SOCKET)).expect("bound");
        std::fs::rename(here.path().join(SOCKET), dir.join(SOCKET)).expect("moved");
        let init = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.expect("knocked");
            say(&mut stream, &FromInit::Status(status())).await;
        });
        let (_, found) = InitLink::connect(&dir).await.expect("connected");
        assert_eq!(found.incarnation, status().incarnation);
        init.await.expect("no panic");
    }

    /// 1 MiB of control characters is six times as long on the wire, and no reason to lose the connection.
    #[tokio::test]
    async fn the_longest_line_of_an_agent_passes() {
        let dir = tempfile::tempdir().expect("a directory");
        let listener = UnixListener::bind(dir.path().join(SOCKET)).expect("bound");
        let longest = "\u{1}".repeat(LINE_BYTES);
        let line = longest.clone();
        let init = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.expect("knocked");
            say(&mut stream, &FromInit::Status(status())).await;
            say(&mut stream, &FromInit::Agent { line }).await;
        });
        let (mut link, _) = InitLink::connect(dir.path()).await.expect("connected");
        assert!(link.next().await == Inbound::Agent(longest), "another line");
        init.await.expect("no panic");
    }

    /// What the init answers too late is nobody's answer: the connection is of no use any more, and a new one has
    /// answers of its own.
    #[tokio::test(start_paused = true)]
    async fn a_late_answer_is_not_taken_for_the_next_command_s() {
        let dir = tempfile::tempdir().expect("a directory");
        let listener = UnixListener::bind(dir.path().join(SOCKET)).expect("bound");
        let init = tokio::spawn(async move {
            let mut silent = Vec::new();
            for now_ms in 1.. {
                let (mut stream, _) = listener.accept().await.expect("knocked");
                say(&mut stream, &FromInit::Status(Status { now_ms, ..status() })).await;
                silent.push(stream);
            }
        });
        let (mut link, _) = InitLink::connect(dir.path()).await.expect("connected");
        assert!(matches!(link.command(&ToInit::Status).await, Err(InitError::Silent)));
        let again = link.command(&ToInit::Status).await;
        assert!(matches!(again, Err(InitError::Gone)), "it stays useless");
        let (_, found) = InitLink::connect(dir.path()).await.expect("connected anew");
        assert_eq!(found.now_ms, 2);
        init.abort();
    }
}
