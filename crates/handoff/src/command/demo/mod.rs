//! `handoff demo`: a session moves in mid-task, is metered, runs out of budget, is frozen, stored and torn
//! down, on this machine, in a state directory of its own. Then the evidence is looked at.

mod document;
mod evidence;
mod leftovers;
mod stage;
mod story;
mod watch;

use std::process::ExitCode;

use anyhow::{Context as _, Result};
use handoff_protocol::error::Exit;

use self::evidence::Evidence;
use self::stage::DemoStage;
use self::story::Story;
use crate::cli::{Demo, Source};
use crate::command::relocate::{Moving, SourceLink};
use crate::command::{events, plan};
use crate::output::Output;
use crate::serving;

/// What the demo's session may spend.
const BUDGET: &str = "0.03";
/// Steps that the source takes before it is moved: enough for files and a history.
const STEPS_BEFORE: u64 = 4;

/// Plays the demo and says whether every promise held.
pub async fn run(arguments: Demo, output: Output) -> Result<ExitCode> {
    let story = Story::load();
    let mut stage = DemoStage::set(&arguments, output).await?;
    let document = match play(&mut stage, &story, output).await {
        Ok(document) => document,
        Err(error) => {
            let log = stage.keep_for_inspection();
            output.progress(format_args!("everything that the demo made is in {}", log.display()));
            return Err(error);
        }
    };
    output.document(&document);
    show(&document, &arguments, &stage, output);
    Ok(ExitCode::from(if document.broken().is_empty() { Exit::Ok } else { Exit::PromiseBroken } as u8))
}

async fn play(stage: &mut DemoStage, story: &Story, output: Output) -> Result<document::Document> {
    story.tell(output, "opening");
    output.progress(format_args!("  {}", stage.model_line()));
    let client = serving::ensure(&stage.home).await?;
    let mut link = stage.wait_for_agent(STEPS_BEFORE).await?;
    let before = link.status().await?;
    output.progress(format_args!("  source       pid {}, step {}", stage.source_pid(), before.step));
    drop(link);

    let source = Source {
        agent: None,
        tier: "sandbox-small".into(),
        budget: BUDGET.parse().expect("an amount"),
        node: None,
        allow_degraded: true,
    };
    let plan = plan::make(&stage.home, &source).await?;
    if !output.is_json() {
        plan.show(output, None);
    }
    story.tell(output, "departure");
    let journal = plan.journal(&source);
    let link = SourceLink::connect(&journal.control_socket).await?;
    let mut evidence = Evidence::new();
    let mut moving = Moving::new(&stage.home, client.clone(), Some(link), journal, output);
    let did_not = "the session did not move";
    let paused = moving.run_until_pushed().await.context(did_not)?;
    // Both stand still now: what the destination goes on from can be held against what the source left.
    evidence.compare_files(&stage.source_workspace(), &moving.destination(&stage.home)?)?;
    let moved = moving.activate(paused).await.context(did_not)?;
    evidence.source_ended(stage.wait_for_source_end().await?);
    let isolation =
        client.nodes().await?.nodes.into_iter().next().map(|node| node.isolation).unwrap_or_default();
    story.tell(output, "arrival");

    let last = watch::until_closed(&client, moved.view.transfer, output, story).await?;
    evidence.collect(stage)?;
    let paused_ms = moved.pause.unwrap_or_default();
    let leftovers = stage.strike(moved.view.transfer).await?;
    story.tell(output, "ending");
    Ok(evidence.judge(last, leftovers, isolation, paused_ms))
}

fn show(document: &document::Document, arguments: &Demo, stage: &DemoStage, output: Output) {
    output.line("\nevents");
    for line in events::lines(&document.events) {
        output.line(line);
    }
    output.line("\nledger");
    for line in &document.ledger.lines {
        let cost = format!("${}", line.cost_usd);
        output.line(format_args!("  epoch {}  report {:>3}  {cost:<12}", line.epoch, line.seq));
    }
    output.line(format_args!("  sum ${}  spent ${}", document.ledger.sum_usd, document.ledger.spent_usd));
    output.line("\npromises");
    for promise in &document.promises {
        output.line(format_args!("  {}  {}", if promise.ok { "kept  " } else { "BROKEN" }, promise.name));
    }
    output.line(format_args!("  paused {:.1} s", document.pause_ms as f64 / 1000.0));
    let lost: Vec<&str> = document
        .isolation
        .iter()
        .filter(|fact| fact.how.starts_with("lost"))
        .map(|fact| fact.what.as_str())
        .collect();
    if !lost.is_empty() {
        output.line(format_args!(
            "\nthis host could not enforce: {}; `handoff doctor` says why",
            lost.join(", ")
        ));
    }
    let program = program();
    if arguments.keep {
        stays(stage, &program, output);
    }
    output.line("\nnext");
    output.line(format_args!("  {program} doctor    what this machine can enforce"));
    output.line("  a session of your own, with a model that gateway.toml knows (docs/configuration.md):");
    output.line(format_args!(
        "  {program} agent --name mine --task TEXT --model-url URL --model NAME --upstream NAME &"
    ));
    output.line(format_args!("  {program} plan mine"));
    output.line(format_args!("  {program} move mine"));
}

/// What `--keep` leaves, and how each of it ends.
fn stays(stage: &DemoStage, program: &str, output: Output) {
    let home = stage.home.path().display();
    output.line("\nkept");
    output.line(format_args!(
        "  the control plane, its node and its gateway   look: {program} --home {home} status"
    ));
    output.line(format_args!(
        "                                                end: {program} --home {home} serve --stop"
    ));
    if let Some(pid) = stage.model_pid() {
        output.line(format_args!("  the scripted model, process {pid:<17} end: kill {pid}"));
    }
    let root = stage.root().display();
    output.line(format_args!("  the folder of all of it                       end: rm -r {root}"));
}

/// The running program as a shell finds it: by its name where that is on the path, else by its own path.
fn program() -> String {
    let Ok(own) = std::env::current_exe() else { return "handoff".to_owned() };
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|folder| folder.join("handoff")).find(|file| file.exists());
    let is_own = found.and_then(|file| file.canonicalize().ok()).is_some_and(|file| file == own);
    if is_own { "handoff".to_owned() } else { own.display().to_string() }
}
