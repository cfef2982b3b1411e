//! `handoff logs`: what an agent in a sandbox, or a background process, wrote.

use std::path::PathBuf;

use anyhow::{Context as _, Result};

use crate::cli::Logs;
use crate::config::Home;
use crate::output::Output;

/// Shows the log. An agent's lines are the agent's words: they are printed with control characters escaped.
pub async fn run(home: &Home, arguments: Logs, output: Output) -> Result<()> {
    let path = find(home, &arguments.of)?;
    let bytes = std::fs::read(&path).with_context(|| format!("there is no log at {}", path.display()))?;
    for line in String::from_utf8_lossy(&bytes).lines() {
        output.line(line.chars().map(plain).collect::<String>());
    }
    Ok(())
}

/// A terminal must not obey what a sandbox wrote.
fn plain(character: char) -> char {
    if character.is_control() && character != '\t' { '\u{fffd}' } else { character }
}

fn find(home: &Home, of: &str) -> Result<PathBuf> {
    if ["serve", "node", "gateway", "supervise"].contains(&of) {
        let name = if of == "serve" { "supervise" } else { of };
        return Ok(home.log().join(format!("{name}.log")));
    }
    let transfer: handoff_protocol::TransferId =
        of.parse().context("name a transfer, or one of serve, node, gateway, supervise")?;
    let places = std::fs::read_dir(home.node().join("destinations"))?;
    let newest = places
        .filter_map(|place| place.ok().map(|place| place.path()))
        .filter(|path| {
            path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&transfer.to_string()))
        })
        .max();
    Ok(newest.with_context(|| format!("no destination of {transfer} is on this machine"))?.join("agent.log"))
}
