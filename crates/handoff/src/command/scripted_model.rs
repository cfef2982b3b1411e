//! `handoff scripted-model`: a model server that plays a script and says so.

use anyhow::{Context as _, Result};
use handoff_protocol::ErrorCode;
use handoff_scripted_model::{Listen, Options, Script, ScriptedModel};
use serde::Serialize;
use tokio::signal::unix::{SignalKind, signal};

use crate::cli::ScriptedModel as Arguments;
use crate::output::Output;
use crate::refusal::OrRefuse as _;

#[derive(Serialize)]
struct Document {
    url: String,
}

/// Runs until it is told to end.
pub async fn run(arguments: Arguments, output: Output) -> Result<()> {
    let script = match &arguments.script {
        Some(path) => {
            let (code, at) = (ErrorCode::InvalidArgument, path.display());
            let text = std::fs::read_to_string(path);
            let text = text.or_refuse(code, format_args!("the script {at} cannot be read"), "name a file")?;
            let hint = "correct it, or leave --script out for the built-in one";
            Script::parse(&text).or_refuse(code, format_args!("the script {at} is not one"), hint)?
        }
        None => handoff_scripted_model::builtin("inventory").context("the built-in script")?,
    };
    let mut options = Options::of(script);
    options.listen = Listen::Tcp(arguments.listen);
    options.log = arguments.request_log;
    let mut terminate = signal(SignalKind::terminate())?;
    let running = ScriptedModel::start(options).await?;
    output.line(running.base_url());
    if let Some(path) = arguments.address_file {
        let temporary = path.with_extension("new");
        std::fs::write(&temporary, running.base_url())?;
        std::fs::rename(&temporary, &path)?;
    }
    output.titled("handoff.scripted-model.v1", &Document { url: running.base_url() });
    tokio::select! {
        _ = terminate.recv() => {}
        _ = tokio::signal::ctrl_c() => {}
    }
    running.stop().await;
    Ok(())
}
