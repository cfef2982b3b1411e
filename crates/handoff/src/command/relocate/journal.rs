//! What a move must remember across its own death: one file per move, replaced by rename. Request ids are
//! derived from the move's id, so that a step that was already done is answered again.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result};
use handoff_protocol::id::RequestId;
use handoff_protocol::request::{Provision, TokenText};
use handoff_protocol::{Digest, IncarnationId, NanoUsd, NodeId, SessionId, TierName, TransferId};
use serde::{Deserialize, Serialize};

use crate::config::Home;

/// A move as it was left.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MoveJournal {
    /// Its id, which request ids are made from.
    pub id: IncarnationId,
    /// The source's name.
    pub source: String,
    /// The source's session directory.
    pub state_dir: PathBuf,
    /// The source's workspace.
    pub workspace_dir: PathBuf,
    /// The source's control socket.
    pub control_socket: PathBuf,
    /// The session.
    pub session_id: SessionId,
    /// Its epoch as the source holds it; none before the first staging.
    pub epoch: Option<u64>,
    /// The draft that was given to be staged: a request whose answer was lost is sent again as it was.
    pub draft: Option<Digest>,
    /// The transfer, once it is staged.
    pub transfer_id: Option<TransferId>,
    /// What the destination gets.
    pub tier: TierName,
    /// What it may spend.
    pub budget_usd: NanoUsd,
    /// The node that was asked for.
    pub node: Option<NodeId>,
    /// Activations that were tried: each has a request id of its own.
    pub activations: u32,
    /// The source was about to be told to stop for good, and has not yet been let go on.
    pub frozen: bool,
    /// When it was told to, in Unix milliseconds: the pause that a later process reports begins there.
    #[serde(default)]
    pub frozen_at_ms: Option<u64>,
    /// Names the return: made when the source had confirmed that it is frozen, and durable before it is sent.
    pub nonce: Option<IncarnationId>,
    /// How it ended.
    pub ended: Option<MoveEnd>,
}

/// How a move ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MoveEnd {
    /// The session runs at the destination; the source is retired.
    Moved,
    /// The source goes on.
    Undone,
}

impl MoveJournal {
    /// The newest move that has not ended.
    pub fn open(home: &Home) -> Result<Option<Self>> {
        let entries = match std::fs::read_dir(directory(home)) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).context("the moves cannot be listed"),
        };
        let mut open: Vec<Self> = Vec::new();
        for entry in entries {
            let path = entry?.path();
            if path.extension().is_some_and(|ending| ending == "json") {
                let bytes = std::fs::read(&path)?;
                let found: Self = serde_json::from_slice(&bytes)
                    .with_context(|| format!("{} is damaged", path.display()))?;
                open.extend(found.ended.is_none().then_some(found));
            }
        }
        open.sort_by_key(|found| found.id);
        Ok(open.pop())
    }

    /// Makes it durable.
    pub fn save(&self, home: &Home) -> Result<()> {
        let directory = directory(home);
        crate::config::make_private(&directory)?;
        let path = directory.join(format!("{}.json", self.id));
        let temporary = path.with_extension("new");
        let mut file = std::fs::File::create(&temporary)?;
        file.write_all(&serde_json::to_vec(self)?)?;
        file.sync_all()?;
        std::fs::rename(&temporary, &path)?;
        std::fs::File::open(&directory)?.sync_all()?;
        Ok(())
    }

    /// Whether somebody means this move by an agent's name, its session or a folder.
    pub fn is_of(&self, named: &str) -> bool {
        self.source == named
            || self.session_id.to_string() == named
            || lies_below(&self.workspace_dir, Path::new(named))
    }

    /// What is asked of provision: everything that the caller chose.
    pub fn provision(&self, token: TokenText) -> Provision {
        Provision {
            request_id: self.request("provision"),
            token: Some(token),
            tier: self.tier.clone(),
            budget_usd: self.budget_usd,
            carve: false,
            node_id: self.node,
        }
    }

    /// From the source's stop until now, where it stopped.
    pub fn paused(&self) -> Option<Duration> {
        Some(Duration::from_millis(unix_ms().saturating_sub(self.frozen_at_ms?)))
    }

    /// The request id of a step.
    pub fn request(&self, step: &str) -> Option<RequestId> {
        format!("{}.{step}", self.id).parse().ok()
    }
}

/// Now, by this host's clock: for people only.
pub fn unix_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

fn directory(home: &Home) -> PathBuf {
    home.path().join("moves")
}

/// Whether a path lies below another.
pub fn lies_below(path: &Path, root: &Path) -> bool {
    match (path.canonicalize(), root.canonicalize()) {
        (Ok(path), Ok(root)) => path.starts_with(root),
        (Ok(_) | Err(_), Ok(_) | Err(_)) => false,
    }
}
