//! `handoff agent`: the native loop, at a source or in a sandbox.

mod narrator;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use handoff_agent::control::Control;
use handoff_agent::{
    AgentOptions, Bearer, Endpoint, ExitReason, NewSession, Observer, Place, Reach, Register, new_session,
};
use handoff_protocol::document::{ModelInfo, SessionDocument};
use handoff_protocol::reference::{CredentialRef, Scheme};
use handoff_protocol::session_dir;
use handoff_protocol::{ErrorCode, SessionId};
use secrecy::SecretString;

use self::narrator::Narrator;
use crate::cli::Agent as Arguments;
use crate::config::{Home, make_private};
use crate::output::Output;
use crate::process::stop_signal;
use crate::refusal::{OrRefuse as _, refuse};
use crate::serving;

/// What a call with the wrong words is refused with.
const INVALID: ErrorCode = ErrorCode::InvalidArgument;
/// The variable that holds a sandbox's token for its gateway.
const TOKEN: &str = "HANDOFF_AGENT_TOKEN";

/// Runs until the session is retired or the process is told to end.
pub async fn run(home: &Home, arguments: Arguments, output: Output) -> Result<ExitCode> {
    let mut options =
        if arguments.wait_for_go { in_sandbox(&arguments)? } else { at_source(home, &arguments)? };
    options.stop = stop_signal()?;
    let mut said = Narrator::new(output);
    options.observer = Some(Observer::new(move |effect| {
        said.see(effect);
        true
    }));
    output.progress(begins(&arguments, &options));
    match handoff_agent::run(options).await? {
        ExitReason::Retired => output.progress("the session runs elsewhere; this copy is retired"),
        ExitReason::Stopped => output.progress("stopped; the same command goes on where it was"),
        ExitReason::CutOff => bail!("cut off"),
    }
    Ok(ExitCode::SUCCESS)
}

/// The first line: who works where, and whom it asks.
fn begins(arguments: &Arguments, options: &AgentOptions) -> String {
    let workspace = options.workspace.display();
    match &options.place {
        Place::Source { register } => {
            let name = register.as_ref().map_or("agent", |register| register.name.as_str());
            let url = arguments.model_url.as_deref().unwrap_or("no model");
            format!("agent '{name}' works in {workspace} with {url}; move it with `handoff move {name}`")
        }
        Place::Destination => format!("loaded in {workspace}; it waits until it may go"),
    }
}

fn in_sandbox(arguments: &Arguments) -> Result<AgentOptions> {
    let state = arguments.state.clone().context("a sandbox's agent is told its session directory")?;
    let door = arguments.door.clone().context("a sandbox's agent is told its door")?;
    let control =
        handoff_sandbox::control_connection().context("a sandbox's agent has a control connection")?;
    let upstream = document(&state)?.model.map_or_else(|| "none".to_owned(), |model| model.upstream);
    let reach = Reach::Socket { path: door.join("gateway.sock"), prefix: format!("/{upstream}/v1") };
    let mut endpoint = Endpoint::new(reach);
    endpoint.bearer = Bearer::Token(SecretString::from(std::env::var(TOKEN).unwrap_or_default()));
    let control = Control::Inherited(control);
    Ok(AgentOptions::new(state, &arguments.workspace, endpoint, control, Place::Destination))
}

fn document(state: &Path) -> Result<SessionDocument> {
    let path = state.join(session_dir::SESSION);
    let bytes = std::fs::read(&path).with_context(|| format!("{} cannot be read", path.display()))?;
    Ok(serde_json::from_slice(&bytes)?)
}

fn at_source(home: &Home, arguments: &Arguments) -> Result<AgentOptions> {
    home.prepare()?;
    let workspace = arguments.workspace.canonicalize();
    let workspace = workspace.or_refuse(
        INVALID,
        format_args!("the workspace {}", arguments.workspace.display()),
        "name a folder with --workspace",
    )?;
    let name = arguments.name.clone().unwrap_or_else(|| name_of(&workspace));
    let state = arguments.state.clone().unwrap_or_else(|| home.path().join("sessions").join(&name));
    let endpoint = endpoint(arguments)?;
    if !state.join(session_dir::MESSAGES).exists() {
        begin(arguments, &state, &workspace)?;
    }
    let socket = handoff_agent::registry::control_socket(home.path(), &name)?;
    let register = Some(Register { home: home.path().to_owned(), name });
    let place = Place::Source { register };
    Ok(AgentOptions::new(state, workspace, endpoint, Control::Socket(socket), place))
}

/// A new session in its directory.
fn begin(arguments: &Arguments, state: &Path, workspace: &Path) -> Result<()> {
    let hint = "say what it is to do with --task TEXT; a --state that holds a session goes on with that";
    let task = arguments.task.as_deref().or_refuse(INVALID, "a new session has no task", hint)?;
    let prompt = arguments.system_prompt.as_ref();
    let prompt: Option<String> = prompt
        .map(|path| {
            let message = format!("the system prompt {} cannot be read", path.display());
            std::fs::read_to_string(path).or_refuse(INVALID, message, "name a file with --system-prompt")
        })
        .transpose()?;
    let model = ModelInfo {
        name: arguments.model.clone(),
        wire: "openai-chat".to_owned(),
        upstream: arguments.upstream.clone(),
        cred_ref: arguments.credential.clone(),
        max_tokens: arguments.max_tokens,
    };
    make_private(state)?;
    let host = serving::host_name();
    let new = NewSession {
        session_id: SessionId::from(uuid::Uuid::now_v7()),
        system_prompt: prompt.as_deref(),
        first_user_message: Some(task),
        model: Some(model),
        mcp_config: &[],
        source_host: &host,
        workspace,
    };
    Ok(new_session(state, &new)?)
}

fn endpoint(arguments: &Arguments) -> Result<Endpoint> {
    let hint = "name an OpenAI-compatible endpoint with --model-url URL, up to and without /chat/completions";
    let url = arguments.model_url.clone().or_refuse(INVALID, "the agent has no model to call", hint)?;
    let mut endpoint = Endpoint::new(Reach::Url(url));
    endpoint.bearer = arguments.credential.as_ref().map(bearer).transpose()?.unwrap_or(Bearer::None);
    Ok(endpoint)
}

/// At a source the reference resolves in this process's own environment or files.
fn bearer(reference: &CredentialRef) -> Result<Bearer> {
    match reference.scheme() {
        Scheme::Env => Ok(Bearer::Env(reference.path().to_owned())),
        Scheme::File => Ok(Bearer::File(PathBuf::from("/").join(reference.path()))),
        Scheme::Vault => {
            let message = format!("a source cannot read its key from {reference}");
            Err(refuse(INVALID, message, "name env://STORE/NAME or file://STORE/PATH with --credential"))
        }
    }
}

/// The folder's name, as far as a name may have its characters.
fn name_of(workspace: &Path) -> String {
    let name = workspace.file_name().map(|name| name.to_string_lossy().to_lowercase()).unwrap_or_default();
    let allowed = |character: &char| character.is_ascii_alphanumeric() || "-_".contains(*character);
    let name: String = name.chars().filter(allowed).take(48).collect();
    if name.is_empty() { "agent".to_owned() } else { name }
}
