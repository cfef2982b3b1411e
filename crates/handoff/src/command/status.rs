//! `handoff status`: transfers, or one of them.

use anyhow::Result;
use handoff_protocol::listing::{TransferQuery, ViewQuery};
use handoff_protocol::node::ObservedState;
use handoff_protocol::request::{BudgetView, TransferView};
use handoff_protocol::{NanoUsd, Status};
use serde::Serialize;

use crate::cli::Status as Arguments;
use crate::command::events;
use crate::config::Home;
use crate::output::Output;
use crate::serving;

#[derive(Serialize)]
struct Listing {
    schema: &'static str,
    transfers: Vec<TransferView>,
}

/// Shows what there is. Starts no control plane: where none runs, nothing runs.
pub async fn run(home: &Home, arguments: Arguments, output: Output) -> Result<()> {
    if let Some(transfer) = arguments.transfer {
        let client = serving::ensure(home).await?;
        let view = client.transfer(transfer, ViewQuery::default()).await?;
        show(&view, output);
        return Ok(());
    }
    // Where it cannot be looked, nothing is claimed.
    home.prepare()?;
    let transfers = if serving::answers(home).await || home.database().try_exists()? {
        serving::ensure(home).await?.transfers(&TransferQuery::default()).await?.transfers
    } else {
        Vec::new()
    };
    if transfers.is_empty() {
        output.line("no transfers yet: `handoff demo` shows one, `handoff move` makes one");
    }
    for view in &transfers {
        output.line(summary(view));
    }
    output.document(&Listing { schema: "handoff.status-list.v1", transfers });
    Ok(())
}

/// One transfer in full.
pub fn show(view: &TransferView, output: Output) {
    output.line(summary(view));
    for line in events::lines(&view.events) {
        output.line(line);
    }
    output.document(view);
}

/// What a node reported of a destination.
pub fn observed(state: ObservedState) -> &'static str {
    match state {
        ObservedState::Warm => "warm",
        ObservedState::Prepared => "prepared",
        ObservedState::Running => "running",
        ObservedState::Frozen => "frozen",
        ObservedState::Resting => "resting",
        ObservedState::Absent => "absent",
        ObservedState::Failed => "failed",
    }
}

/// One transfer in one line.
pub fn summary(view: &TransferView) -> String {
    let money = view.budget.map_or(String::new(), |budget| {
        let closed = if budget.closed { ", books closed" } else { "" };
        format!("  {}{closed}", money(&budget))
    });
    let place = view.destination.as_ref().map_or(String::new(), |place| {
        let resting = if place.resting { ", resting" } else { "" };
        format!("  on {} ({}{resting})", place.node_id, place.tier)
    });
    let reason = view.reason.as_ref().map_or(String::new(), |reason| format!("  reason {reason}"));
    format!("{}  {:<11} {:<10}{place}{money}{reason}", view.transfer, view.status.as_str(), epoch(view))
}

/// The epoch that a transfer is about: once it is over, the last one in which it held the session.
fn epoch(view: &TransferView) -> String {
    match (view.status, view.held_epoch) {
        (Status::Terminated | Status::Expired, Some(held)) => format!("epoch {held}"),
        (Status::Terminated | Status::Expired, None) => "never held".to_owned(),
        (Status::Staged | Status::Provisioned | Status::Pushed | Status::Active | Status::Insolvent, _) => {
            format!("epoch {}", view.epoch)
        }
    }
}

/// What was spent, and what is kept back: spending ends where the rest begins.
pub fn money(budget: &BudgetView) -> String {
    let kept = if budget.reserve_usd > NanoUsd::ZERO && !budget.closed {
        format!(", ${} kept for the wind-down", budget.reserve_usd)
    } else {
        String::new()
    };
    let spent = format!("${}", budget.spent_usd);
    format!("spent {spent:<12} of ${}{kept}", budget.allocated_usd)
}
