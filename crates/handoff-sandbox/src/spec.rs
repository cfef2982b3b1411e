//! What a start is asked for, and what it hands back.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use handoff_protocol::{ErrorCode, IncarnationId, Tier};

use crate::isolation::Isolation;
use crate::name::Name;
use crate::proc::Process;

/// Where the host's binary is found inside.
pub const EXE_INSIDE: &str = "/handoff/bin/handoff";
/// Where the workspace is inside, readable and writable.
pub const WORKSPACE_INSIDE: &str = "/workspace";
/// Where the session directory is inside, readable and writable.
pub const STATE_INSIDE: &str = "/handoff/state";
/// Where the directory with the gateway's socket is inside, read-only.
pub const DOOR_INSIDE: &str = "/handoff/door";

/// One start of a destination.
#[derive(Clone)]
pub struct Spec {
    /// New for every start; everything of the sandbox is found again by it.
    pub name: Name,
    /// The destination's directory on the host, with `workspace/`, `state/` and `door/` in it. `init.sock` is
    /// made there. The start closes it to other users of the host.
    pub dir: PathBuf,
    /// The binary on the host: it launches, is the init, and is bound in as [`EXE_INSIDE`]. It has to answer
    /// [`SUBCOMMAND`](crate::SUBCOMMAND) with [`run_init`](crate::run_init).
    pub exe: PathBuf,
    /// The size to enforce.
    pub tier: Tier,
    /// Which start of the agent this is.
    pub incarnation: IncarnationId,
    /// What runs inside: the program's path there and its arguments, usually [`EXE_INSIDE`] and `agent …`.
    /// Its descriptor 3 is the agent's end of its control connection.
    pub command: Vec<String>,
    /// All of its environment. Nothing else is passed on.
    pub env: BTreeMap<String, String>,
    /// A file on the host that gets the agent's output, appended; without one it goes nowhere.
    pub log: Option<PathBuf>,
    /// Bytes that the log may grow to; what comes after is thrown away.
    pub log_bytes: u64,
    /// Bytes of `/tmp`, and again of `/dev/shm`. They count as memory when they are used.
    pub tmp_bytes: u64,
    /// Start although something of the isolation is lost.
    pub allow_degraded: bool,
    /// How long the start may take until the agent has been executed.
    pub start_within: Duration,
    /// Nobody will look for it again: it ends once its start is over, and with the process that starts it.
    pub(crate) ends_with_maker: bool,
}

impl Spec {
    /// A start with the usual environment (`PATH`, `HOME`, `TMPDIR`, `LANG`), 64 MiB of `/tmp`, a log of at
    /// most 16 MiB (none until a path is set), ten seconds, and nothing degraded.
    pub fn new(name: Name, dir: &Path, exe: &Path, tier: Tier, incarnation: IncarnationId) -> Self {
        let env = [
            ("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"),
            ("HOME", WORKSPACE_INSIDE),
            ("TMPDIR", "/tmp"),
            ("LANG", "C.UTF-8"),
        ];
        Self {
            name,
            dir: dir.to_owned(),
            exe: exe.to_owned(),
            tier,
            incarnation,
            command: vec![EXE_INSIDE.to_owned()],
            env: env.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
            log: None,
            log_bytes: 16 << 20,
            tmp_bytes: 64 << 20,
            allow_degraded: false,
            start_within: Duration::from_secs(10),
            ends_with_maker: false,
        }
    }

    /// The workspace on the host.
    pub fn workspace(&self) -> PathBuf {
        self.dir.join("workspace")
    }

    /// The session directory on the host.
    pub fn state(&self) -> PathBuf {
        self.dir.join("state")
    }

    /// The directory of the gateway's socket on the host.
    pub fn door(&self) -> PathBuf {
        self.dir.join("door")
    }
}

impl fmt::Debug for Spec {
    /// Without the environment's values: one of them is the agent's token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Spec")
            .field("name", &self.name)
            .field("dir", &self.dir)
            .field("exe", &self.exe)
            .field("tier", &self.tier)
            .field("incarnation", &self.incarnation)
            .field("command", &self.command)
            .field("env", &self.env.keys())
            .field("log", &self.log)
            .field("log_bytes", &self.log_bytes)
            .field("tmp_bytes", &self.tmp_bytes)
            .field("allow_degraded", &self.allow_degraded)
            .field("start_within", &self.start_within)
            .field("ends_with_maker", &self.ends_with_maker)
            .finish()
    }
}

/// A sandbox whose agent has been executed.
#[derive(Debug)]
pub struct Started {
    /// The init, as the host sees it. When it ends, all inside has ended.
    pub init: Process,
    /// What holds and what is lost, of this very sandbox.
    pub isolation: Isolation,
}

/// Why there is no sandbox. Nothing of it is left behind, unless it says so.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The specification cannot be followed.
    #[error("the sandbox cannot be made: {0}")]
    Invalid(String),
    /// Something of that name is still there. It has to be torn down, or another name taken.
    #[error("something of a sandbox {0} is still there")]
    NameTaken(Name),
    /// Something of the isolation is lost, and degraded was not allowed. Complete: facets that could not be
    /// tried because an earlier step failed are in it, and say so.
    #[error("this host does not give what the sandbox promises: {0}")]
    IsolationUnavailable(Isolation),
    /// The agent could not be executed, or preparing for it failed.
    #[error("the sandbox did not start: {stage}: {why}")]
    Failed {
        /// Which step.
        stage: String,
        /// What went wrong in it.
        why: String,
    },
    /// The agent was not executed in time.
    #[error("the sandbox did not start within {0:?}")]
    Late(Duration),
}

impl StartError {
    /// The stable code that it is reported with.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Invalid(_) => ErrorCode::InvalidArgument,
            Self::IsolationUnavailable(_) => ErrorCode::IsolationUnavailable,
            Self::NameTaken(_) | Self::Failed { .. } | Self::Late(_) => ErrorCode::Internal,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_in_the_environment_does_not_print() {
        let name = "a".parse().expect("a name");
        let tier = Tier::defaults().swap_remove(0);
        let mut spec = Spec::new(name, Path::new("/d"), Path::new("/e"), tier, IncarnationId::from_u128(1));
        spec.env.insert("HANDOFF_AGENT_TOKEN".to_owned(), "s3cret".to_owned());
        let text = format!("{spec:?}");
        assert!(text.contains("HANDOFF_AGENT_TOKEN") && !text.contains("s3cret"), "{text}");
    }
}
