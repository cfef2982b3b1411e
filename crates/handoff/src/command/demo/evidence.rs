//! The evidence that a promise held: the model server's own request log, the files, the event log and the
//! ledger, looked at after the fact.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use handoff_protocol::request::{EventType, EventView, TransferView};
use handoff_protocol::{Digest, NanoUsd, Status, Timestamp, session_dir};
use handoff_scripted_model::{Record, Usage, read_log};

use super::document::{
    DestinationFacts, Document, IsolationFact, Ledger, LedgerLine, Leftovers, Promise, SourceFacts,
};
use super::stage::{self, DemoStage};

/// What was seen.
pub(super) struct Evidence {
    source: SourceFacts,
    destination: DestinationFacts,
    one_holder: bool,
    /// What the scripted model's own log says that the destination's requests cost.
    requested: Option<NanoUsd>,
}

impl Evidence {
    pub(super) fn new() -> Self {
        let (source, destination) = (SourceFacts::default(), DestinationFacts::default());
        Self { source, destination, one_holder: false, requested: None }
    }

    pub(super) fn source_ended(&mut self, at: Timestamp) {
        self.source.ended_at = Some(at);
    }

    /// The destination's own files, before anything there may change them, against what the source left.
    pub(super) fn compare_files(&mut self, source: &Path, destination: &Path) -> Result<()> {
        let left = tree(source)?;
        self.destination.file_ok = !left.is_empty() && left == tree(&destination.join("workspace"))?;
        Ok(())
    }

    /// Reads what the model server logged, where it keeps a log.
    pub(super) fn collect(&mut self, stage: &DemoStage) -> Result<()> {
        self.source.pid = stage.source_pid();
        let log = read_log(&stage.request_log()).unwrap_or_default();
        self.one_holder = epochs_never_fall(&log);
        let history = message_digests(&stage.source_state().join(session_dir::MESSAGES))?;
        if let Some(first) = log.iter().find(|record| is_of_destination(record)) {
            self.destination.first_request_digest = Some(first.body_digest);
            self.destination.history_prefix_ok = starts_with(&first.message_digests, &history);
        }
        self.requested = stage.is_scripted().then(|| cost_of_requests(&log));
        Ok(())
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
            ("ledger_balances", sum_usd == budget.spent_usd && self.explains(sum_usd, &last.events)),
            ("no_open_hold", budget.closed && budget.leased_usd == NanoUsd::ZERO),
            ("nothing_left", leftovers.is_empty()),
            ("events_gap_free", gap_free(&last.events)),
        ];
        Document {
            schema: "handoff.demo.v1",
            transfer_id: last.transfer,
            session_id: last.session,
            statuses: statuses(&last.events),
            ledger: Ledger {
                lines,
                sum_usd,
                spent_usd: budget.spent_usd,
                model_usd: model_part(&last.events),
                requests_usd: self.requested,
            },
            events: last.events,
            source: self.source,
            destination: self.destination,
            leftovers,
            isolation: isolation.into_iter().map(|(what, how)| IsolationFact { what, how }).collect(),
            promises: promises.map(|(name, ok)| Promise { name, ok }).into(),
            pause_ms: u64::try_from(pause.as_millis()).unwrap_or(u64::MAX),
        }
    }

    /// Whether what was spent is what the model server says was asked of it, and the rest no more than the time at
    /// the destination costs. Without that server's log there is only the reports' word.
    fn explains(&self, spent: NanoUsd, events: &[EventView]) -> bool {
        let model = model_part(events);
        let compute = spent.minus(model);
        let possible = time_at_destination(events).map(|ms| stage::tier().run_cost(ms + stage::TICK_MS));
        self.requested.is_none_or(|requested| requested == model && requested > NanoUsd::ZERO)
            && compute > NanoUsd::ZERO
            && possible.is_some_and(|possible| compute <= possible)
    }
}

/// The model's part of what all reports together say was spent: the last of each epoch counts.
fn model_part(events: &[EventView]) -> NanoUsd {
    let reports = events.iter().filter(|event| event.kind == EventType::UsageReported);
    let parts = reports
        .filter_map(|event| Some((event.detail.get("epoch")?, event.detail.get("model_usd")?.parse().ok()?)));
    let last: BTreeMap<&String, NanoUsd> = parts.collect();
    last.into_values().sum()
}

