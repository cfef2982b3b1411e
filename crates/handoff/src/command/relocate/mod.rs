//! `handoff move`: a running agent's session goes to a sandbox; the source works on until the last moment and
//! ends only after `active` has been confirmed.

mod isolation;
mod journal;
mod link;
mod moving;
mod rest;
mod undo;

use anyhow::{Context as _, Result, bail};
use handoff_protocol::request::TransferView;
use handoff_protocol::{ErrorCode, Problem, SessionId};
use serde::Serialize;

pub use self::journal::{MoveJournal, lies_below};
pub use self::link::SourceLink;
pub use self::moving::{Moved, Moving, bytes, new_id};
use self::rest::{Rest, Truth};
use crate::cli::Move;
use crate::command::{plan, status};
use crate::config::Home;
use crate::output::Output;
use crate::refusal::refuse;
use crate::serving;

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    moved: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    session_id: Option<SessionId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    transfer: Option<&'a TransferView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pause_ms: Option<u64>,
}

/// Moves a session, or finishes a move that was interrupted.
pub async fn run(home: &Home, arguments: Move, output: Output) -> Result<()> {
    if arguments.resume {
        return resume(home, arguments.source.agent.as_deref(), output).await;
    }
    if let Some(open) = MoveJournal::open(home)? {
        let message = format!("the move of '{}' was interrupted", open.source);
        let problem =
            Problem::new(ErrorCode::SessionBusy, message, "finish it first: `handoff move --resume`");
        return Err(Problem { transfer_id: open.transfer_id, ..problem }.into());
    }
    let client = serving::ensure(home).await?;
    let plan = plan::make(home, &arguments.source).await?;
    if output.is_json() {
        plan.secrets().into_iter().for_each(|line| output.progress(line));
    } else {
        plan.show(output, None);
    }
    plan.check_model(home)?;
    isolation::check(home, &client, &arguments.source).await?;
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

fn done(moving: &Moving, moved: &Moved, output: Output) -> Result<()> {
    let view = &moved.view;
    let node = view.destination.as_ref().map(|place| place.node_id.to_string()).unwrap_or_default();
    output.line(format_args!("running on {node}; this copy is retired"));
    let budget = view.budget.context("an active transfer has a budget")?;
    output.line(status::money(&budget));
    output.line("next:");
    output.line(format_args!("  handoff status {}", view.transfer));
    output.line(format_args!("  handoff logs {}", view.transfer));
    output.line(format_args!("  handoff transfer raise {} --budget USD", view.transfer));
    output.line(format_args!("  handoff transfer terminate {} --reason WHY", view.transfer));
    let pause_ms = moved.pause.map(|pause| u64::try_from(pause.as_millis()).unwrap_or(u64::MAX));
    output.document(&Document {
        schema: "handoff.move.v1",
        moved: true,
        session_id: Some(moving.journal.session_id),
        transfer: Some(view),
        pause_ms,
    });
    Ok(())
}

/// The source goes on, or one command is left to say what is true.
async fn failed(moving: &mut Moving, error: anyhow::Error, output: Output) -> Result<()> {
    let stopped = moving.journal.frozen;
    match moving.truth().await {
        Ok(Truth::Taken(view)) => {
            output.progress(format_args!("{} is {}: the source is retired", view.transfer, view.status));
            let moved = moving.found_done(*view).await?;
            return done(moving, &moved, output);
        }
        Ok(Truth::NotTaken(_)) => {}
        Err(unknown) if !stopped => {
            output.progress(format_args!("what was staged could not be ended: {unknown:#}"));
            output.progress("  → handoff move --resume");
            return Err(error.context("the move failed; your session here was not stopped"));
        }
        Err(unknown) => {
            let message = "it is not known whether the session moved; the source stands still until it is";
            output.progress(format_args!("{message}: {unknown:#}"));
            output.progress("  → handoff move --resume");
            return Err(error.context(message));
        }
    }
    match moving.undo(&format!("{error:#}")).await {
        Ok(()) if stopped => Err(error.context("the move failed; your session goes on here")),
        Ok(()) => Err(error.context("the move failed; your session here was not stopped")),
        Err(undo) => {
            output.progress(format_args!("the source stands still: {undo:#}"));
            output.progress("  → handoff move --resume");
            Err(error.context("the move failed, and the source could not be let go on yet"))
        }
    }
}

/// Finishes what was interrupted: the control plane says what is true, and the source follows it.
async fn resume(home: &Home, agent: Option<&str>, output: Output) -> Result<()> {
    let Some(journal) = MoveJournal::open(home)? else {
        output.line("no move was interrupted");
        let (schema, session_id, transfer, pause_ms) = ("handoff.move.v1", None, None, None);
        output.document(&Document { schema, moved: false, session_id, transfer, pause_ms });
        return Ok(());
    };
    check_named(&journal, agent)?;
    let client = serving::ensure(home).await?;
    let link = SourceLink::connect(&journal.control_socket).await.ok();
    let mut moving = Moving::new(home, client, link, journal, output);
    match resume_moving(&mut moving).await {
        Ok(moved) => done(&moving, &moved, output),
        Err(error) => failed(&mut moving, error, output).await,
    }
}

/// Which move is finished is no choice; whoever names an agent must not be surprised by another's.
fn check_named(journal: &MoveJournal, agent: Option<&str>) -> Result<()> {
    match agent {
        Some(named) if !journal.is_of(named) => {
            let message =
                format!("the move that was interrupted is that of '{}', not of '{named}'", journal.source);
            let hint = "finish it: `handoff move --resume`, which takes no AGENT";
            Err(refuse(ErrorCode::InvalidArgument, message, hint))
        }
        Some(_) | None => Ok(()),
    }
}

async fn resume_moving(moving: &mut Moving) -> Result<Moved> {
    let truth = moving.truth().await?;
    let paused = match (Rest::of(&truth), truth) {
        (_, Truth::Taken(view)) => return moving.found_done(*view).await,
        (_, Truth::NotTaken(None)) => moving.run_until_pushed().await?,
        (rest, Truth::NotTaken(Some(view))) => match rest {
            Rest::Provision => {
                moving.provision().await?;
                moving.pause_and_push().await?
            }
            Rest::Pause => moving.pause_and_push().await?,
            Rest::Push => {
                let paused = std::time::Instant::now();
                moving.push(view.snapshot).await?;
                paused
            }
            Rest::Activate => return moving.activate_again().await,
            Rest::Everything | Rest::Retire | Rest::GiveBack => {
                bail!("{} is {} and was never claimed", view.transfer, view.status)
            }
        },
    };
    moving.activate(paused).await
}
