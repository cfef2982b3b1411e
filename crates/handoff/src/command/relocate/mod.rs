//! `handoff move`: a running agent's session goes to a sandbox; the source works on until the last moment and
//! ends only after `active` has been confirmed.

mod journal;
mod link;
mod moving;
mod undo;

use anyhow::{Context as _, Result, bail};
use handoff_client::Client;
use handoff_protocol::{ErrorCode, Problem, SessionId};
use serde::Serialize;

pub use self::journal::{MoveJournal, lies_below};
pub use self::link::SourceLink;
pub use self::moving::{Moved, Moving, bytes, new_id};
use self::undo::Truth;
use crate::cli::{Move, Source};
use crate::command::plan;
use crate::config::Home;
use crate::output::Output;
use crate::serving;

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    moved: bool,
    session_id: SessionId,
    transfer: &'a handoff_protocol::request::TransferView,
    pause_ms: u64,
}

/// Moves a session, or finishes a move that was interrupted.
pub async fn run(home: &Home, arguments: Move, output: Output) -> Result<()> {
    if arguments.resume {
        return resume(home, output).await;
    }
    if let Some(open) = MoveJournal::open(home)? {
        bail!("the move of '{}' was interrupted: finish it with `handoff move --resume` first", open.source);
    }
    let client = serving::ensure(home).await?;
    let plan = plan::make(home, &arguments.source).await?;
    plan.show(output);
    check_isolation(&client, &arguments.source).await?;
    let journal = plan.journal(&arguments.source);
    let link = SourceLink::connect(&journal.control_socket).await?;
    let mut moving = Moving::new(home, client, Some(link), journal, output);
    let outcome = tokio::select! {
        outcome = moving.run() => outcome,
        _ = tokio::signal::ctrl_c() => Err(anyhow::anyhow!("interrupted")),
    };
    match outcome {
        Ok(moved) => done(&moving, &moved, output),
        Err(error) => failed(&mut moving, error, output).await,
    }
}

/// A host that cannot enforce what the tier promises is refused before anything is staged.
async fn check_isolation(client: &Client, source: &Source) -> Result<()> {
    if source.allow_degraded {
        return Ok(());
    }
    let nodes = client.nodes().await?.nodes;
    let lost = |words: &std::collections::BTreeMap<String, String>| -> Vec<String> {
        let lost = words.iter().filter(|(_, how)| how.starts_with("lost"));
        lost.map(|(what, how)| format!("{what} ({how})")).collect()
    };
    let wanted = nodes.iter().filter(|node| source.node.is_none_or(|wanted| wanted == node.node_id));
    let losses: Vec<Vec<String>> = wanted.map(|node| lost(&node.isolation)).collect();
    if losses.is_empty() || losses.iter().any(Vec::is_empty) {
        return Ok(());
    }
    let message =
        format!("no node enforces all that a sandbox promises; lost here: {}", losses.concat().join(", "));
    let hint = "run as root or on a host with cgroups, or accept the loss with --allow-degraded";
    Err(Problem::new(ErrorCode::IsolationUnavailable, message, hint).into())
}

fn done(moving: &Moving, moved: &Moved, output: Output) -> Result<()> {
    let view = &moved.view;
    let node = view.destination.as_ref().map(|place| place.node_id.to_string()).unwrap_or_default();
    output.line(format_args!("running on {node}; this copy is retired"));
    let budget = view.budget.context("an active transfer has a budget")?;
    output.line(format_args!("spent ${} of ${}", budget.spent_usd, budget.allocated_usd));
    output.line("next:");
    output.line(format_args!("  handoff status {}", view.transfer));
    output.line(format_args!("  handoff logs {}", view.transfer));
    output.line(format_args!("  handoff transfer raise {} --budget USD", view.transfer));
    output.line(format_args!("  handoff transfer terminate {} --reason WHY", view.transfer));
    let pause_ms = u64::try_from(moved.pause.as_millis()).unwrap_or(u64::MAX);
    let session_id = moving.journal.session_id;
    output.document(&Document {
        schema: "handoff.move.v1",
        moved: true,
        session_id,
        transfer: view,
        pause_ms,
    });
    Ok(())
}

/// The source goes on, or one command is left to say what is true.
async fn failed(moving: &mut Moving, error: anyhow::Error, output: Output) -> Result<()> {
    match moving.truth().await {
        Ok(Truth::Taken(view)) => {
            output.progress(format_args!("{} is {}: the source is retired", view.transfer, view.status));
            moving.retire().await?;
            return Ok(());
        }
        Ok(Truth::NotTaken(_)) => {}
        Err(unknown) => {
            let message = "it is not known whether the session moved; the source stands still until it is";
            output.progress(format_args!("{message}: {unknown:#}"));
            output.progress("  → handoff move --resume");
            return Err(error.context(message));
        }
    }
    match moving.undo(&format!("{error:#}")).await {
        Ok(()) => Err(error.context("the move failed; your session here was not stopped")),
        Err(undo) => {
            output.progress(format_args!("the source stands still: {undo:#}"));
            output.progress("  → handoff move --resume");
            Err(error.context("the move failed, and the source could not be let go on yet"))
        }
    }
}

/// Finishes what was interrupted: the control plane says what is true, and the source follows it.
async fn resume(home: &Home, output: Output) -> Result<()> {
    let Some(journal) = MoveJournal::open(home)? else {
        output.line("no move was interrupted");
        return Ok(());
    };
    let client = serving::ensure(home).await?;
    let link = SourceLink::connect(&journal.control_socket).await.ok();
    let mut moving = Moving::new(home, client, link, journal, output);
    match resume_moving(&mut moving).await {
        Ok(Some(moved)) => done(&moving, &moved, output),
        Ok(None) => {
            output.line("the session had moved; this copy is retired");
            Ok(())
        }
        Err(error) => failed(&mut moving, error, output).await,
    }
}

async fn resume_moving(moving: &mut Moving) -> Result<Option<Moved>> {
    use handoff_protocol::Status;
    match moving.truth().await? {
        Truth::Taken(_) => {
            moving.retire().await?;
            Ok(None)
        }
        Truth::NotTaken(None) => moving.run().await.map(Some),
        Truth::NotTaken(Some(view)) => match view.status {
            Status::Staged => {
                moving.provision().await?;
                moving.finish().await.map(Some)
            }
            Status::Provisioned if view.is_final => {
                let started = std::time::Instant::now();
                moving.push(view.snapshot).await?;
                moving.activate(started, view.snapshot).await.map(Some)
            }
            Status::Provisioned => moving.finish().await.map(Some),
            Status::Pushed => moving.activate(std::time::Instant::now(), view.snapshot).await.map(Some),
            Status::Active | Status::Insolvent | Status::Terminated | Status::Expired => {
                bail!("the transfer is {} and was never claimed", view.status)
            }
        },
    }
}
