//! `handoff transfer …`: the protocol's commands, one by one.

use std::path::Path;

use anyhow::{Context as _, Result};
use handoff_client::Client;
use handoff_protocol::document::SnapshotInput;
use handoff_protocol::limits::SNAPSHOT_INPUT_BYTES;
use handoff_protocol::listing::{EventQuery, ViewQuery};
use handoff_protocol::request::{
    Activate, EventView, Provision, Push, Raise, Refresh, Stage, Terminate, TransferView, WriteOff,
};
use handoff_protocol::{ErrorCode, Problem, Status, TransferId};
use serde::Serialize;

use crate::cli::Transfer;
use crate::command::{events, status};
use crate::config::Home;
use crate::output::Output;
use crate::refusal::{OrRefuse as _, problem, refuse};
use crate::serving::{self, read_token};

#[derive(Serialize)]
struct Log {
    transfer: TransferId,
    events: Vec<EventView>,
}

/// Sends one command and shows the transfer as it then stands.
pub async fn run(home: &Home, transfer: Transfer, output: Output) -> Result<()> {
    let client = serving::ensure(home).await?;
    match give(&client, transfer, output).await {
        Err(error) => Err(with_the_way_on(&client, error).await),
        done => done,
    }
}

/// What a refusal asks for, as a command line with the session's own figures.
async fn with_the_way_on(client: &Client, error: anyhow::Error) -> anyhow::Error {
    let problem = problem(&error);
    let hint = match (problem.code, problem.transfer_id) {
        (ErrorCode::NotFinal, Some(transfer)) => {
            let Ok(view) = client.transfer(transfer, ViewQuery::default()).await else { return error };
            format!(
                "have its holder stop, then: `handoff transfer snapshot --transfer {transfer} --expected-epoch {} \
                 --final`, with --input FILE where the holder is a source",
                view.epoch
            )
        }
        _ => return error,
    };
    Problem { hint, ..problem }.into()
}

async fn give(client: &Client, transfer: Transfer, output: Output) -> Result<()> {
    let view = match transfer {
        Transfer::Snapshot { .. } => return snapshot(client, transfer, output).await,
        Transfer::Events { transfer, after } => return log(client, transfer, after, output).await,
        Transfer::Provision { transfer, token_file, tier, budget, carve, node, request } => {
            let token = token_file.as_deref().map(read_token).transpose()?;
            let (request_id, budget_usd, node_id) = (request.request_id, budget, node);
            let body = Provision { request_id, token, tier, budget_usd, carve, node_id };
            client.provision(transfer, body).await?
        }
        Transfer::Push { transfer, checksum, request } => {
            let body = Push { request_id: request.request_id, checksum, wait_ms: None };
            verified(client.push(transfer, body).await?)?
        }
        Transfer::Activate { transfer, token_file, request } => {
            let token = token_file.as_deref().map(read_token).transpose()?;
            let body = Activate { request_id: request.request_id, token, wait_ms: None };
            client.activate(transfer, body).await?
        }
        Transfer::Raise { transfer, budget, request } => {
            let before = client.transfer(transfer, ViewQuery::default()).await?.budget;
            if before.is_some_and(|before| before.allocated_usd == budget) {
                output.progress(format_args!("the budget is ${budget} already; nothing is raised"));
            }
            client.raise(transfer, Raise { request_id: request.request_id, budget_usd: budget }).await?
        }
        Transfer::Terminate { transfer, reason, request } => {
            client.terminate(transfer, Terminate { request_id: request.request_id, reason }).await?
        }
        Transfer::WriteOff { transfer, epoch, reason, request } => {
            let body = WriteOff { request_id: request.request_id, epoch, reason };
            client.write_off(transfer, body).await?
        }
    };
    status::show(&view, output);
    Ok(())
}

/// A push whose wait ended before the receipt came is not done.
pub fn verified(view: TransferView) -> Result<TransferView, Problem> {
    match view.status {
        Status::Staged | Status::Provisioned => {}
        Status::Pushed | Status::Active | Status::Insolvent | Status::Terminated | Status::Expired => {
            return Ok(view);
        }
    }
    let transfer = view.transfer;
    let place = view.destination.as_ref();
    let node = place.map_or_else(|| "no node".to_owned(), |place| place.node_id.to_string());
    let observed = place.and_then(|place| place.observed);
    let at = observed.map_or("not reported on yet", status::observed);
    let message = format!("{transfer} is not verified yet: its destination on {node} is {at}");
    let hint = format!(
        "the push goes on: wait again with `handoff transfer push {transfer}`; `handoff logs node` and \
         `handoff logs {transfer}` on that node say what holds it up"
    );
    let problem = Problem::new(ErrorCode::NotVerified, message, hint).of_transfer(transfer);
    Err(Problem { status: Some(view.status), expected: vec![Status::Pushed], ..problem })
}

