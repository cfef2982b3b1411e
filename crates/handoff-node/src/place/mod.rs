//! One destination on this node: a task that looks at what is wanted, looks at what is there, and takes the
//! next step.

mod capture;
mod claim;
mod hold;
mod prepare;
mod remove;
mod renew;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use handoff_gateway::control::DestinationKey;
use handoff_protocol::node::{Destination, Observed, ObservedState};
use handoff_protocol::{AuthorizationId, Digest, IncarnationId, Timestamp, TransferId};
use handoff_sandbox::Name;
use handoff_sandbox::control::AgentState;
use handoff_snapshot::CaptureIndex;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::init_link::{Inbound, InitError, InitLink};
use crate::meter_task::MeterTask;
use crate::plan::{self, Actual, Sandbox, Step};
use crate::record::{self, Record};
use crate::shared::Shared;
use crate::step_error::StepError;

/// The longest pause after a step that failed.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// One destination.
pub(crate) struct Place {
    shared: Arc<Shared>,
    dir: PathBuf,
    record: Record,
    wanted: watch::Receiver<Destination>,
    sandbox: Sandbox,
    link: Option<InitLink>,
    fetched: Option<Digest>,
    door_open: bool,
    spent_authorization: Option<AuthorizationId>,
    /// The agent stands still for insolvency.
    frozen: bool,
    /// The agent stands still because a tick does not fit; the control plane has not answered yet.
    dry: bool,
    checkpointed: bool,
    removed: bool,
    meter: Option<MeterTask>,
    index: Arc<CaptureIndex>,
    renewing: Renewing,
    final_for: Option<Final>,
    /// Since when, on CLOCK_BOOTTIME in milliseconds, the agent may be standing at a boundary for a successor.
    quiesced_ms: Option<u64>,
    failures: u32,
}

/// When the holder renews, and what it waits for.
struct Renewing {
    at: Instant,
    checkpoint_at: Instant,
    /// The first sending of the last claim or renewal that was confirmed to this task, on CLOCK_BOOTTIME in
    /// milliseconds: every right to run counts from it.
    confirmed_ms: Option<u64>,
    /// `go` has not been sent since this task took the holder over.
    go_due: bool,
}

/// A final that was given for a successor.
struct Final {
    transfer: TransferId,
}

impl Place {
    /// A destination as it was left, or a new one.
    pub(crate) fn open(
        shared: Arc<Shared>,
        wanted: watch::Receiver<Destination>,
    ) -> Result<Self, std::io::Error> {
        let first = wanted.borrow().clone();
        let (transfer, generation) = (first.transfer_id, first.generation);
        let dir = record::directory(&shared.options.home, transfer, generation);
        let record = Record::load(&dir)?.unwrap_or(Record::new(transfer, generation, first.session_id));
        let now = Instant::now();
        let checkpoint_at = now + shared.options.checkpoint_every;
        Ok(Self {
            shared,
            dir,
            wanted,
            sandbox: if record.sandbox.is_some() { Sandbox::Dead } else { Sandbox::None },
            link: None,
            fetched: None,
            door_open: false,
            spent_authorization: None,
            frozen: false,
            dry: false,
            checkpointed: false,
            removed: false,
            meter: None,
            index: Arc::default(),
            renewing: Renewing { at: now, checkpoint_at, confirmed_ms: None, go_due: true },
            final_for: None,
            quiesced_ms: None,
            failures: 0,
            record,
        })
    }

