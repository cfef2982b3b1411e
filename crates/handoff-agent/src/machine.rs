//! The loop as a pure machine: what happened goes in, what to do comes out as data. It has no clock, no files
//! and no connections; the driver does what it is told, in order, and reports back.
//!
//! Three orders carry the promises. A tool runs only after a boundary that names it as open is durable, so a
//! restart knows whether it may have run. A model is called only at a durable boundary. `Quiesced` is told only
//! after everything that it speaks of is durable, `Frozen` included.

use std::collections::VecDeque;

use handoff_protocol::document::TurnState;
use handoff_protocol::session_dir::Boundary;

use crate::control::{Activity, Freeze, FromAgent, Status, ToAgent};
use crate::message::{INTERRUPTED, ToolCall, tool_result, user};
use crate::retry::{Failure, Retry};
use crate::self_snapshot::{self, Request};

mod halt;
mod types;

pub use types::{Effect, Event, ExitReason, Recovered};

#[cfg(test)]
mod tests;

/// What is going on outside. At most one thing at a time.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Doing {
    Nothing,
    Model,
    Tool,
    /// Waiting before the next model call.
    Waiting(Retry),
    /// The reply to a final self-snapshot is withheld.
    Snapshot,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Gate {
    /// Until `go`.
    Shut,
    Open,
    /// Quiesced, and perhaps frozen for a transfer.
    Held(Option<Freeze>),
    /// Stopped or retired.
    Ended,
}

/// The state of a loop.
#[derive(Debug, Clone)]
pub struct Machine {
    gate: Gate,
    doing: Doing,
    epoch: Option<u64>,
    /// Calls without a result, in order. The first may be running.
    open: VecDeque<ToolCall>,
    model_next: bool,
    /// What is appended so far, and what of it is durable as a boundary.
    now: Boundary,
    durable: Boundary,
    /// A quiesce that is asked for and not answered.
    quiesce: Option<Option<Freeze>>,
    /// Names the last quiesce's deadline.
    deadline: u64,
    heard: VecDeque<String>,
    stuck: Option<String>,
    /// Names the running thing: what an earlier one reports is too late.
    ticket: u64,
    retry: Retry,
    told_step: u64,
    told_idle: bool,
    /// What became of a withheld snapshot while the loop was quiesced.
    withheld: Option<String>,
    /// What a destination does about calls that were open in its snapshot, at `go`.
    recovered: Option<Recovered>,
}

type Out = Vec<Effect>;

impl Machine {
    /// A loop whose durable boundary is `durable`, and whose conversation has the steps, messages and bytes of
    /// `now`: more, where it was left between an append and its boundary. Nothing happens before
    /// [`Event::Started`].
    pub fn at(durable: Boundary, now: Boundary) -> Self {
        Self {
            gate: Gate::Shut,
            doing: Doing::Nothing,
            epoch: None,
            open: VecDeque::new(),
            model_next: false,
            told_step: durable.step,
            now,
            durable,
            quiesce: None,
            deadline: 0,
            heard: VecDeque::new(),
            stuck: None,
            ticket: 0,
            retry: Retry::default(),
            told_idle: false,
            withheld: None,
            recovered: None,
        }
    }

    /// What to do about an event, in this order.
    pub fn handle(&mut self, event: Event) -> Vec<Effect> {
        let mut out = Out::new();
        if self.gate == Gate::Ended {
            return out;
        }
        match event {
            Event::Started { recovered, wait_for_go, epoch } => {
                self.started(recovered, wait_for_go, epoch, &mut out);
            }
            Event::Told(line) => self.told(line, &mut out),
            Event::ModelAnswered { ticket, message, calls } if self.is(ticket, &Doing::Model) => {
                self.answered(&message, calls, &mut out);
            }
            Event::ModelFailed { ticket, failure } if self.is(ticket, &Doing::Model) => {
                self.failed(failure, &mut out);
            }
            Event::ToolFinished { ticket, result } if self.is(ticket, &Doing::Tool) => {
                self.close_first(&result, &mut out);
                self.advance(&mut out);
            }
            Event::WaitOver { ticket } if self.ticket == ticket => self.wait_over(&mut out),
            Event::DeadlineOver { ticket } if self.deadline == ticket => self.deadline_over(&mut out),
            Event::Unattended => self.unattended(&mut out),
            Event::Stop => self.stop(&mut out),
            Event::ModelAnswered { .. }
            | Event::ModelFailed { .. }
            | Event::ToolFinished { .. }
            | Event::WaitOver { .. }
            | Event::DeadlineOver { .. } => {}
        }
        out
    }

