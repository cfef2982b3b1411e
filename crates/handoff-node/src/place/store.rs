//! Storing the session: checkpoints while it runs or stands still, and the final for a successor.
//!
//! Capturing and sending take as long as the session is large and the control plane is slow, so both are tasks
//! beside the holder, which goes on renewing. What is about to be sent is on disk before it leaves: after a lost
//! answer the same is sent again, and is either known by then or accepted now. Otherwise the next checkpoint would
//! name a predecessor that is not the last accepted one any more, and so would every one after it.

use handoff_agent::control::ToAgent;
use handoff_protocol::node::{Checkpoint, Renew};
use handoff_protocol::request::Refresh;
use handoff_protocol::{Digest, ErrorCode, TransferId};
use handoff_sandbox::{WORKSPACE_INSIDE, boot_ms};
use handoff_snapshot::{CaptureSource, Moment};
use tokio::time::{Duration, Instant, sleep_until};
use tokio_util::task::AbortOnDropHandle;

use super::{Place, StepError};
use crate::record::{Given, Holding};

/// What is being stored, and for what.
pub(super) struct Storing {
    purpose: Purpose,
    phase: Phase,
    task: AbortOnDropHandle<Result<Option<Digest>, StepError>>,
}

/// What a snapshot is stored for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// A checkpoint.
    Checkpoint,
    /// The final of a successor.
    Final(TransferId),
}

/// How far it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// An earlier checkpoint is sent again, because its answer was lost.
    Settling(Digest),
    Capturing,
    Sending(Digest),
}

impl Storing {
    /// What came of the present phase. Cancelling loses nothing.
    pub(super) async fn done(&mut self) -> Result<Option<Digest>, StepError> {
        (&mut self.task).await.expect("storing does not panic, and its end is waited for by its owner alone")
    }

    /// Whether it is a checkpoint.
    pub(super) fn is_checkpoint(&self) -> bool {
        self.purpose == Purpose::Checkpoint
    }

    /// Whether a final for this successor is on its way.
    pub(super) fn is_final_for(&self, successor: TransferId) -> bool {
        self.purpose == Purpose::Final(successor)
    }

    /// Whether a final may have left, so that its outcome has to be waited for.
    pub(super) fn final_is_sent(&self) -> bool {
        matches!((self.purpose, self.phase), (Purpose::Final(_), Phase::Sending(_)))
    }
}

impl Place {
    /// Begins to store what stands in this destination's directory. What was being stored before is dropped.
    pub(super) fn begin(&mut self, purpose: Purpose) {
        let Some(holding) = self.record.holding else { return };
        let given = self.record.given.as_ref();
        let phase = match purpose {
            Purpose::Checkpoint => self.record.offered.map_or(Phase::Capturing, Phase::Settling),
            Purpose::Final(successor) => given
                .filter(|given| given.successor == successor)
                .map_or(Phase::Capturing, |given| Phase::Sending(given.digest)),
        };
        self.enter(purpose, phase, holding);
    }

    fn enter(&mut self, purpose: Purpose, phase: Phase, holding: Holding) {
        let task = match (phase, purpose) {
            (Phase::Capturing, Purpose::Checkpoint) => self.capture(Moment::Draft, holding),
            (Phase::Capturing, Purpose::Final(_)) => self.capture(Moment::Final, holding),
            (Phase::Settling(digest) | Phase::Sending(digest), Purpose::Checkpoint) => {
                self.send_checkpoint(digest, holding)
            }
            (Phase::Settling(digest) | Phase::Sending(digest), Purpose::Final(successor)) => {
                self.send_final(successor, digest, holding)
            }
        };
        self.storing = Some(Storing { purpose, phase, task });
    }

    fn capture(
        &self,
        moment: Moment,
        holding: Holding,
    ) -> AbortOnDropHandle<Result<Option<Digest>, StepError>> {
        let state = self.dir.join("state");
        let workspace = self.dir.join("workspace");
        let shared = self.shared.clone();
        let mut source = CaptureSource::new(state, Some(workspace), moment, shared.options.name.clone());
        source.session_id = Some(self.record.session_id);
        source.epoch = Some(holding.epoch);
        source.parent = self.record.restored;
        source.workspace_shown = Some(WORKSPACE_INSIDE.to_owned());
        source.index = self.index.clone();
        let previous = self.last_accepted();
        AbortOnDropHandle::new(tokio::spawn(async move {
            let captured = handoff_snapshot::capture(source, &shared.control_plane_blobs, previous).await?;
            Ok(Some(captured.digest))
        }))
    }

    fn send_checkpoint(
        &self,
        digest: Digest,
        holding: Holding,
    ) -> AbortOnDropHandle<Result<Option<Digest>, StepError>> {
        let body = Checkpoint {
            epoch: holding.epoch,
            incarnation: holding.incarnation,
            digest,
            follows: self.last_accepted(),
        };
        let (client, transfer) = (self.shared.client.clone(), self.record.transfer_id);
        AbortOnDropHandle::new(tokio::spawn(async move {
            client.checkpoint(transfer, &body).await?;
            Ok(None)
        }))
    }

    fn send_final(
        &self,
        successor: TransferId,
        digest: Digest,
        holding: Holding,
    ) -> AbortOnDropHandle<Result<Option<Digest>, StepError>> {
        let refresh = Refresh {
            request_id: self.record.given.as_ref().map(|given| given.request_id.clone()),
            expected_epoch: Some(holding.epoch),
            snapshot: Some(digest),
            input: None,
            is_final: true,
            incarnation: Some(holding.incarnation),
        };
        let client = self.shared.client.clone();
        AbortOnDropHandle::new(tokio::spawn(async move {
            client.refresh(successor, refresh).await?;
            Ok(None)
        }))
    }

