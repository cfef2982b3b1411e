//! `cargo xtask check-demo`: what `handoff demo --json` must have shown. The demo judges itself; this check
//! does not take its word: statuses, ledger and leftovers are looked at again from the figures.

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use handoff_protocol::{NanoUsd, Status};
use serde::Deserialize;
use serde_json::Value;

/// Promises that must be there, by name. A demo may make more.
const PROMISES: &[&str] = &[
    "one_holder",
    "source_ended_after_active",
    "history_byte_exact",
    "file_byte_exact",
    "within_budget",
    "ledger_balances",
    "no_open_hold",
    "nothing_left",
];

/// The walk of a session that reaches its budget.
const WALK: &[Status] = &[
    Status::Staged,
    Status::Provisioned,
    Status::Pushed,
    Status::Active,
    Status::Insolvent,
    Status::Terminated,
];

/// The document, as far as it is checked.
#[derive(Deserialize)]
struct Demo {
    schema: String,
    statuses: Vec<Status>,
    events: Vec<Value>,
    ledger: Ledger,
    source: Source,
    destination: Destination,
    leftovers: serde_json::Map<String, Value>,
    isolation: Vec<Value>,
    promises: Vec<Promise>,
}

#[derive(Deserialize)]
struct Ledger {
    lines: Vec<serde_json::Map<String, Value>>,
    sum_usd: NanoUsd,
    spent_usd: NanoUsd,
    model_usd: Option<NanoUsd>,
    requests_usd: Option<NanoUsd>,
}

#[derive(Deserialize)]
struct Source {
    pid: u64,
    ended_at: Option<Value>,
}

#[derive(Deserialize)]
struct Destination {
    first_request_digest: Option<String>,
    history_prefix_ok: bool,
    file_ok: bool,
}

#[derive(Deserialize)]
struct Promise {
    name: String,
    ok: bool,
}

/// Reads a demo's output and prints what does not hold. True when everything does.
///
/// # Errors
/// When the file cannot be read or is not a demo's document.
pub(crate) fn run(file: &Path) -> Result<bool> {
    let text = std::fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?;
    let broken = check(&text)?;
    for line in &broken {
        println!("check-demo: {line}");
    }
    let promises = serde_json::from_str::<Demo>(&text).map_or(0, |demo| demo.promises.len());
    println!("check-demo: {promises} promises, {} broken", broken.len());
    Ok(broken.is_empty())
}

/// What does not hold, one sentence each.
fn check(text: &str) -> Result<Vec<String>> {
    let demo: Demo = serde_json::from_str(text).context("not the document of handoff demo --json")?;
    ensure!(demo.schema == "handoff.demo.v1", "schema {} is not handoff.demo.v1", demo.schema);
    let mut broken = Vec::new();
    let mut hold = |ok: bool, otherwise: String| {
        if !ok {
            broken.push(otherwise);
        }
    };
    for name in PROMISES {
        hold(demo.promises.iter().any(|promise| promise.name == *name), format!("promise {name} is missing"));
    }
    for promise in &demo.promises {
        hold(promise.ok, format!("promise {} was broken", promise.name));
    }
    hold(demo.statuses == WALK, format!("statuses are {:?}, not {WALK:?}", demo.statuses));
    hold(!demo.events.is_empty(), "there are no events".to_owned());
    hold(!demo.isolation.is_empty(), "nothing is said about isolation".to_owned());
    hold(demo.source.pid > 0 && demo.source.ended_at.is_some(), "the source did not end".to_owned());
    hold(demo.destination.first_request_digest.is_some(), "the destination asked nothing".to_owned());
    hold(demo.destination.history_prefix_ok, "the destination's history is another".to_owned());
    hold(demo.destination.file_ok, "the destination's file is another".to_owned());
    for what in ["processes", "mounts", "cgroups", "files"] {
        hold(
            demo.leftovers.get(what).is_some_and(is_none),
            format!("{what} were left over, or not looked for"),
        );
    }
    let (sum, spent) = (demo.ledger.sum_usd, demo.ledger.spent_usd);
    hold(sum == spent, format!("the ledger sums to {sum}, the budget says {spent}"));
    hold(spent > NanoUsd::from_nano(0), "nothing was spent, so nothing was metered".to_owned());
    if let (Some(model), Some(requests)) = (demo.ledger.model_usd, demo.ledger.requests_usd) {
        hold(
            model == requests,
            format!("the reports charge {model} for the model, its own log comes to {requests}"),
        );
    }
    let lines = sum_of_lines(&demo.ledger.lines)?;
    hold(lines == sum, format!("the ledger's lines sum to {lines}, it says {sum}"));
    Ok(broken)
}

