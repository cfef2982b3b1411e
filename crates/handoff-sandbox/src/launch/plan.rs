//! What is handed from one stage of a start to the next, and what comes back to the one who started it.
//!
//! node → (standard input) → launcher, outside → (memory file) → init, inside → (pipe) → node.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::PathBuf;

use handoff_protocol::IncarnationId;
use serde::{Deserialize, Serialize};

use crate::cgroup::{FreezerPlace, Room};
use crate::isolation::{Facet, Isolation};
use crate::name::Name;

/// What the launcher is told.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct LaunchPlan {
    pub(crate) name: Name,
    pub(crate) dir: PathBuf,
    pub(crate) exe: PathBuf,
    pub(crate) log: Option<PathBuf>,
    pub(crate) tmp_bytes: u64,
    pub(crate) rooms: Vec<Room>,
    pub(crate) init_cgroup: Option<PathBuf>,
    pub(crate) freezer: Option<FreezerPlace>,
    /// The facts about the cgroups, and what an attempt before this one lost.
    pub(crate) facts: Isolation,
    /// Make no namespaces: an attempt before this one could not.
    pub(crate) bare: bool,
    pub(crate) payload: Payload,
}

/// What does not change on the way from the node to the init. It cannot print: the environment holds the
/// agent's token.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Payload {
    pub(crate) incarnation: IncarnationId,
    pub(crate) command: Vec<String>,
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) pids: u32,
    pub(crate) log_bytes: u64,
    pub(crate) allow_degraded: bool,
    /// Set where the payload runs without namespaces.
    pub(crate) bare: Option<Bare>,
    /// The init lives only as long as somebody hears its report.
    pub(crate) ends_with_maker: bool,
}

/// What an init without namespaces has to know of the host.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Bare {
    pub(crate) dir: PathBuf,
    pub(crate) exe: PathBuf,
    pub(crate) name: Name,
}

/// The number under which the init finds its [`InitPlan`].
pub(crate) const PLAN_FD: i32 = 3;

/// What the init is told. Numbers are open descriptors that it owns from then on.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct InitPlan {
    pub(crate) listener: i32,
    pub(crate) report: i32,
    pub(crate) log: Option<i32>,
    /// `cgroup.procs` of each cgroup that the payload enters.
    pub(crate) rooms: Vec<i32>,
    pub(crate) freezer: Option<FreezerFds>,
    /// What to note in what the payload leaves behind, where nothing else shows it.
    pub(crate) record: Option<i32>,
    /// The namespaces of the host, by kind, to compare with.
    pub(crate) host_namespaces: BTreeMap<String, u64>,
    pub(crate) facts: Isolation,
    pub(crate) payload: Payload,
}

/// The freezer's files, opened where they could still be seen.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FreezerFds {
    V2 { freeze: i32, events: i32 },
    V1 { state: i32 },
}

/// What the node hears.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Report {
    /// The init exists.
    Init { pid: i32, start_ticks: u64 },
    /// The agent has been executed.
    Started { facts: Isolation },
    /// Something is lost, and that was not allowed.
    Refused { facts: Isolation },
    /// A step failed.
    Failed { stage: String, why: String, loses: Vec<Facet> },
}

impl Report {
    /// Says it, in one line and one write: both ends of a start may hold the pipe.
    pub(crate) fn send(&self, mut to: impl Write) -> io::Result<()> {
        let mut line = serde_json::to_vec(self)?;
        line.push(b'\n');
        to.write_all(&line)
    }
}

/// A step that failed, and what is lost if the start goes on without it. Nothing lost means that it cannot.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) stage: String,
    pub(crate) why: String,
    pub(crate) loses: Vec<Facet>,
}

impl Failure {
    pub(crate) fn report(self) -> Report {
        Report::Failed { stage: self.stage, why: self.why, loses: self.loses }
    }
}

/// Names the step that an error came from.
pub(crate) trait Stage<T> {
    /// A step that no start can do without.
    fn stage(self, stage: impl Into<String>) -> Result<T, Failure>;
    /// A step without which these facets are lost.
    fn losing(self, stage: impl Into<String>, loses: &[Facet]) -> Result<T, Failure>;
}

impl<T, E: std::fmt::Display> Stage<T> for Result<T, E> {
    fn stage(self, stage: impl Into<String>) -> Result<T, Failure> {
        self.losing(stage, &[])
    }

    fn losing(self, stage: impl Into<String>, loses: &[Facet]) -> Result<T, Failure> {
        self.map_err(|error| Failure { stage: stage.into(), why: error.to_string(), loses: loses.to_vec() })
    }
}
