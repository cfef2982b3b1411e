//! Knowing how the sandbox is: connecting to its init, again where the connection was lost, and remembering when it
//! was last seen alive.

use std::fs;
use std::io;
use std::path::Path;

use handoff_protocol::node::ObservedState;
use handoff_sandbox::boot_ms;
use handoff_sandbox::control::{AgentState, Status, ToInit};
use tokio::time::{Duration, Instant};

use super::{Place, StepError, blocking};
use crate::init_link::{Inbound, InitError, InitLink};
use crate::plan::Sandbox;

/// How often an init that runs may leave its connection unanswered before its sandbox counts as dead.
const UNANSWERED: u32 = 3;
/// An agent that lived so long is not one that ends whenever it is started.
const LONG_LIFE: Duration = Duration::from_secs(60);
/// The longest pause before an agent that ends whenever it is started is started again.
const LONGEST_REST: Duration = Duration::from_secs(60);
/// When the sandbox was last seen alive; lost with the power, as the boot is that it counts from.
const SIGHTING: &str = "last-alive";

/// The agent's lives, as far as they are short.
#[derive(Debug)]
pub(super) struct Lives {
    since: Instant,
    short: u32,
    /// No start before this.
    pub(super) rest_until: Option<Instant>,
}

impl Lives {
    pub(super) fn new(now: Instant) -> Self {
        Self { since: now, short: 0, rest_until: None }
    }

    pub(super) fn begin(&mut self, now: Instant) {
        self.since = now;
    }

    /// How long to wait after this end, if it came soon after the start: from one second, twice as long each time.
    fn end(&mut self, now: Instant) -> Option<(u32, Duration)> {
        if now - self.since >= LONG_LIFE {
            self.short = 0;
            self.rest_until = None;
            return None;
        }
        self.short += 1;
        let rest = Duration::from_secs(1 << (self.short - 1).min(6)).min(LONGEST_REST);
        self.rest_until = Some(now + rest);
        Some((self.short, rest))
    }
}

impl Place {
    /// Takes over what an earlier process of this node left running.
    pub(super) async fn adopt(&mut self) {
        if let Some(restored) = self.record.restored {
            // What is still here of it need not be fetched again for a re-claim.
            let _ = self.shared.kept.keep(self.key(), restored, &self.shared.blobs).await;
        }
        if self.record.sandbox.is_none() {
            return;
        }
        self.sandbox = Sandbox::Alive;
        while let Err(error) = self.connect().await {
            tracing::warn!(place = %self.key(), %error, "what was left running does not answer; asking again");
        }
        if self.sandbox == Sandbox::Alive {
            tracing::info!(place = %self.key(), "adopted");
            self.quiesced_ms = Some(0);
            let wanted = self.wanted.borrow().clone();
            if let Err(error) = self.open_door(&wanted).await {
                tracing::warn!(place = %self.key(), %error, "the door is not open yet");
            }
        }
        self.watch_meter();
    }

    /// Connects to the init where no connection stands. A lost connection says nothing about the sandbox: it is dead
    /// when its agent or its init has ended, or when an init that runs does not answer time and again.
    ///
    /// # Errors
    /// It runs and does not answer.
    pub(super) async fn connect(&mut self) -> Result<(), StepError> {
        if self.link.is_some() || self.sandbox != Sandbox::Alive {
            return Ok(());
        }
        match InitLink::connect(&self.dir).await {
            Ok((link, status)) => {
                self.link = Some(link);
                self.unanswered = 0;
                self.look_at(&status);
                Ok(())
            }
            Err(error) => {
                self.unanswered += 1;
                if self.unanswered >= UNANSWERED || !self.init_runs().await? {
                    tracing::warn!(place = %self.key(), %error, "the sandbox is dead");
                    self.unanswered = 0;
                    self.note_death();
                    return Ok(());
                }
                Err(error.into())
            }
        }
    }

    async fn init_runs(&self) -> Result<bool, StepError> {
        let Some(name) = self.name() else { return Ok(false) };
        let driver = self.shared.driver.clone();
        blocking(move || Ok::<_, io::Error>(driver.adopt(&name).is_some())).await
    }

    fn look_at(&mut self, status: &Status) {
        match status.agent {
            AgentState::Running => {
                self.saw_alive();
                // Why it stands still is not remembered: the meter says whether it may go on.
                self.dry |= status.reasons.command && !self.frozen;
            }
            AgentState::Exited { code } => {
                tracing::warn!(place = %self.key(), code, "the agent has ended");
                self.note_death();
            }
        }
    }

