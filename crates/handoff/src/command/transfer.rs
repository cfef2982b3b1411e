//! `handoff transfer …`: the protocol's commands, one by one.

use std::path::Path;

use anyhow::{Context as _, Result};
use handoff_client::Client;
use handoff_protocol::TransferId;
use handoff_protocol::document::SnapshotInput;
use handoff_protocol::limits::SNAPSHOT_INPUT_BYTES;
use handoff_protocol::listing::EventQuery;
use handoff_protocol::request::{Activate, Provision, Push, Raise, Refresh, Stage, Terminate, WriteOff};

use crate::cli::Transfer;
use crate::command::status;
use crate::config::Home;
use crate::output::Output;
use crate::serving::{self, read_token};

/// Sends one command and shows the transfer as it then stands.
pub async fn run(home: &Home, transfer: Transfer, output: Output) -> Result<()> {
    let client = serving::ensure(home).await?;
    let view = match transfer {
        Transfer::Snapshot { .. } => return snapshot(&client, transfer, output).await,
        Transfer::Events { transfer, after } => return events(&client, transfer, after, output).await,
        Transfer::Provision { transfer, token_file, tier, budget, carve, node, request } => {
            let token = token_file.as_deref().map(read_token).transpose()?;
            let (request_id, budget_usd, node_id) = (request.request_id, budget, node);
            let body = Provision { request_id, token, tier, budget_usd, carve, node_id };
            client.provision(transfer, body).await?
        }
        Transfer::Push { transfer, checksum, request } => {
            let body = Push { request_id: request.request_id, checksum, wait_ms: None };
            client.push(transfer, body).await?
        }
        Transfer::Activate { transfer, token_file, request } => {
            let token = token_file.as_deref().map(read_token).transpose()?;
            let body = Activate { request_id: request.request_id, token, wait_ms: None };
            client.activate(transfer, body).await?
        }
        Transfer::Raise { transfer, budget, request } => {
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

async fn snapshot(client: &Client, transfer: Transfer, output: Output) -> Result<()> {
    let Transfer::Snapshot { input, session, expected_epoch, transfer, is_final, request } = transfer else {
        return Ok(());
    };
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
    output.document(&staged);
    Ok(())
}

/// The input, checked before it is parsed.
fn read_input(path: &Path) -> Result<SnapshotInput> {
    let size = std::fs::metadata(path).with_context(|| format!("{} cannot be read", path.display()))?.len();
    if size > SNAPSHOT_INPUT_BYTES as u64 {
        anyhow::bail!("{} has {size} bytes; an input has at most {SNAPSHOT_INPUT_BYTES}", path.display());
    }
    let bytes = std::fs::read(path).with_context(|| format!("{} cannot be read", path.display()))?;
    Ok(handoff_snapshot::parse_input(&bytes)?)
}

async fn events(client: &Client, transfer: TransferId, after: u64, output: Output) -> Result<()> {
    let mut after = Some(after);
    let mut all = Vec::new();
    while after.is_some() {
        let page = client.events(transfer, EventQuery { after, ..EventQuery::default() }).await?;
        after = page.next_cursor;
        all.extend(page.events);
    }
    for event in &all {
        let detail: Vec<String> = event.detail.iter().map(|(key, value)| format!("{key}={value}")).collect();
        output.line(format_args!(
            "{:>3}  {}  {:<20} {}  {}",
            event.seq,
            event.at,
            event.kind.as_str(),
            event.actor,
            detail.join(" ")
        ));
    }
    output.document(&all);
    Ok(())
}
