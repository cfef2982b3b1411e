//! The control connection to a source agent on this host.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use handoff_agent::control::{Freeze, FromAgent, Holder, LINE_BYTES, Status, ToAgent};
use handoff_protocol::session_dir::Boundary;
use handoff_protocol::{ErrorCode, SessionId, TransferId};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::time::timeout;

use crate::refusal::OrRefuse as _;

/// How long the agent may take to answer a question.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// A connection to a source agent.
pub struct SourceLink {
    read: BufReader<OwnedReadHalf>,
    write: OwnedWriteHalf,
    /// A line that was not read to its end when the wait for it was given up.
    partial: Vec<u8>,
}

impl SourceLink {
    /// Connects to the agent's control socket.
    pub async fn connect(socket: &Path) -> Result<Self> {
        let stream = UnixStream::connect(socket).await;
        let message = format!("no agent listens at {}", socket.display());
        let stream = stream.or_refuse(ErrorCode::MoveBlocked, message, "start the agent again")?;
        let (read, write) = stream.into_split();
        Ok(Self { read: BufReader::new(read), write, partial: Vec::new() })
    }

    /// How it is.
    pub async fn status(&mut self) -> Result<Status> {
        self.send(&ToAgent::Status).await?;
        self.wait_for(
            ANSWER_WITHIN,
            |told| if let FromAgent::Status(status) = told { Some(status) } else { None },
        )
        .await
        .context("the agent does not say how it is")
    }

    /// Stops it at a step boundary for this transfer. It writes that it is frozen before it answers.
    pub async fn freeze(&mut self, freeze: Freeze, within: Duration) -> Result<Boundary> {
        let within_ms = u64::try_from(within.as_millis()).unwrap_or(u64::MAX);
        self.send(&ToAgent::Quiesce { within_ms, freeze: Some(freeze) }).await?;
        let wait = within + ANSWER_WITHIN;
        let (boundary, frozen) = self
            .wait_for(wait, |told| {
                if let FromAgent::Quiesced { boundary, frozen } = told {
                    Some((boundary, frozen))
                } else {
                    None
                }
            })
            .await
            .context("the agent did not stop at a step boundary")?;
        if !frozen {
            bail!("the agent stopped, but did not write down that it is frozen");
        }
        Ok(boundary)
    }

    /// Lets it go on as the holder.
    pub async fn resume(&mut self, holder: Holder) -> Result<()> {
        self.send(&ToAgent::Resume { holder: Some(holder) }).await?;
        let status = self.status().await?;
        let stands = [handoff_agent::control::Activity::Frozen, handoff_agent::control::Activity::Quiesced];
        if stands.contains(&status.activity) {
            bail!("the agent did not go on: {}", status.reason.unwrap_or_default());
        }
        Ok(())
    }

    /// Ends it: the session runs elsewhere. Returns when the agent says so, or is gone.
    pub async fn retire(&mut self, session_id: SessionId, transfer_id: TransferId) -> Result<()> {
        self.send(&ToAgent::Retire { session_id, transfer_id }).await?;
        let gone = |told| matches!(told, FromAgent::Retired).then_some(());
        match timeout(ANSWER_WITHIN, self.until(gone)).await {
            Ok(_) => Ok(()),
            Err(_) => bail!("the agent did not end; it stands frozen and will not go on"),
        }
    }

    async fn send(&mut self, message: &ToAgent) -> Result<()> {
        let mut line = serde_json::to_vec(message)?;
        line.push(b'\n');
        self.write.write_all(&line).await.context("the agent's connection broke")
    }

    async fn wait_for<T>(&mut self, within: Duration, pick: impl FnMut(FromAgent) -> Option<T>) -> Result<T> {
        match timeout(within, self.until(pick)).await {
            Ok(Some(found)) => Ok(found),
            Ok(None) => bail!("the agent's connection broke"),
            Err(_) => bail!("no answer within {} s", within.as_secs()),
        }
    }

    /// Reads until the wanted line; nothing when the connection ends.
    async fn until<T>(&mut self, mut pick: impl FnMut(FromAgent) -> Option<T>) -> Option<T> {
        loop {
            let limit = u64::try_from(LINE_BYTES + 1).expect("a line fits u64");
            let read = (&mut self.read).take(limit).read_until(b'\n', &mut self.partial).await;
            match read {
                Ok(0) | Err(_) => return None,
                Ok(_) => {
                    let line = std::mem::take(&mut self.partial);
                    if let Some(found) = serde_json::from_slice(&line).ok().and_then(&mut pick) {
                        return Some(found);
                    }
                }
            }
        }
    }
}