async fn snapshot(client: &Client, transfer: Transfer, output: Output) -> Result<()> {
    let Transfer::Snapshot { input, session, expected_epoch, transfer, is_final, request } = transfer else {
        return Ok(());
    };
    if input.is_none() && session.is_none() && transfer.is_none() {
        let hint = "name --input FILE for a new session, --session for a known one, or --transfer to refresh";
        return Err(refuse(ErrorCode::InvalidArgument, "there is nothing to take a snapshot of", hint));
    }
    let input = input.as_deref().map(read_input).transpose()?;
    let request_id = request.request_id;
    let staged = match transfer {
        Some(transfer) => {
            let body =
                Refresh { request_id, expected_epoch, snapshot: None, input, is_final, incarnation: None };
            client.refresh(transfer, body).await?
        }
        None => {
            let body = Stage {
                request_id,
                session_id: session,
                expected_epoch,
                snapshot: None,
                input,
                source_host: Some(serving::host_name()),
                is_final,
                abandon_source: false,
                labels: Default::default(),
            };
            client.stage(body).await?
        }
    };
    output.line(format_args!(
        "{}  {}  session {}  epoch {}  {}{}",
        staged.transfer_id,
        staged.status,
        staged.session_id,
        staged.epoch,
        staged.snapshot,
        if staged.is_final { "  final" } else { "  draft" }
    ));
    output.titled("handoff.transfer-snapshot.v1", &staged);
    Ok(())
}

/// The input, checked before it is parsed.
fn read_input(path: &Path) -> Result<SnapshotInput> {
    let at = path.display();
    let unreadable = format!("the input {at} cannot be read");
    let hint = "name a JSON file with --input";
    let size = std::fs::metadata(path).or_refuse(ErrorCode::InvalidArgument, &unreadable, hint)?.len();
    if size > SNAPSHOT_INPUT_BYTES as u64 {
        let message = format!("the input {at} has {size} bytes; at most {SNAPSHOT_INPUT_BYTES} are taken");
        let hint = "move the running agent with `handoff move` instead: that has no such limit";
        return Err(refuse(ErrorCode::PayloadTooLarge, message, hint));
    }
    let bytes = std::fs::read(path).or_refuse(ErrorCode::InvalidArgument, &unreadable, hint)?;
    handoff_snapshot::parse_input(&bytes).with_context(|| format!("the input {at}"))
}

async fn log(client: &Client, transfer: TransferId, after: u64, output: Output) -> Result<()> {
    let mut after = Some(after);
    let mut all = Vec::new();
    while after.is_some() {
        let page = client.events(transfer, EventQuery { after, ..EventQuery::default() }).await?;
        after = page.next_cursor;
        all.extend(page.events);
    }
    for event in &all {
        output.line(events::line(event));
    }
    output.titled("handoff.transfer-events.v1", &Log { transfer, events: all });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(status: Status, observed: Option<&str>) -> TransferView {
        let zeros = "0".repeat(64);
        let text = serde_json::json!({
            "schema": "handoff.status.v1",
            "transfer": TransferId::from_u128(1),
            "session": "ses_00000000000000000000000001",
            "status": status, "epoch": 1, "version": 1, "final": true,
            "snapshot": format!("sha256:{zeros}"),
            "destination": {
                "node_id": "nod_00000000000000000000000001", "tier": "s", "generation": 1,
                "observed": observed, "resting": false,
            },
            "source_must_keep_running": true, "expires_at": "1970-01-01T00:00:00.000Z", "events": [],
        });
        serde_json::from_value(text).expect("a view")
    }

    /// H-106
    #[test]
    fn a_push_that_is_not_verified_can_be_waited_for_and_says_how_its_destination_is() {
        let problem = verified(view(Status::Provisioned, Some("failed"))).expect_err("not yet");
        assert_eq!((problem.code, problem.retryable), (ErrorCode::NotVerified, true));
        assert!(
            problem.message.contains("is failed") && problem.hint.contains("transfer push xfr_"),
            "{problem:?}"
        );
        assert_eq!(problem.status, Some(Status::Provisioned));
        assert!(verified(view(Status::Pushed, None)).is_ok());
    }
}
