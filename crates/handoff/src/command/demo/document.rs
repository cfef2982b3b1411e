//! The demo's document: what was seen, and which promises held.

use handoff_protocol::request::EventView;
use handoff_protocol::{Digest, NanoUsd, SessionId, Status, Timestamp, TransferId};
use serde::Serialize;

/// What `handoff demo --json` prints.
#[derive(Debug, Serialize)]
pub(super) struct Document {
    pub(super) schema: &'static str,
    pub(super) transfer_id: TransferId,
    pub(super) session_id: SessionId,
    pub(super) statuses: Vec<Status>,
    pub(super) events: Vec<EventView>,
    pub(super) ledger: Ledger,
    pub(super) source: SourceFacts,
    pub(super) destination: DestinationFacts,
    pub(super) leftovers: Leftovers,
    pub(super) isolation: Vec<IsolationFact>,
    pub(super) promises: Vec<Promise>,
    pub(super) pause_ms: u64,
}

/// The money, report by report.
#[derive(Debug, Serialize)]
pub(super) struct Ledger {
    pub(super) lines: Vec<LedgerLine>,
    pub(super) sum_usd: NanoUsd,
    pub(super) spent_usd: NanoUsd,
    /// The model's part of it, by the reports.
    pub(super) model_usd: NanoUsd,
    /// The same by the model server's own request log, where it keeps one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) requests_usd: Option<NanoUsd>,
}

/// What one report added.
#[derive(Debug, Serialize)]
pub(super) struct LedgerLine {
    pub(super) epoch: u64,
    pub(super) seq: u64,
    pub(super) cost_usd: NanoUsd,
}

/// The agent that was moved away from.
#[derive(Debug, Default, Serialize)]
pub(super) struct SourceFacts {
    pub(super) pid: u32,
    pub(super) ended_at: Option<Timestamp>,
}

/// What the destination started from.
#[derive(Debug, Default, Serialize)]
pub(super) struct DestinationFacts {
    pub(super) first_request_digest: Option<Digest>,
    pub(super) history_prefix_ok: bool,
    pub(super) file_ok: bool,
}

/// What was found after everything should be gone.
#[derive(Debug, Default, Serialize)]
pub(super) struct Leftovers {
    pub(super) processes: Vec<String>,
    pub(super) mounts: Vec<String>,
    pub(super) cgroups: Vec<String>,
    pub(super) files: Vec<String>,
}

impl Leftovers {
    pub(super) fn is_empty(&self) -> bool {
        [&self.processes, &self.mounts, &self.cgroups, &self.files].into_iter().all(Vec::is_empty)
    }
}

/// What one facet of the isolation was enforced by, or why it was lost.
#[derive(Debug, Serialize)]
pub(super) struct IsolationFact {
    pub(super) what: String,
    pub(super) how: String,
}

/// A promise and whether it held.
#[derive(Debug, Serialize)]
pub(super) struct Promise {
    pub(super) name: &'static str,
    pub(super) ok: bool,
}

impl Document {
    /// The promises that did not hold.
    pub(super) fn broken(&self) -> Vec<&'static str> {
        self.promises.iter().filter(|promise| !promise.ok).map(|promise| promise.name).collect()
    }
}
