//! `handoff logs`: what an agent, or a background process, wrote.

use std::path::{Path, PathBuf};

use anyhow::Result;
use handoff_agent::registry::find_sources;
use handoff_protocol::{ErrorCode, TransferId};
use serde::Serialize;

use crate::cli::Logs;
use crate::config::Home;
use crate::output::Output;
use crate::refusal::{OrRefuse as _, refuse};

/// What writes a log in the background, and in which file. The control plane and its supervisor share one.
const ROLES: [(&str, &str); 4] =
    [("serve", "supervise"), ("node", "node"), ("gateway", "gateway"), ("supervise", "supervise")];

#[derive(Serialize)]
struct Document<'a> {
    of: &'a str,
    path: &'a Path,
    lines: Vec<String>,
}

/// Shows the log. An agent's lines are the agent's words: they are printed without control characters.
pub async fn run(home: &Home, arguments: Logs, output: Output) -> Result<()> {
    let path = find(home, &arguments.of)?;
    let bytes = std::fs::read(&path);
    let message = format!("the log {} cannot be read", path.display());
    let bytes = bytes.or_refuse(ErrorCode::NotFound, message, advice(home, &arguments.of))?;
    let lines: Vec<String> =
        String::from_utf8_lossy(&bytes).lines().map(|line| line.chars().map(plain).collect()).collect();
    for line in &lines {
        output.line(line);
    }
    if lines.is_empty() {
        output.progress(format_args!("nothing was written to {} yet", path.display()));
    } else if runs_in_foreground(home, &arguments.of) {
        let path = path.display();
        output.progress(format_args!(
            "`handoff serve` runs in the foreground and writes there; {path} is of an earlier one"
        ));
    }
    output.titled("handoff.logs.v1", &Document { of: &arguments.of, path: &path, lines });
    Ok(())
}

/// A terminal must not obey what a sandbox wrote.
fn plain(character: char) -> char {
    if character.is_control() && character != '\t' { '\u{fffd}' } else { character }
}

fn is_role(of: &str) -> bool {
    ROLES.iter().any(|(role, _)| *role == of)
}

/// Whether a control plane runs that nobody supervises: it was started by hand.
fn runs_in_foreground(home: &Home, of: &str) -> bool {
    let taken = |role| crate::process::is_taken(home, role).unwrap_or(false);
    matches!(of, "serve" | "supervise") && taken("serve") && !taken("supervise")
}

fn find(home: &Home, of: &str) -> Result<PathBuf> {
    if let Some((_, file)) = ROLES.iter().find(|(role, _)| *role == of) {
        return Ok(home.log().join(format!("{file}.log")));
    }
    match of.parse::<TransferId>() {
        Ok(transfer) => of_transfer(home, transfer),
        Err(_) => Err(of_nobody(home, of)),
    }
}

fn of_transfer(home: &Home, transfer: TransferId) -> Result<PathBuf> {
    let name = transfer.to_string();
    let places = std::fs::read_dir(home.node().join("destinations")).into_iter().flatten().flatten();
    let of_transfer =
        |path: &PathBuf| path.file_name().is_some_and(|place| place.to_string_lossy().starts_with(&name));
    let newest = places.map(|place| place.path()).filter(of_transfer).max();
    let message = format!("there is no destination of {transfer} on this machine");
    let newest = newest.or_refuse(ErrorCode::NotFound, message, advice(home, &name))?;
    Ok(newest.join("agent.log"))
}

/// A source writes to its own terminal, so its name gets a reason and not a log.
fn of_nobody(home: &Home, of: &str) -> anyhow::Error {
    let sources = find_sources(home.path()).unwrap_or_default();
    if let Some(source) = sources.iter().find(|source| source.record.name == of) {
        let message = format!("the agent '{of}' is a source: it writes to the standard error of its process");
        let hint = format!("look where process {} was started", source.record.pid);
        return refuse(ErrorCode::NotFound, message, hint);
    }
    let message = format!("'{of}' is neither a transfer nor one of serve, node, gateway, supervise");
    refuse(ErrorCode::InvalidArgument, message, "`handoff status` lists the transfers")
}

/// What there is instead.
fn advice(home: &Home, of: &str) -> String {
    if is_role(of) {
        return format!("it has not run in the background yet; {} has the logs", home.log().display());
    }
    format!(
        "a destination's log goes with its sandbox when the transfer ends: `handoff status {of}` has its events, \
         `handoff logs node` its sandbox's end"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::refusal::problem;

    #[test]
    fn what_has_no_log_is_refused_with_what_there_is_instead() {
        let directory = tempfile::tempdir().expect("a directory");
        let home = Home::find(Some(directory.path().to_owned())).expect("named");
        let refused = |of: &str| problem(&find(&home, of).expect_err("no log"));
        let odd = refused("everything");
        assert_eq!(odd.code, ErrorCode::InvalidArgument);
        let gone = refused("xfr_00000000000000000000000001");
        assert_eq!(gone.code, ErrorCode::NotFound);
        assert!(gone.hint.contains("handoff status xfr_00000000000000000000000001"), "{gone:?}");
        assert_eq!(find(&home, "serve").expect("a path"), home.log().join("supervise.log"));
    }

    #[test]
    fn a_terminal_is_not_told_what_to_do() {
        let line: String = "a\u{1b}[2Jb\tc".chars().map(plain).collect();
        assert_eq!(line, "a\u{fffd}[2Jb\tc");
    }
}
