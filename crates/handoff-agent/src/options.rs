//! How an agent is started.

use std::fmt;
use std::path::PathBuf;

use tokio_util::sync::CancellationToken;

use crate::control::Control;
use crate::machine::Effect;
use crate::model::Endpoint;
use crate::tools::ToolLimits;

/// Where an agent runs, and with it who lets it run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// At a source: it runs at once if the session's standing allows it.
    Source {
        /// Where it writes itself down, if it does.
        register: Option<Register>,
    },
    /// At a destination: it loads, says `ready`, and does nothing until `go`.
    Destination,
}

/// Where a source writes itself down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Register {
    /// The state directory, `$HANDOFF_HOME`.
    pub home: PathBuf,
    /// The agent's name on this host.
    pub name: String,
}

/// How an agent is started.
#[derive(Debug)]
pub struct AgentOptions {
    /// The session directory; see `handoff_protocol::session_dir`.
    pub session_dir: PathBuf,
    /// The workspace that its tools stay in.
    pub workspace: PathBuf,
    /// The model that it talks to.
    pub endpoint: Endpoint,
    /// How its runtime reaches it.
    pub control: Control,
    /// Where it runs.
    pub place: Place,
    /// What a tool call may take.
    pub limits: ToolLimits,
    /// Ends it in order when cancelled: what is running is interrupted, and the boundary is durable.
    pub stop: CancellationToken,
    /// Sees every effect after it was carried out.
    pub observer: Option<Observer>,
}

impl AgentOptions {
    /// An agent with default limits, that nobody stops or observes.
    pub fn new(
        session_dir: impl Into<PathBuf>,
        workspace: impl Into<PathBuf>,
        endpoint: Endpoint,
        control: Control,
        place: Place,
    ) -> Self {
        Self {
            session_dir: session_dir.into(),
            workspace: workspace.into(),
            endpoint,
            control,
            place,
            limits: ToolLimits::default(),
            stop: CancellationToken::new(),
            observer: None,
        }
    }
}

/// Sees every effect after it was carried out, and says whether to go on: with `false` the loop is cut off on
/// the spot, as a crash would, and nothing is put in order.
pub struct Observer(Box<dyn FnMut(&Effect) -> bool + Send>);

impl Observer {
    /// An observer that asks this function.
    pub fn new(see: impl FnMut(&Effect) -> bool + Send + 'static) -> Self {
        Self(Box::new(see))
    }

    pub(crate) fn see(&mut self, effect: &Effect) -> bool {
        (self.0)(effect)
    }
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Observer")
    }
}
