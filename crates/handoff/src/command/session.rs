//! `handoff session …` and `handoff wake`.

use anyhow::Result;
use handoff_client::ClientBlobs;
use handoff_protocol::SessionId;
use handoff_protocol::listing::SessionQuery;
use handoff_protocol::request::{Reasoned, SessionView};
use serde::Serialize;

use crate::cli::Session;
use crate::config::Home;
use crate::output::Output;
use crate::serving;

#[derive(Serialize)]
struct Listing {
    schema: &'static str,
    sessions: Vec<SessionView>,
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
        Session::Show { session } => show(&client.session(session).await?, output),
        Session::Inspect { snapshot } => {
            let inspection = handoff_snapshot::inspect(snapshot, &ClientBlobs::new(client)).await?;
            output.line(serde_json::to_string_pretty(&inspection)?);
            output.document(&inspection);
        }
    }
    Ok(())
}

/// Has a resting session run again.
pub async fn wake(home: &Home, session: SessionId, output: Output) -> Result<()> {
    let view = serving::ensure(home).await?.wake(session, Reasoned::default()).await?;
    show(&view, output);
    Ok(())
}

fn show(view: &SessionView, output: Output) {
    output.line(summary(view));
    output.document(view);
}

fn summary(view: &SessionView) -> String {
    let transfer = |name: &str, id: Option<handoff_protocol::TransferId>| {
        id.map_or(String::new(), |id| format!("  {name} {id}"))
    };
    let (pending, live) = (transfer("pending", view.pending), transfer("live", view.live));
    format!("{}  epoch {}  held by {}{pending}{live}", view.session, view.epoch, view.holder)
}