    /// Reconciles until told to stop. Dropping it anywhere is safe: the next one goes on from the records.
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        tokio::select! {
            () = stop.cancelled() => {}
            () = self.reconcile() => {}
        }
    }

    async fn reconcile(&mut self) {
        self.adopt().await;
        loop {
            if self.removed && self.wanted.has_changed().is_err() {
                return;
            }
            self.settle_claim();
            let wanted = self.wanted.borrow_and_update().clone();
            let step = plan::next(&wanted, &self.actual());
            tracing::debug!(place = %self.key(), ?step, want = ?wanted.want, "next");
            match self.take(step, &wanted).await {
                Ok(()) => self.failures = 0,
                Err(error) => {
                    // Its next watcher starts from what is true then.
                    self.meter = None;
                    self.rest_after(step, &error).await;
                }
            }
        }
    }

    async fn take(&mut self, step: Step, wanted: &Destination) -> Result<(), StepError> {
        match step {
            Step::Fetch => self.fetch(wanted).await,
            Step::Restore => self.restore(wanted).await,
            Step::OpenDoor => self.open_door(wanted).await,
            Step::Start => self.start(wanted).await,
            Step::Clear => self.clear().await,
            Step::SendReceipt => self.send_receipt(wanted).await,
            Step::Claim(authorization) => self.claim(wanted, authorization).await,
            Step::Reclaim => self.reclaim(wanted).await,
            Step::Recover => self.recover(wanted).await,
            Step::Freeze => self.freeze().await,
            Step::Checkpoint => self.checkpoint_frozen().await,
            Step::Thaw => self.thaw_after_raise().await,
            Step::GoToRest => self.go_to_rest().await,
            Step::Yield => self.yield_session().await,
            Step::Remove => self.remove().await,
            Step::Hold => self.hold().await,
            Step::Wait => self.wait().await,
        }
    }

    fn actual(&self) -> Actual {
        Actual {
            fetched: self.fetched,
            restored: self.record.restored,
            door_open: self.door_open,
            sandbox: self.sandbox,
            receipted: self.record.receipted,
            spent_authorization: self.spent_authorization,
            holder: self.record.holding.map(|holding| holding.incarnation),
            frozen: self.frozen,
            checkpointed: self.checkpointed,
            removed: self.removed,
        }
    }

    /// Takes over what an earlier process of this node left running.
    async fn adopt(&mut self) {
        if self.record.sandbox.is_none() {
            return;
        }
        let socket = self.dir.join(handoff_sandbox::control::SOCKET);
        match InitLink::connect(&socket).await {
            Ok((link, status)) => {
                let running = status.agent == AgentState::Running;
                self.sandbox = if running { Sandbox::Alive } else { Sandbox::Dead };
                self.link = Some(link);
                // Why it stands still is not remembered: the meter says whether it may go on.
                self.dry = status.reasons.command;
                self.quiesced_ms = Some(0);
                tracing::info!(place = %self.key(), running, "adopted");
            }
            Err(error) => tracing::info!(place = %self.key(), %error, "what was left has ended"),
        }
        if self.sandbox == Sandbox::Alive {
            let wanted = self.wanted.borrow().clone();
            if let Err(error) = self.open_door(&wanted).await {
                tracing::warn!(place = %self.key(), %error, "the door is not open yet");
            }
        }
        self.watch_meter();
    }

    /// A claim whose answer this node never saw: the control plane's list says what became of it.
    fn settle_claim(&mut self) {
        let wanted = self.wanted.borrow();
        let Some(claim) = &self.record.claim else { return };
        if self.record.holding.is_none()
            && wanted.holder == Some(claim.incarnation)
            && let Some(epoch) = wanted.epoch
        {
            self.record.holding = Some(record::Holding { epoch, incarnation: claim.incarnation });
            self.renewing.at = Instant::now();
            self.renewing.go_due = true;
        }
    }

    fn link(&mut self) -> Result<&mut InitLink, StepError> {
        self.link.as_mut().ok_or(StepError::Init(InitError::Gone))
    }

    /// Waits for news: something else is wanted, or something happened inside.
    async fn wait(&mut self) -> Result<(), StepError> {
        let link = self.link.as_mut();
        let inbound = async {
            match link {
                Some(link) => link.next().await,
                None => std::future::pending().await,
            }
        };
        let inbound = tokio::select! {
            changed = self.wanted.changed() => {
                if changed.is_err() {
                    // The node has let go of this destination: what is left to do is tried again, not fast.
                    tokio::time::sleep(LONGEST_PAUSE).await;
                }
                return Ok(());
            }
            inbound = inbound => inbound,
        };
        self.note_end(&inbound);
        Ok(())
    }

    /// Remembers that the agent or the init ended.
    fn note_end(&mut self, inbound: &Inbound) {
        match inbound {
            Inbound::Exited(code) => {
                tracing::warn!(place = %self.key(), code, "the agent ended");
                self.sandbox = Sandbox::Dead;
            }
            Inbound::Gone => {
                tracing::warn!(place = %self.key(), "the sandbox ended");
                self.sandbox = Sandbox::Dead;
                self.link = None;
            }
            Inbound::Agent(_) | Inbound::LeaseRanOut => {}
        }
    }

    /// Says what failed and pauses, longer each time, unless something else is wanted meanwhile.
    async fn rest_after(&mut self, step: Step, error: &StepError) {
        self.failures = (self.failures + 1).min(7);
        let pause = Duration::from_millis(100 << self.failures).min(LONGEST_PAUSE);
        tracing::warn!(place = %self.key(), ?step, %error, ?pause, "a step failed");
        if let StepError::Init(_) = error {
            self.look_at_sandbox();
        }
        if self.failures == 3 {
            let _ = self.observe(ObservedState::Failed, Some(error.to_string())).await;
        }
        if let Ok(Err(_)) = tokio::time::timeout(pause, self.wanted.changed()).await {
            tokio::time::sleep(pause).await;
        }
    }

    /// Whether the init that does not answer still exists.
    fn look_at_sandbox(&mut self) {
        let alive = self.name().is_some_and(|name| self.shared.driver.adopt(&name).is_some());
        if !alive {
            self.sandbox = if self.record.sandbox.is_some() { Sandbox::Dead } else { Sandbox::None };
            self.link = None;
        }
    }

    async fn observe(&self, state: ObservedState, reason: Option<String>) -> Result<(), StepError> {
        let incarnation = self.record.sandbox.as_ref().map(|sandbox| sandbox.incarnation);
        self.observe_incarnation(state, reason, incarnation).await
    }

    async fn observe_incarnation(
        &self,
        state: ObservedState,
        reason: Option<String>,
        incarnation: Option<IncarnationId>,
    ) -> Result<(), StepError> {
        let alive = matches!(state, ObservedState::Running | ObservedState::Frozen | ObservedState::Prepared);
        let body = Observed {
            generation: self.record.generation,
            state,
            reason,
            last_alive_at: alive.then(now),
            incarnation,
        };
        self.shared.client.observed(self.record.transfer_id, &body).await?;
        Ok(())
    }

    fn key(&self) -> DestinationKey {
        DestinationKey { transfer_id: self.record.transfer_id, generation: self.record.generation }
    }

    fn name(&self) -> Option<Name> {
        self.record.sandbox.as_ref().and_then(|sandbox| sandbox.name.parse().ok())
    }

    async fn save(&self) -> Result<(), StepError> {
        let (record, dir) = (self.record.clone(), self.dir.clone());
        blocking(move || record.save(&dir)).await
    }
}

/// The host's time, for people: nothing is decided by it.
fn now() -> Timestamp {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_unix_ms(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

/// Runs something that blocks.
async fn blocking<T, E>(work: impl FnOnce() -> Result<T, E> + Send + 'static) -> Result<T, StepError>
where
    T: Send + 'static,
    E: Send + 'static,
    StepError: From<E>,
{
    let done = tokio::task::spawn_blocking(work).await;
    Ok(done.expect("blocking work does not panic")?)
}