    /// The last accepted snapshot, as far as this node knows.
    fn last_accepted(&self) -> Option<Digest> {
        self.record.checkpoint.or(self.record.restored)
    }

    /// A phase is over: the next one begins, or it is done.
    ///
    /// # Errors
    /// It came to nothing.
    pub(super) async fn stored(&mut self, done: Result<Option<Digest>, StepError>) -> Result<(), StepError> {
        let Some(Storing { purpose, phase, .. }) = self.storing.take() else { return Ok(()) };
        let Some(holding) = self.record.holding else { return Ok(()) };
        match (purpose, phase, done) {
            (Purpose::Checkpoint, Phase::Capturing, Ok(Some(digest))) => {
                self.record.offered = Some(digest);
                self.save().await?;
                self.enter(purpose, Phase::Sending(digest), holding);
                Ok(())
            }
            (Purpose::Checkpoint, Phase::Settling(digest), Ok(_)) => {
                self.note_accepted(digest).await?;
                self.enter(purpose, Phase::Capturing, holding);
                Ok(())
            }
            (Purpose::Checkpoint, Phase::Sending(digest), Ok(_)) => {
                self.note_accepted(digest).await?;
                self.checkpointed = self.frozen;
                self.answer_snapshot("stored as a checkpoint").await
            }
            (Purpose::Final(successor), Phase::Capturing, Ok(Some(digest))) => {
                self.record.given = Some(self.giving(successor, digest, holding));
                self.save().await?;
                self.enter(purpose, Phase::Sending(digest), holding);
                Ok(())
            }
            (Purpose::Final(_), Phase::Settling(digest) | Phase::Sending(digest), Ok(_)) => {
                self.quiesced_ms = Some(boot_ms());
                if let Some(given) = &mut self.record.given {
                    given.accepted = true;
                }
                self.note_accepted(digest).await
            }
            (_, Phase::Capturing, Ok(None)) => Ok(()),
            (Purpose::Checkpoint, _, Err(error)) => {
                let answered = self.answer_snapshot("no checkpoint could be stored").await;
                self.checkpoint_failed(&error).await?;
                answered.and(Err(error))
            }
            (Purpose::Final(_), Phase::Capturing, Err(error)) => {
                self.quiesced_ms = Some(boot_ms());
                Err(error)
            }
            (Purpose::Final(_), Phase::Settling(_) | Phase::Sending(_), Err(error)) => {
                self.quiesced_ms = Some(boot_ms());
                // Refused it never counts, so nothing keeps the agent but the next renewal. Else it may count yet.
                if error.code().is_some_and(|code| !code.retryable()) {
                    self.record.given = None;
                    self.save().await?;
                }
                Err(error)
            }
        }
    }

    async fn note_accepted(&mut self, digest: Digest) -> Result<(), StepError> {
        self.record.checkpoint = Some(digest);
        self.record.offered = None;
        self.save().await
    }

    /// Whether it counts stays open when nothing answered; else it never will.
    async fn checkpoint_failed(&mut self, error: &StepError) -> Result<(), StepError> {
        if error.may_pass() {
            return Ok(());
        }
        self.record.offered = None;
        if error.code() == Some(ErrorCode::StaleSnapshot) {
            // Only the holder's snapshots are accepted, so what is listed is an earlier one of its own. The next
            // capture is later than that.
            self.record.checkpoint = Some(self.wanted.borrow().snapshot);
        }
        self.save().await
    }

    /// A stop is a new request; its repetitions are the same one.
    fn giving(&self, successor: TransferId, digest: Digest, holding: Holding) -> Given {
        let stopped_ms = self.quiesced_ms.unwrap_or_default();
        let request_id = format!("final.{successor}.{}.{stopped_ms}", holding.epoch);
        let request_id = request_id.parse().expect("letters, digits, points and underscores");
        Given { successor, digest, request_id, accepted: false }
    }

    /// Stores a checkpoint and waits for it. The lease is renewed meanwhile, whatever the answers say.
    pub(super) async fn store_now(&mut self) -> Result<(), StepError> {
        self.begin(Purpose::Checkpoint);
        while self.storing.is_some() {
            let done = self.done_while_renewing().await;
            self.stored(done).await?;
        }
        Ok(())
    }

    async fn done_while_renewing(&mut self) -> Result<Option<Digest>, StepError> {
        loop {
            let storing = self.storing.as_mut().expect("looked at before");
            tokio::select! {
                biased;
                done = storing.done() => return done,
                () = sleep_until(self.renewing.at) => {}
            }
            let Some(holding) = self.record.holding else { continue };
            self.renewing.at = Instant::now() + Duration::from_millis(self.shared.lease.renew_ms);
            let (epoch, incarnation) = (holding.epoch, holding.incarnation);
            let body = Renew { epoch, generation: self.record.generation, incarnation };
            let client = self.shared.client.clone().with_deadline(self.shared.lease.patience());
            let _ = client.renew(self.record.transfer_id, &body).await;
        }
    }

    /// The agent asked for a final of itself. Where no successor waits, none will answer later: the call is
    /// answered with the checkpoint, and the session goes on here. Else its answer is withheld until that successor
    /// has come to nothing.
    async fn answer_snapshot(&mut self, what: &str) -> Result<(), StepError> {
        if self.quiescing.is_some() || self.record.given.is_some() {
            return Ok(());
        }
        let Some(call_id) = self.asked_final.take() else { return Ok(()) };
        let outcome = format!("{what}; no move is pending, so the session goes on here");
        self.tell_agent(&ToAgent::SnapshotDone { call_id, outcome }).await
    }
}
