//! One destination on this node: a task that looks at what is wanted, looks at what is there, and takes the
//! next step.

mod claim;
mod damaged;
mod hold;
mod prepare;
mod remove;
mod renew;
mod sandbox;
mod store;
mod successor;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use handoff_gateway::control::DestinationKey;
use handoff_protocol::node::{Destination, Observed, ObservedState};
use handoff_protocol::{AuthorizationId, Digest, IncarnationId, Timestamp};
use handoff_sandbox::Name;
use handoff_snapshot::CaptureIndex;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::sandbox::Lives;
use self::store::Storing;
use self::successor::Quiescing;
use crate::init_link::InitLink;
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
    /// Why the record could not be read; the one here is empty then, and nothing of it is settled yet.
    damaged: Option<String>,
    wanted: watch::Receiver<Destination>,
    sandbox: Sandbox,
    link: Option<InitLink>,
    /// How often in a row an init that runs did not answer.
    unanswered: u32,
    lives: Lives,
    /// When the sandbox was last seen alive, on CLOCK_BOOTTIME in milliseconds.
    alive_ms: Option<u64>,
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
    storing: Option<Storing>,
    quiescing: Option<Quiescing>,
    /// The call by which the agent asked for a final of itself, unanswered.
    asked_final: Option<String>,
    /// Since when, on CLOCK_BOOTTIME in milliseconds, the agent may be standing at a boundary for a successor.
    quiesced_ms: Option<u64>,
    failures: u32,
    /// The step that failed last and has not succeeded since.
    failed: Option<Step>,
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

impl Place {
    /// A destination as it was left, or a new one.
    pub(crate) fn open(
        shared: Arc<Shared>,
        wanted: watch::Receiver<Destination>,
    ) -> Result<Self, std::io::Error> {
        let first = wanted.borrow().clone();
        let (transfer, generation) = (first.transfer_id, first.generation);
        let dir = record::directory(&shared.options.home, transfer, generation);
        let (found, damaged) = match Record::load(&dir) {
            Err(error) if record::is_damage(&error) => (None, Some(error.to_string())),
            found => (found?, None),
        };
        let record = found.unwrap_or(Record::new(transfer, generation, first.session_id));
        let now = Instant::now();
        let checkpoint_at = now + shared.options.checkpoint_every;
        Ok(Self {
            shared,
            dir,
            damaged,
            wanted,
            sandbox: if record.sandbox.is_some() { Sandbox::Dead } else { Sandbox::None },
            link: None,
            unanswered: 0,
            lives: Lives::new(now),
            alive_ms: None,
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
            storing: None,
            quiescing: None,
            asked_final: None,
            quiesced_ms: None,
            failures: 0,
            failed: None,
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
        self.settle_damage().await;
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
                // What succeeds on the way to a step that fails again and again says nothing about that one.
                Ok(()) if self.failed.is_none_or(|failed| failed == step) => {
                    (self.failures, self.failed) = (0, None);
                }
                Ok(()) => {}
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

    /// Waits for news: something else is wanted, or something happened inside.
    async fn wait(&mut self) -> Result<(), StepError> {
        self.connect().await?;
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
        self.note_end(&inbound).await
    }

    /// Says what failed and pauses, longer each time, unless something else is wanted meanwhile.
    async fn rest_after(&mut self, step: Step, error: &StepError) {
        self.failures = (self.failures + 1).min(7);
        let pause = Duration::from_millis(100 << self.failures).min(LONGEST_PAUSE);
        tracing::warn!(place = %self.key(), ?step, %error, ?pause, "a step failed");
        self.failed = Some(step);
        if self.failures == 3 {
            let _ = self.observe(ObservedState::Failed, Some(error.to_string())).await;
        }
        if let Ok(Err(_)) = tokio::time::timeout(pause, self.wanted.changed()).await {
            tokio::time::sleep(pause).await;
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
