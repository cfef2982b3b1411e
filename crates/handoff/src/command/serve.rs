//! `handoff serve`.
use crate::{cli::Serve, config::Home};
use anyhow::Result;
pub async fn run(_home: &Home, _arguments: Serve) -> Result<()> {
    anyhow::bail!("not wired")
}
