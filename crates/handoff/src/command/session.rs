//! `handoff session …` and `handoff wake`.

use anyhow::Result;
use handoff_client::{Client, ClientBlobs};
use handoff_protocol::SessionId;
use handoff_protocol::listing::{SessionQuery, TransferQuery, ViewQuery};
use handoff_protocol::request::{Reasoned, SessionView};
use serde::Serialize;

use crate::cli::Session;
use crate::command::relocate::bytes;
use crate::command::status;
use crate::config::Home;
use crate::output::Output;
use crate::serving;

#[derive(Serialize)]
struct Listing {
    schema: &'static str,
    sessions: Vec<SessionView>,
}

#[derive(Serialize)]
struct Woken<'a> {
    /// Whether it rested; one that runs is left alone.
    woken: bool,
    #[serde(flatten)]
    session: &'a SessionView,
}

/// Lists, shows or inspects.
pub async fn run(home: &Home, session: Session, output: Output) -> Result<()> {
    let client = serving::ensure(home).await?;
    match session {
        Session::List => {
            let sessions = client.sessions(SessionQuery::default()).await?.sessions;
            if sessions.is_empty() {
                output.line("no sessions yet");
            }
            for view in &sessions {
                output.line(summary(view));
            }
            output.document(&Listing { schema: "handoff.session-list.v1", sessions });
        }
        Session::Show { session } => show(&client, session, output).await?,
        Session::Inspect { snapshot } => {
            let inspection = handoff_snapshot::inspect(snapshot, &ClientBlobs::new(client)).await?;
            inspected(&inspection, output);
        }
    }
    Ok(())
}

/// Has a resting session run again.
pub async fn wake(home: &Home, session: SessionId, output: Output) -> Result<()> {
    let client = serving::ensure(home).await?;
    let before = client.session(session).await?;
    let rested = match before.live {
        Some(live) => {
            let live = client.transfer(live, ViewQuery::default()).await?;
            live.destination.is_some_and(|place| place.resting)
        }
        None => false,
    };
    let view = client.wake(session, Reasoned::default()).await?;
    output.line(if rested {
        "woken; its node starts it again"
    } else {
        "it is not resting; nothing was done"
    });
    output.line(summary(&view));
    output.titled("handoff.wake.v1", &Woken { woken: rested, session: &view });
    Ok(())
}

async fn show(client: &Client, session: SessionId, output: Output) -> Result<()> {
    let view = client.session(session).await?;
    output.line(summary(&view));
    if let Some(snapshot) = view.last_snapshot {
        output.line(format_args!("  last snapshot  {snapshot}"));
    }
    for (key, value) in &view.labels {
        output.line(format_args!("  label          {key}={value}"));
    }
    let query = TransferQuery { session_id: Some(session), ..TransferQuery::default() };
    for transfer in client.transfers(&query).await?.transfers {
        output.line(format_args!("  {}", status::summary(&transfer)));
    }
    output.titled("handoff.session-show.v1", &view);
    Ok(())
}

fn inspected(found: &handoff_snapshot::Summary, output: Output) {
    let (stored, whole) = (bytes(found.size), bytes(found.logical_size));
    output.line(format_args!("{}  {stored} stored, {whole} unpacked", found.digest));
    let roles: Vec<String> =
        found.messages.roles.iter().map(|(role, count)| format!("{count} {role}")).collect();
    output.line(format_args!("  messages   {} ({})", found.messages.count, roles.join(", ")));
    let tree = &found.workspace;
    output.line(format_args!("  workspace  {} files, {}", tree.files, bytes(tree.bytes)));
    for part in &found.parts {
        let (layers, stored, whole) = (part.layers, bytes(part.size), bytes(part.logical_size));
        output.line(format_args!("  part       {:<14} {layers} layers, {stored} stored, {whole}", part.part));
    }
    output.line(format_args!("  taken on   {}", found.session.lineage.source_host));
    for entry in &found.session.report {
        output.line(format_args!("  changed    {}: {}", entry.at, entry.why));
    }
    output.titled("handoff.session-inspect.v1", found);
}

fn summary(view: &SessionView) -> String {
    let transfer = |name: &str, id: Option<handoff_protocol::TransferId>| {
        id.map_or(String::new(), |id| format!("  {name} {id}"))
    };
    let (pending, live) = (transfer("pending", view.pending), transfer("live", view.live));
    format!("{}  epoch {}  {}{pending}{live}", view.session, view.epoch, holder(view))
}

/// Who has it. What is held by an incarnation without a live transfer is held by nobody who could still run.
fn holder(view: &SessionView) -> String {
    match view.holder.as_str() {
        "source" => "held by its source".to_owned(),
        "none" => "held by nobody".to_owned(),
        incarnation if view.live.is_some() => format!("held by {incarnation}"),
        incarnation => format!("held by nobody, last by {incarnation}"),
    }
}
