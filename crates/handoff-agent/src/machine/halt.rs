//! How a loop stands still: quiesced, frozen, awaiting a snapshot's outcome, retired, stopped; and how it goes on.

use handoff_protocol::session_dir::Standing;
use handoff_protocol::{SessionId, TransferId};

use super::types::{Effect, ExitReason};
use super::{Doing, Gate, Machine, Out, refuse, snapshot_requested};
use crate::control::{Freeze, FromAgent, Holder};
use crate::message::INTERRUPTED;
use crate::self_snapshot;

impl Machine {
    pub(super) fn quiesce(&mut self, within_ms: u64, freeze: Option<Freeze>, out: &mut Out) {
        if let Some(before) = self.frozen_for()
            && freeze.is_some_and(|freeze| freeze.transfer_id != before.transfer_id)
        {
            refuse(
                "quiesce",
                "frozen for another transfer: that one must end, and the source return, first",
                out,
            );
            return;
        }
        if self.gate != Gate::Open {
            // Nothing is going on, and nothing may: the answer is true already.
            return self.hold(freeze, out);
        }
        self.quiesce = Some(freeze.or(self.quiesce.flatten()));
        match self.doing {
            Doing::Model | Doing::Tool if within_ms > 0 => {
                self.deadline += 1;
                out.push(Effect::Deadline { ticket: self.deadline, within_ms });
            }
            Doing::Model | Doing::Tool => self.interrupt(out),
            Doing::Waiting(_) | Doing::Nothing => {
                self.cancel(out);
                self.advance(out);
            }
            Doing::Snapshot => self.hold_at_boundary(out),
        }
    }

    /// The transfer that it stands still for, or is about to.
    fn frozen_for(&self) -> Option<Freeze> {
        match self.gate {
            Gate::Held(before) => before,
            Gate::Shut | Gate::Open | Gate::Ended => self.quiesce.flatten(),
        }
    }

    pub(super) fn deadline_over(&mut self, out: &mut Out) {
        if self.quiesce.is_some() {
            self.interrupt(out);
        }
    }

    /// Breaks off what is running, closes what is open, and stops at the boundary that this makes.
    fn interrupt(&mut self, out: &mut Out) {
        self.cancel(out);
        self.close_all(out);
        self.advance(out);
    }

    fn close_all(&mut self, out: &mut Out) {
        while !self.open.is_empty() {
            self.close_first(INTERRUPTED, out);
        }
    }

    /// Ends whatever is going on outside, without a trace of it.
    pub(super) fn cancel(&mut self, out: &mut Out) {
        match std::mem::replace(&mut self.doing, Doing::Nothing) {
            Doing::Model => out.push(Effect::CancelModel),
            Doing::Tool => out.push(Effect::CancelTool),
            Doing::Waiting(_) | Doing::Snapshot | Doing::Nothing => {}
        }
        self.ticket += 1;
    }

    pub(super) fn hold_at_boundary(&mut self, out: &mut Out) {
        let Some(freeze) = self.quiesce.take() else { return };
        self.write_boundary(out);
        self.gate = Gate::Held(None);
        self.hold(freeze, out);
    }

    fn hold(&mut self, freeze: Option<Freeze>, out: &mut Out) {
        let before = match self.gate {
            Gate::Held(before) => before,
            Gate::Shut | Gate::Open | Gate::Ended => None,
        };
        if let Some(Freeze { session_id, transfer_id, epoch }) = freeze.filter(|_| freeze != before) {
            let standing = Standing::Frozen { session_id, transfer_id, epoch };
            out.push(Effect::WriteStanding(standing));
        }
        let frozen = freeze.or(before);
        // A loop that never got its `go` stays shut; what it stands at is its snapshot.
        if matches!(self.gate, Gate::Held(_)) {
            self.gate = Gate::Held(frozen);
        }
        let boundary = self.durable.clone();
        out.push(Effect::Tell(FromAgent::Quiesced { boundary, frozen: frozen.is_some() }));
    }

    pub(super) fn resume(&mut self, holder: Option<Holder>, out: &mut Out) {
        if matches!(self.gate, Gate::Held(Some(_))) && holder.is_none() {
            refuse("resume", "frozen for a transfer: only a resume that names the holder goes on", out);
            return;
        }
        if holder.is_some_and(|holder| self.is_stale(holder)) {
            refuse("resume", "the holder that it names is of another session or an older epoch", out);
            return;
        }
        if let Some(Holder { session_id, epoch }) = holder {
            self.epoch = Some(epoch);
            out.push(Effect::Epoch(epoch));
            out.push(Effect::WriteStanding(Standing::Holder { session_id, epoch }));
        }
        self.quiesce = None;
        self.stuck = None;
        if matches!(self.gate, Gate::Held(_)) {
            self.gate = Gate::Open;
        }
        if let Some(outcome) = self.withheld.take() {
            self.close_first(&outcome, out);
        } else if self.awaits_snapshot()
            && let Some(call) = self.open.front()
        {
            // Whoever stopped it may not have heard the question: it was told while the stop was under way.
            out.push(snapshot_requested(call, true));
        }
        self.advance(out);
    }

    /// Whether this is no answer to the stop that it would undo: a grant that was under way for long must not wake
    /// what was frozen since.
    fn is_stale(&self, holder: Holder) -> bool {
        let other = match self.gate {
            Gate::Held(Some(frozen)) => frozen.session_id != holder.session_id || holder.epoch < frozen.epoch,
            Gate::Held(None) | Gate::Shut | Gate::Open | Gate::Ended => false,
        };
        other || self.epoch.is_some_and(|epoch| holder.epoch < epoch)
    }

    /// The session runs elsewhere: nothing here matters any more but that it never starts again.
    pub(super) fn retire(&mut self, session_id: SessionId, transfer_id: TransferId, out: &mut Out) {
        self.cancel(out);
        self.gate = Gate::Ended;
        out.push(Effect::WriteStanding(Standing::Retired { session_id, transfer_id }));
        out.push(Effect::Tell(FromAgent::Retired));
        out.push(Effect::Stop(ExitReason::Retired));
    }

    pub(super) fn stop(&mut self, out: &mut Out) {
        let running = self.gate == Gate::Open;
        let in_tool = self.doing == Doing::Tool;
        self.cancel(out);
        if running {
            if in_tool {
                self.close_all(out);
            }
            self.write_boundary(out);
        }
        self.gate = Gate::Ended;
        out.push(Effect::Stop(ExitReason::Stopped));
    }

    pub(super) fn snapshot_done(&mut self, call_id: &str, outcome: String, out: &mut Out) {
        let awaited =
            self.doing == Doing::Snapshot && self.open.front().is_some_and(|call| call.id_text() == call_id);
        match self.gate {
            _ if !awaited => refuse("snapshot_done", "no snapshot of this call is awaited", out),
            // A held conversation is somebody's snapshot: it changes only once the loop goes on.
            Gate::Held(_) => self.withheld = Some(outcome),
            Gate::Open | Gate::Shut | Gate::Ended => {
                self.close_first(&outcome, out);
                self.advance(out);
            }
        }
    }

    /// Whether the loop waits for a runtime's word about a snapshot.
    pub fn awaits_snapshot(&self) -> bool {
        self.gate == Gate::Open && self.doing == Doing::Snapshot
    }

    pub(super) fn unattended(&mut self, out: &mut Out) {
        if self.awaits_snapshot() {
            self.close_first(self_snapshot::NOBODY, out);
            self.advance(out);
        }
    }
}
