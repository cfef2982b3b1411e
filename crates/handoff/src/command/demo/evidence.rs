//! The evidence that a promise held: the model server's own request log, the files, the event log and the
//! ledger, looked at after the fact.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};
use handoff_client::{Client, ClientBlobs};
use handoff_protocol::request::{EventType, EventView, TransferView};
use handoff_protocol::{Digest, NanoUsd, Status, Timestamp, session_dir};
use handoff_scripted_model::{Record, read_log};
use handoff_snapshot::RestoreTarget;

use super::document::{
    DestinationFacts, Document, IsolationFact, Ledger, LedgerLine, Leftovers, Promise, SourceFacts,
};
use super::stage::DemoStage;
use crate::command::relocate::Moved;

/// What was seen.
pub(super) struct Evidence {
    source: SourceFacts,
    destination: DestinationFacts,
    one_holder: bool,
}

impl Evidence {
    pub(super) fn new() -> Self {
        Self { source: SourceFacts::default(), destination: DestinationFacts::default(), one_holder: false }
    }

    pub(super) fn source_ended(&mut self, at: Timestamp) {
        self.source.ended_at = Some(at);
    }

    /// Reads what the model server logged and what the final snapshot holds.
    pub(super) async fn collect(&mut self, stage: &DemoStage, client: &Client, moved: &Moved) -> Result<()> {
        self.source.pid = stage.source_pid();
        let log = read_log(&stage.request_log()).unwrap_or_default();
        self.one_holder = epochs_never_fall(&log);
        let history = message_digests(&stage.source_state().join(session_dir::MESSAGES))?;
        if let Some(first) = log.iter().find(|record| is_of_destination(record)) {
            self.destination.first_request_digest = Some(first.body_digest);
            self.destination.history_prefix_ok = starts_with(&first.message_digests, &history);
        }
        self.destination.file_ok = self.files_equal(stage, client, moved).await?;
        Ok(())
    }

    /// Unpacks the snapshot that the destination resumed from, and compares it with what the source left.
    async fn files_equal(&self, stage: &DemoStage, client: &Client, moved: &Moved) -> Result<bool> {
        let place = tempfile::tempdir()?;
        let target = RestoreTarget::new(place.path().join("state"), place.path().join("workspace"));
        let blobs = ClientBlobs::new(client.clone());
        handoff_snapshot::restore(moved.snapshot, &blobs, target).await.context("the final snapshot")?;
        let restored = tree(&place.path().join("workspace"))?;
        Ok(!restored.is_empty() && restored == tree(&stage.source_workspace())?)
    }

    /// Holds each promise against what was seen.
    pub(super) fn judge(
        self,
        last: TransferView,
        leftovers: Leftovers,
        isolation: BTreeMap<String, String>,
        pause: Duration,
    ) -> Document {
        let budget = last.budget.unwrap_or(handoff_protocol::request::BudgetView {
            allocated_usd: NanoUsd::ZERO,
            spent_usd: NanoUsd::MAX,
            leased_usd: NanoUsd::MAX,
            reserve_usd: NanoUsd::ZERO,
            closed: false,
        });
        let lines = ledger_lines(&last.events);
        let sum_usd: NanoUsd = lines.iter().map(|line| line.cost_usd).sum();
        let activated =
            last.events.iter().find(|event| event.kind == EventType::Activated).map(|event| event.at);
        let ended_after = activated.zip(self.source.ended_at).is_some_and(|(active, ended)| ended >= active);
        let promises = [
            ("one_holder", self.one_holder),
            ("source_ended_after_active", ended_after),
            ("history_byte_exact", self.destination.history_prefix_ok),
            ("file_byte_exact", self.destination.file_ok),
            ("within_budget", budget.spent_usd <= budget.allocated_usd),
            ("ledger_balances", sum_usd == budget.spent_usd && sum_usd > NanoUsd::ZERO),
            ("no_open_hold", budget.closed && budget.leased_usd == NanoUsd::ZERO),
            ("nothing_left", leftovers.is_empty()),
            ("events_gap_free", gap_free(&last.events)),
        ];
        Document {
            schema: "handoff.demo.v1",
            statuses: statuses(&last.events),
            ledger: Ledger { lines, sum_usd, spent_usd: budget.spent_usd },
            events: last.events,
            source: self.source,
            destination: self.destination,
            leftovers,
            isolation: isolation.into_iter().map(|(what, how)| IsolationFact { what, how }).collect(),
            promises: promises.map(|(name, ok)| Promise { name, ok }).into(),
            pause_ms: u64::try_from(pause.as_millis()).unwrap_or(u64::MAX),
        }
    }
}