    /// How it is.
    pub fn status(&self) -> Status {
        let (activity, reason) = self.activity();
        Status { activity, step: self.now.step, epoch: self.epoch, boundary: self.durable.clone(), reason }
    }

    fn activity(&self) -> (Activity, Option<String>) {
        let plain = match (self.gate, &self.doing) {
            (Gate::Held(Some(_)), _) => Activity::Frozen,
            (Gate::Held(None) | Gate::Ended, _) => Activity::Quiesced,
            (Gate::Shut, _) => Activity::WaitingForGo,
            (Gate::Open, Doing::Model) => Activity::CallingModel,
            (Gate::Open, Doing::Tool) => Activity::RunningTool,
            (Gate::Open, Doing::Snapshot) => Activity::AwaitingSnapshot,
            (Gate::Open, Doing::Waiting(retry)) => return retry.activity(),
            (Gate::Open, Doing::Nothing) if self.stuck.is_some() => {
                return (Activity::Stuck, self.stuck.clone());
            }
            (Gate::Open, Doing::Nothing) => Activity::Idle,
        };
        (plain, None)
    }

    fn is(&self, ticket: u64, doing: &Doing) -> bool {
        self.ticket == ticket && self.doing == *doing
    }

    fn started(&mut self, recovered: Recovered, wait_for_go: bool, epoch: Option<u64>, out: &mut Out) {
        self.epoch = epoch;
        self.model_next = recovered.model_next;
        self.open = recovered.open.iter().cloned().collect();
        self.recovered = Some(recovered);
        if wait_for_go {
            out.push(Effect::Tell(FromAgent::Ready { boundary: self.durable.clone() }));
        } else {
            self.gate = Gate::Open;
            self.close_recovered(false, out);
            self.advance(out);
        }
    }

    /// Closes the calls that were open when the session was left, unless it is sure that none of them ran.
    fn close_recovered(&mut self, moved: bool, out: &mut Out) {
        let Some(recovered) = self.recovered.take() else { return };
        if recovered.may_have_run {
            while let Some(call) = self.open.front() {
                // With fork(), the copy gets the answer that says which one it is.
                let is_copy = moved && self_snapshot::is_final(call);
                self.close_first(if is_copy { self_snapshot::IN_THE_COPY } else { INTERRUPTED }, out);
            }
        }
    }

    fn told(&mut self, line: ToAgent, out: &mut Out) {
        match line {
            ToAgent::Go { epoch } => self.go(epoch, out),
            ToAgent::Quiesce { within_ms, freeze } => self.quiesce(within_ms, freeze, out),
            ToAgent::Resume { holder } => self.resume(holder, out),
            ToAgent::Retire { session_id, transfer_id } => self.retire(session_id, transfer_id, out),
            ToAgent::Status => out.push(Effect::Tell(FromAgent::Status(self.status()))),
            ToAgent::Say { text } => self.said(text, out),
            ToAgent::SnapshotDone { call_id, outcome } => self.snapshot_done(&call_id, outcome, out),
        }
    }

    fn go(&mut self, epoch: u64, out: &mut Out) {
        self.epoch = Some(epoch);
        out.push(Effect::Epoch(epoch));
        if self.gate == Gate::Shut {
            self.gate = Gate::Open;
            self.close_recovered(true, out);
            self.advance(out);
        }
    }

    fn said(&mut self, text: String, out: &mut Out) {
        match self.gate {
            Gate::Shut => refuse("say", "the session has not begun here", out),
            Gate::Held(_) | Gate::Ended => {
                refuse("say", "the session is stopped at a boundary; say it again when it goes on", out);
            }
            Gate::Open => {
                self.heard.push_back(text);
                self.stuck = None;
                if self.doing == Doing::Nothing {
                    self.advance(out);
                }
            }
        }
    }

    fn answered(&mut self, message: &str, calls: Vec<ToolCall>, out: &mut Out) {
        self.doing = Doing::Nothing;
        self.retry = Retry::default();
        self.now.step += 1;
        self.model_next = !calls.is_empty();
        self.open = calls.into();
        self.append(message.to_owned(), out);
        self.advance(out);
    }

