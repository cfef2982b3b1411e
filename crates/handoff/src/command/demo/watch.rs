//! Following a transfer until its books are closed.

use std::time::Duration;

use anyhow::{Result, bail};
use handoff_client::Client;
use handoff_protocol::listing::ViewQuery;
use handoff_protocol::request::TransferView;
use handoff_protocol::{Status, TransferId};
use tokio::time::Instant;

use super::story::Story;
use crate::command::status;
use crate::output::Output;

/// The longest life of the demo's session at its destination.
const WITHIN: Duration = Duration::from_secs(90);

/// Waits for each change and says what it is; returns the transfer with all its events.
pub(super) async fn until_closed(
    client: &Client,
    transfer: TransferId,
    output: Output,
    story: &Story,
) -> Result<TransferView> {
    let deadline = Instant::now() + WITHIN;
    let mut said = String::new();
    let mut status = Status::Active;
    let mut newer_than = None;
    while Instant::now() < deadline {
        let query = ViewQuery { newer_than, wait_s: Some(5), ..ViewQuery::default() };
        let view = client.transfer(transfer, query).await?;
        newer_than = Some(view.version);
        if view.status != status && view.status == Status::Insolvent {
            story.tell(output, "poor");
        }
        status = view.status;
        let line = line(&view);
        if line != said {
            output.progress(format_args!("  {line}"));
            said = line;
        }
        if view.status == Status::Terminated && view.budget.is_some_and(|budget| budget.closed) {
            return whole(client, view).await;
        }
    }
    bail!("the transfer was {status} after {} s, and its books are not closed", WITHIN.as_secs())
}

fn line(view: &TransferView) -> String {
    let spent = view.budget.map_or(String::new(), |budget| status::money(&budget));
    let reason = view.reason.as_ref().map_or(String::new(), |reason| format!("  ({reason})"));
    format!("{:<12} {spent}{reason}", view.status.as_str())
}

/// The same view with every page of its events.
async fn whole(client: &Client, mut view: TransferView) -> Result<TransferView> {
    let mut events = Vec::new();
    let mut after = Some(0);
    while after.is_some() {
        let query = handoff_protocol::listing::EventQuery { after, ..Default::default() };
        let page = client.events(view.transfer, query).await?;
        after = page.next_cursor;
        events.extend(page.events);
    }
    view.events = events;
    Ok(view)
}