/// The gateway tells a scripted upstream the epoch; a source does not go through a gateway.
fn is_of_destination(record: &Record) -> bool {
    record.epoch.is_some()
}

/// No request of an epoch after the first of a later one; the source's count as before all.
fn epochs_never_fall(log: &[Record]) -> bool {
    let epochs =
        log.iter().map(|record| record.epoch.as_ref().map_or(Some(0), |text| text.parse::<u64>().ok()));
    let epochs: Option<Vec<u64>> = epochs.collect();
    epochs.is_some_and(|epochs| !epochs.is_empty() && epochs.is_sorted() && epochs.last() > Some(&0))
}

/// The digests of the conversation's lines as the source left them.
fn message_digests(path: &Path) -> Result<Vec<Digest>> {
    let bytes = std::fs::read(path)?;
    Ok(bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).map(Digest::of).collect())
}

/// Whether a request's messages, after its system message, begin with this history.
fn starts_with(request: &[Digest], history: &[Digest]) -> bool {
    let without_system = request.get(1..).unwrap_or_default();
    !history.is_empty() && (without_system.starts_with(history) || request.starts_with(history))
}

/// Every file's path, mode and content.
fn tree(root: &Path) -> Result<BTreeMap<String, (u32, Vec<u8>)>> {
    use std::os::unix::fs::PermissionsExt as _;
    let mut found = BTreeMap::new();
    let mut open = vec![root.to_owned()];
    while let Some(directory) = open.pop() {
        for entry in std::fs::read_dir(&directory)? {
            let path = entry?.path();
            let facts = std::fs::symlink_metadata(&path)?;
            if facts.is_dir() {
                open.push(path.clone());
            }
            let bytes = if facts.is_file() { std::fs::read(&path)? } else { Vec::new() };
            let name = path.strip_prefix(root)?.to_string_lossy().into_owned();
            found.insert(name, (facts.permissions().mode(), bytes));
        }
    }
    Ok(found)
}

/// What each report added to its epoch.
fn ledger_lines(events: &[EventView]) -> Vec<LedgerLine> {
    let mut before: BTreeMap<u64, NanoUsd> = BTreeMap::new();
    let reports = events.iter().filter(|event| event.kind == EventType::UsageReported);
    let lines = reports.filter_map(|event| {
        let number = |key: &str| event.detail.get(key).and_then(|text| text.parse::<u64>().ok());
        let (epoch, seq) = (number("epoch")?, number("seq")?);
        let spent: NanoUsd = event.detail.get("spent_usd")?.parse().ok()?;
        let cost_usd = spent.minus(before.insert(epoch, spent).unwrap_or_default());
        Some(LedgerLine { epoch, seq, cost_usd })
    });
    lines.collect()
}

/// The statuses in the order of the events that entered them.
fn statuses(events: &[EventView]) -> Vec<Status> {
    let entered = events.iter().filter_map(|event| match event.kind {
        EventType::SnapshotCreated => Some(Status::Staged),
        EventType::RuntimeProvisioned => Some(Status::Provisioned),
        EventType::StatePushed => Some(Status::Pushed),
        EventType::Activated => Some(Status::Active),
        EventType::Insolvent => Some(Status::Insolvent),
        EventType::Terminated => Some(Status::Terminated),
        EventType::Expired => Some(Status::Expired),
        EventType::UsageReported => None,
    });
    entered.collect()
}

fn gap_free(events: &[EventView]) -> bool {
    events.iter().zip(1..).all(|(event, seq)| event.seq == seq)
}