    async fn link(&mut self) -> Result<&mut InitLink, StepError> {
        self.connect().await?;
        self.link.as_mut().ok_or(StepError::Init(InitError::Gone))
    }

    /// Commands the init. A connection that did not answer is dropped: its late answer would be taken for the next
    /// command's.
    pub(super) async fn command(&mut self, command: &ToInit) -> Result<Status, StepError> {
        let answer = self.link().await?.command(command).await;
        self.keep_link_if(answer)
    }

    /// Passes a line to the agent.
    pub(super) async fn tell_agent<M: serde::Serialize>(&mut self, message: &M) -> Result<(), StepError> {
        let told = self.link().await?.tell_agent(message).await;
        self.keep_link_if(told)
    }

    fn keep_link_if<T>(&mut self, answer: Result<T, InitError>) -> Result<T, StepError> {
        match &answer {
            Err(InitError::Gone | InitError::Silent) => self.link = None,
            Err(InitError::Refused(_)) | Ok(_) => {}
        }
        Ok(answer?)
    }

    /// Remembers that the agent ended, or looks again where only the connection did.
    pub(super) async fn note_end(&mut self, inbound: &Inbound) -> Result<(), StepError> {
        match inbound {
            Inbound::Exited(code) => {
                tracing::warn!(place = %self.key(), code, "the agent ended");
                self.saw_alive();
                self.note_death();
                self.say_whether_short().await;
                Ok(())
            }
            Inbound::Lost => {
                self.link = None;
                self.connect().await
            }
            Inbound::Agent(_) | Inbound::LeaseRanOut => Ok(()),
        }
    }

    fn note_death(&mut self) {
        self.sandbox = Sandbox::Dead;
    }

    /// An agent that ends soon after every start is started ever more rarely.
    async fn say_whether_short(&mut self) {
        if let Some((times, rest)) = self.lives.end(Instant::now()) {
            let reason = format!(
                "the agent ended soon after it was started, {times} times by now; starting it again in {} s",
                rest.as_secs()
            );
            tracing::warn!(place = %self.key(), reason, "resting");
            let _ = self.observe(ObservedState::Failed, Some(reason)).await;
        }
    }

    /// The sandbox is alive now.
    pub(super) fn saw_alive(&mut self) {
        let now_ms = boot_ms();
        self.alive_ms = Some(now_ms);
        if let Err(error) = write_sighting(&self.dir, &self.shared.boot_id, now_ms) {
            tracing::debug!(place = %self.key(), %error, "the sighting is not written down");
        }
    }

    /// When it was last seen alive, by this process or one before it; never in another boot.
    pub(super) fn last_alive_ms(&self) -> Option<u64> {
        self.alive_ms.or_else(|| read_sighting(&self.dir, &self.shared.boot_id))
    }
}

fn write_sighting(dir: &Path, boot_id: &str, at_ms: u64) -> io::Result<()> {
    let temporary = dir.join(format!("{SIGHTING}.new"));
    fs::write(&temporary, format!("{boot_id} {at_ms}"))?;
    fs::rename(&temporary, dir.join(SIGHTING))
}

fn read_sighting(dir: &Path, boot_id: &str) -> Option<u64> {
    let text = fs::read_to_string(dir.join(SIGHTING)).ok()?;
    text.strip_prefix(boot_id)?.strip_prefix(' ')?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_that_ends_at_every_start_is_started_ever_more_rarely_until_it_has_lived() {
        let start = Instant::now();
        let mut lives = Lives::new(start);
        let rests: Vec<u64> = (0..9).map(|_| lives.end(start).expect("a short life").1.as_secs()).collect();
        assert_eq!(rests, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
        assert_eq!(lives.end(start + LONG_LIFE), None);
        assert_eq!(lives.rest_until, None);
        lives.begin(start + LONG_LIFE);
        assert_eq!(lives.end(start + LONG_LIFE), Some((1, Duration::from_secs(1))));
    }

    #[test]
    fn a_sighting_counts_in_its_own_boot() {
        let dir = tempfile::tempdir().expect("a directory");
        assert_eq!(read_sighting(dir.path(), "a"), None);
        write_sighting(dir.path(), "a", 42).expect("written");
        assert_eq!(read_sighting(dir.path(), "a"), Some(42));
        assert_eq!(read_sighting(dir.path(), "b"), None);
    }
}
