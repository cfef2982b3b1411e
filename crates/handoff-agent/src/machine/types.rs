//! What goes into the machine and what comes out.

use handoff_protocol::session_dir::{Boundary, Standing};

use crate::control::{FromAgent, ToAgent};
use crate::message::ToolCall;
use crate::retry::Failure;

/// Where the session was left.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Recovered {
    /// Whether the next thing to do, once no call is open, is a model call.
    pub model_next: bool,
    /// Calls without a result.
    pub open: Vec<ToolCall>,
    /// Whether one of them may have run: the boundary that lets them run was durable.
    pub may_have_run: bool,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The session is loaded.
    Started {
        /// Where it was left.
        recovered: Recovered,
        /// Whether nothing may be done before `go`.
        wait_for_go: bool,
        /// The epoch, where it is known.
        epoch: Option<u64>,
    },
    /// A runtime said something.
    Told(ToAgent),
    /// The model answered.
    ModelAnswered {
        /// Of the call.
        ticket: u64,
        /// The assistant message, on one line.
        message: String,
        /// The calls in it.
        calls: Vec<ToolCall>,
    },
    /// The model did not answer, or not to the end.
    ModelFailed {
        /// Of the call.
        ticket: u64,
        /// How.
        failure: Failure,
    },
    /// A tool ended.
    ToolFinished {
        /// Of the run.
        ticket: u64,
        /// What the model gets.
        result: String,
    },
    /// A wait is over.
    WaitOver {
        /// Of the wait.
        ticket: u64,
    },
    /// What was running when a quiesce was asked for has had its time.
    DeadlineOver {
        /// Of the running thing.
        ticket: u64,
    },
    /// The last runtime hung up, or there was none to hear what was told.
    Unattended,
    /// The process shall end.
    Stop,
}

/// What to do. Effects are carried out in order, each to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Append this message to the conversation, durably.
    Append(String),
    /// Replace the boundary, durably.
    WriteBoundary(Boundary),
    /// Replace the standing, durably.
    WriteStanding(Standing),
    /// Call the model with the conversation; report with this ticket.
    CallModel {
        /// Names the call.
        ticket: u64,
    },
    /// Break off the running model call.
    CancelModel,
    /// Run a tool; report with this ticket.
    RunTool {
        /// Names the run.
        ticket: u64,
        /// What to run.
        call: ToolCall,
    },
    /// Break off the running tool, and go on only when nothing of it runs any more.
    CancelTool,
    /// Report [`Event::WaitOver`] after a while.
    Wait {
        /// Names the wait.
        ticket: u64,
        /// How long.
        wait_ms: u64,
    },
    /// Report [`Event::DeadlineOver`] after a while.
    Deadline {
        /// Names the running thing.
        ticket: u64,
        /// How long.
        within_ms: u64,
    },
    /// From now on this is the epoch.
    Epoch(u64),
    /// Tell the runtimes.
    Tell(FromAgent),
    /// End the process.
    Stop(ExitReason),
}

/// Why a loop ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExitReason {
    /// The session runs elsewhere; it never starts here again.
    Retired,
    /// It was asked to end, and can be started again.
    Stopped,
    /// An observer cut it off, as a crash would.
    CutOff,
}
