//! `handoff scripted-model`: a model server that plays a script and says so.

use anyhow::{Context as _, Result};
use handoff_scripted_model::{Listen, Options, Script, ScriptedModel};
use tokio::signal::unix::{SignalKind, signal};

use crate::cli::ScriptedModel as Arguments;

/// Runs until it is told to end.
pub async fn run(arguments: Arguments) -> Result<()> {
    let script = match &arguments.script {
        Some(path) => {
            let text = std::fs::read_to_string(path)
                .with_context(|| format!("{} cannot be read", path.display()))?;
            Script::parse(&text)?
        }
        None => handoff_scripted_model::builtin("inventory").context("the built-in script")?,
    };
    let mut options = Options::of(script);
    options.listen = Listen::Tcp(arguments.listen);
    options.log = arguments.request_log;
    let mut terminate = signal(SignalKind::terminate())?;
    let running = ScriptedModel::start(options).await?;
    if let Some(path) = arguments.address_file {
        let temporary = path.with_extension("new");
        std::fs::write(&temporary, running.base_url())?;
        std::fs::rename(&temporary, &path)?;
    }
    tokio::select! {
        _ = terminate.recv() => {}
        _ = tokio::signal::ctrl_c() => {}
    }
    running.stop().await;
    Ok(())
}