/// Milliseconds from the claim to the end, by the store's clock.
fn time_at_destination(events: &[EventView]) -> Option<u64> {
    let at = |kind| events.iter().find(|event| event.kind == kind).map(|event| event.at.unix_ms());
    u64::try_from(at(EventType::Terminated)? - at(EventType::Activated)?).ok()
}

/// What the destination's requests cost at the demo's prices, by the usage that the model server stated.
fn cost_of_requests(log: &[Record]) -> NanoUsd {
    let answered = log.iter().filter(|record| is_of_destination(record)).filter_map(|record| record.usage);
    let cost = |usage: Usage| {
        let (input, output) = stage::SCRIPTED_PRICES;
        let million = 1_000_000;
        let price = |tokens: u64, usd: u64| i64::try_from(tokens * usd * 1_000_000_000 / million);
        let nano = price(usage.prompt_tokens, input)
            .and_then(|cost| Ok(cost + price(usage.completion_tokens, output)?));
        NanoUsd::from_nano(nano.unwrap_or(i64::MAX))
    };
    answered.map(cost).sum()
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

#[cfg(test)]
mod tests {
    use handoff_protocol::EventId;

    use super::*;

    fn event(kind: EventType, at_ms: i64, detail: &[(&str, &str)]) -> EventView {
        let detail = detail.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let (event_id, at) = (EventId::from_u128(1), Timestamp::from_unix_ms(at_ms));
        EventView { event_id, seq: 1, kind, at, actor: String::new(), detail }
    }

    fn usd(text: &str) -> NanoUsd {
        text.parse().expect("an amount")
    }

    #[test]
    fn a_destination_with_other_files_is_seen() {
        let directory = tempfile::tempdir().expect("a directory");
        let (source, there) = (directory.path().join("source"), directory.path().join("there"));
        let mut evidence = Evidence::new();
        for path in [source.join("data"), there.join("workspace/data")] {
            std::fs::create_dir_all(&path).expect("made");
            std::fs::write(path.join("a.csv"), "1,2\n").expect("written");
        }
        evidence.compare_files(&source, &there).expect("readable");
        assert!(evidence.destination.file_ok);
        std::fs::write(there.join("workspace/data/a.csv"), "1,3\n").expect("written");
        evidence.compare_files(&source, &there).expect("readable");
        assert!(!evidence.destination.file_ok);
    }

    #[test]
    fn spending_is_explained_by_the_model_s_log_and_the_time_and_by_nothing_else() {
        let report = |seq, model| {
            event(EventType::UsageReported, 0, &[("epoch", "2"), ("seq", seq), ("model_usd", model)])
        };
        let events = [
            event(EventType::Activated, 1_000, &[]),
            report("1", "0.0005"),
            report("2", "0.001"),
            event(EventType::Terminated, 3_000, &[]),
        ];
        let explained = |requested: Option<&str>, spent| {
            let evidence = Evidence { requested: requested.map(usd), ..Evidence::new() };
            evidence.explains(usd(spent), &events)
        };
        assert!(explained(Some("0.001"), "0.005"));
        assert!(explained(None, "0.005"), "a real model keeps no log here");
        for (requested, spent, why) in [
            ("0.0011", "0.005", "a call that was not charged"),
            ("0.0005", "0.005", "a call that was charged twice"),
            ("0.001", "0.001", "no compute"),
            ("0.001", "0.0071", "more compute than there was time"),
        ] {
            assert!(!explained(Some(requested), spent), "{why}");
        }
    }

    #[test]
    fn the_log_is_priced_by_what_the_model_server_stated() {
        let line = |epoch: &str, input: u64, output: u64| {
            format!(
                r#"{{"at_unix_ms":1,"method":"POST","path":"/v1/chat/completions","epoch":{epoch},"authorization":false,
                "authorization_digest":null,"body_digest":"{0}","body_bytes":1,"messages":0,"message_digests":[],
                "model":null,"stream":true,"step":0,"status":200,"usage":{{"prompt_tokens":{input},
                "completion_tokens":{output},"total_tokens":0,"prompt_tokens_details":{{"cached_tokens":0}},
                "completion_tokens_details":{{"reasoning_tokens":0}}}}}}"#,
                Digest::of(b"")
            )
        };
        let log: Vec<Record> = [line("null", 900, 900), line("\"2\"", 1_000, 100), line("\"2\"", 2_000, 0)]
            .iter()
            .map(|line| serde_json::from_str(line).expect("a record"))
            .collect();
        assert_eq!(cost_of_requests(&log), usd("0.0034"), "the source does not go through the gateway");
    }
}