    fn failed(&mut self, failure: Failure, out: &mut Out) {
        self.doing = Doing::Nothing;
        match self.retry.after(failure) {
            Ok(_) if self.quiesce.is_some() => self.advance(out),
            Ok((retry, wait_ms)) => {
                self.retry = retry.clone();
                self.doing = Doing::Waiting(retry);
                self.ticket += 1;
                out.push(Effect::Wait { ticket: self.ticket, wait_ms });
                out.push(Effect::Tell(FromAgent::Status(self.status())));
            }
            Err(reason) => {
                self.stuck = Some(reason.clone());
                out.push(Effect::Tell(FromAgent::Failed { reason }));
                self.advance(out);
            }
        }
    }

    fn wait_over(&mut self, out: &mut Out) {
        if matches!(self.doing, Doing::Waiting(_)) {
            self.doing = Doing::Nothing;
            self.advance(out);
        }
    }

    /// Goes on from where nothing is going on: the next tool, or the boundary and what comes after it.
    fn advance(&mut self, out: &mut Out) {
        while self.gate == Gate::Open && self.doing == Doing::Nothing {
            match self.open.front().cloned() {
                Some(call) => self.begin_call(call, out),
                None => return self.at_boundary(out),
            }
        }
    }

    fn begin_call(&mut self, call: ToolCall, out: &mut Out) {
        match self_snapshot::request(&call) {
            None => {
                self.write_boundary(out);
                self.begin(Doing::Tool);
                out.push(Effect::RunTool { ticket: self.ticket, call });
            }
            Some(Request::Malformed(why)) => self.close_first(&why, out),
            Some(Request::Draft) => {
                // The reply is recorded first, so that the snapshot that is asked for can hold it.
                self.close_first(self_snapshot::DRAFT, out);
                self.write_boundary(out);
                out.push(snapshot_requested(&call, false));
            }
            Some(Request::Final) => {
                self.write_boundary(out);
                self.begin(Doing::Snapshot);
                out.push(snapshot_requested(&call, true));
                if self.quiesce.is_some() {
                    self.hold_at_boundary(out);
                }
            }
        }
    }

    fn at_boundary(&mut self, out: &mut Out) {
        while let Some(text) = self.heard.pop_front() {
            self.model_next = true;
            self.append(user(&text), out);
            if self.heard.is_empty() {
                self.write_boundary(out);
                out.push(Effect::Tell(FromAgent::Heard { messages: self.now.messages }));
            }
        }
        self.write_boundary(out);
        if self.told_step < self.now.step {
            self.told_step = self.now.step;
            out.push(Effect::Tell(FromAgent::Step { step: self.now.step }));
        }
        if self.quiesce.is_some() {
            return self.hold_at_boundary(out);
        }
        if self.model_next && self.stuck.is_none() {
            self.told_idle = false;
            self.begin(Doing::Model);
            out.push(Effect::CallModel { ticket: self.ticket });
        } else if !self.told_idle && self.stuck.is_none() {
            self.told_idle = true;
            out.push(Effect::Tell(FromAgent::Idle { step: self.now.step }));
        }
    }

    fn begin(&mut self, doing: Doing) {
        self.ticket += 1;
        self.doing = doing;
    }

    fn close_first(&mut self, result: &str, out: &mut Out) {
        self.doing = Doing::Nothing;
        if let Some(call) = self.open.pop_front() {
            self.model_next = true;
            self.append(tool_result(&call, result), out);
        }
    }

    fn append(&mut self, message: String, out: &mut Out) {
        self.now.messages += 1;
        self.now.messages_bytes += message.len() as u64 + 1;
        out.push(Effect::Append(message));
    }

    fn write_boundary(&mut self, out: &mut Out) {
        self.now.turn = if !self.open.is_empty() {
            TurnState::ToolsOpen { calls: self.open.iter().map(ToolCall::id_text).collect() }
        } else if self.model_next {
            TurnState::ModelNext
        } else {
            TurnState::Idle
        };
        if self.durable != self.now {
            self.durable = self.now.clone();
            out.push(Effect::WriteBoundary(self.now.clone()));
        }
    }
}

fn snapshot_requested(call: &ToolCall, is_final: bool) -> Effect {
    Effect::Tell(FromAgent::SnapshotRequested { call_id: call.id_text(), is_final })
}

fn refuse(request: &str, reason: &str, out: &mut Out) {
    out.push(Effect::Tell(FromAgent::Refused { request: request.to_owned(), reason: reason.to_owned() }));
}