/// Zero, or an empty list.
fn is_none(value: &Value) -> bool {
    match value {
        Value::Array(found) => found.is_empty(),
        Value::Number(count) => count.as_u64() == Some(0),
        Value::Null | Value::Bool(_) | Value::String(_) | Value::Object(_) => false,
    }
}

/// Every line has exactly one amount, in the field that ends in `_usd`.
fn sum_of_lines(lines: &[serde_json::Map<String, Value>]) -> Result<NanoUsd> {
    let mut sum = NanoUsd::from_nano(0);
    for line in lines {
        let mut amounts = line.iter().filter(|(field, _)| field.ends_with("_usd"));
        let (Some((field, amount)), None) = (amounts.next(), amounts.next()) else {
            bail!("a ledger line has exactly one amount, this one does not: {line:?}");
        };
        let amount: NanoUsd = serde_json::from_value(amount.clone()).with_context(|| field.clone())?;
        sum = sum.plus(amount);
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept() -> Value {
        let promises: Vec<Value> =
            PROMISES.iter().map(|name| serde_json::json!({"name": name, "ok": true})).collect();
        serde_json::json!({
            "schema": "handoff.demo.v1",
            "statuses": WALK,
            "events": [{"type": "activated"}],
            "ledger": {"lines": [{"at": "x", "cost_usd": "0.25"}, {"cost_usd": "0.125"}], "sum_usd": "0.375", "spent_usd": "0.375", "model_usd": "0.25", "requests_usd": "0.25"},
            "source": {"pid": 7, "ended_at": "2026-01-01T00:00:00.000Z"},
            "destination": {"first_request_digest": "sha256:00", "history_prefix_ok": true, "file_ok": true},
            "leftovers": {"processes": [], "mounts": 0, "cgroups": [], "files": []},
            "isolation": ["namespaces"],
            "promises": promises,
        })
    }

    #[test]
    fn a_demo_that_kept_everything_passes() {
        assert_eq!(check(&kept().to_string()).expect("a document"), Vec::<String>::new());
    }

    #[test]
    fn each_broken_promise_is_named() {
        for (pointer, value, said) in [
            ("/promises/0/ok", serde_json::json!(false), "one_holder was broken"),
            ("/promises/7/name", serde_json::json!("other"), "nothing_left is missing"),
            ("/statuses/3", serde_json::json!("pushed"), "statuses are"),
            ("/ledger/spent_usd", serde_json::json!("0.376"), "the budget says"),
            ("/ledger/lines/0/cost_usd", serde_json::json!("0.26"), "lines sum to"),
            ("/ledger/requests_usd", serde_json::json!("0.24"), "its own log comes to"),
            ("/leftovers/mounts", serde_json::json!(1), "mounts were left"),
            ("/leftovers/files", serde_json::json!(["a"]), "files were left"),
            ("/destination/file_ok", serde_json::json!(false), "file is another"),
            ("/source/ended_at", Value::Null, "did not end"),
            ("/destination/first_request_digest", Value::Null, "asked nothing"),
        ] {
            let mut demo = kept();
            *demo.pointer_mut(pointer).expect("a field of the sample") = value;
            let broken = check(&demo.to_string()).expect("a document");
            assert!(broken.iter().any(|line| line.contains(said)), "{pointer}: {broken:?}");
        }
    }

    #[test]
    fn what_is_not_a_demo_is_an_error() {
        assert!(check("{}").is_err());
        assert!(check(&kept().to_string().replace("demo.v1", "demo.v9")).is_err());
        assert!(check(&kept().to_string().replace("\"0.25\"", "0.25")).is_err(), "an amount is a string");
    }
}
