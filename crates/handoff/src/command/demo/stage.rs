//! What the demo sets up and strikes again: a state directory with short times, a model server, a source agent.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use handoff_gateway::Policy as GatewayPolicy;
use handoff_protocol::money::PicoUsd;
use handoff_protocol::{ErrorCode, Tier, Timestamp, TransferId};
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep};

use super::document::Leftovers;
use super::leftovers;
use crate::cli::{Demo, ModelChoice};
use crate::command::relocate::SourceLink;
use crate::command::serve;
use crate::config::{Home, NodeSettings, PolicySettings, Settings};
use crate::output::Output;
use crate::process::{self, Needs};
use crate::refusal::{OrRefuse as _, refuse};

/// How long anything of the demo may take to start.
const START_WITHIN: Duration = Duration::from_secs(30);

/// How long a control plane that is kept stays with nothing to do: a year.
const KEPT_MS: u64 = 365 * 24 * 3_600_000;

/// The unit of compute that is reserved and charged.
pub(super) const TICK_MS: u64 = 1_000;
/// What a million tokens of the scripted model's input and of its output cost, in US dollars.
pub(super) const SCRIPTED_PRICES: (u64, u64) = (1, 4);

/// Everything that the demo made.
pub(super) struct DemoStage {
    directory: Option<tempfile::TempDir>,
    root: PathBuf,
    /// The demo's own state directory.
    pub(super) home: Home,
    model: Option<Child>,
    agent: Child,
    agent_pid: u32,
    scripted: bool,
    keep: bool,
}

impl DemoStage {
    /// Makes the directory and starts model and agent.
    pub(super) async fn set(arguments: &Demo, output: Output) -> Result<Self> {
        let directory = tempfile::Builder::new().prefix("handoff-demo-").tempdir()?;
        let root = directory.path().canonicalize()?;
        let home = Home::find(Some(root.join("home")))?;
        home.prepare()?;
        std::fs::write(home.settings(), toml::to_string(&settings(arguments.keep))?)?;
        let scripted = arguments.model.model_url.is_none();
        let model = if scripted { Some(start_model(&home, &root, arguments.keep).await?) } else { None };
        let policy = policy(&arguments.model, &root)?;
        let (code, what) = (ErrorCode::InvalidArgument, "the named model cannot be used");
        GatewayPolicy::parse(&policy).or_refuse(code, what, "check --model-url and the prices")?;
        std::fs::write(home.gateway_policy(), policy)?;
        let agent = start_agent(&home, &root, &arguments.model)?;
        let agent_pid = agent.id().context("the agent ended at once")?;
        output.progress(format_args!("handoff demo   everything happens in {}", root.display()));
        let keep = arguments.keep;
        Ok(Self { directory: Some(directory), root, home, model, agent, agent_pid, scripted, keep })
    }

    /// What answers the agent's questions.
    pub(super) fn model_line(&self) -> &'static str {
        if self.scripted {
            "model        scripted: the replies come from a script on this machine, not from a model"
        } else {
            "model        the one that was named; what it costs is real"
        }
    }

    pub(super) fn is_scripted(&self) -> bool {
        self.scripted
    }

    pub(super) fn source_pid(&self) -> u32 {
        self.agent_pid
    }

    /// The scripted model's process, while it runs.
    pub(super) fn model_pid(&self) -> Option<u32> {
        self.model.as_ref().and_then(Child::id)
    }

    /// Where everything is.
    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    pub(super) fn request_log(&self) -> PathBuf {
        self.root.join("requests.jsonl")
    }

    pub(super) fn source_state(&self) -> PathBuf {
        self.root.join("source")
    }

    pub(super) fn source_workspace(&self) -> PathBuf {
        self.root.join("workspace")
    }

    /// Waits until the source has taken so many steps, and leaves it working.
    pub(super) async fn wait_for_agent(&mut self, steps: u64) -> Result<SourceLink> {
        let deadline = Instant::now() + START_WITHIN;
        loop {
            if let Some(source) = handoff_agent::registry::find_sources(self.home.path())?.first()
                && let Some(socket) = &source.record.control_socket
                && let Ok(mut link) = SourceLink::connect(socket).await
                && link.status().await.is_ok_and(|status| status.step >= steps)
            {
                return Ok(link);
            }
            if let Some(status) = self.agent.try_wait()? {
                bail!("the agent ended: {status}; see {}", self.root.join("agent.log").display());
            }
            if Instant::now() > deadline {
                let message =
                    format!("the agent did not take {steps} steps within {} s", START_WITHIN.as_secs());
                let log = self.root.join("agent.log");
                let text = std::fs::read_to_string(&log).unwrap_or_default();
                let last = text.lines().rev().find(|line| line.contains("in vain")).unwrap_or_default();
                let hint = format!("see {}: {}", log.display(), last.trim());
                return Err(refuse(ErrorCode::MoveBlocked, message, hint.trim_end_matches([':', ' '])));
            }
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// The time at which the source process ended.
    pub(super) async fn wait_for_source_end(&mut self) -> Result<Timestamp> {
        let ended = tokio::time::timeout(START_WITHIN, self.agent.wait()).await;
        ended.context("the source did not end after it was retired")??;
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?;
        Ok(Timestamp::from_unix_ms(i64::try_from(now.as_millis())?))
    }

    /// Stops what was started, unless it is kept, and looks for what is left.
    pub(super) async fn strike(&mut self, transfer: TransferId) -> Result<Leftovers> {
        if self.keep {
            self.directory.take().map(tempfile::TempDir::keep);
            return leftovers::of_transfer(&self.home, transfer);
        }
        self.stop_processes().await?;
        let mut found = leftovers::of_transfer(&self.home, transfer)?;
        found.processes.extend(leftovers::processes_of(&self.root)?);
        if let Some(directory) = self.directory.take()
            && let Err(error) = directory.close()
        {
            found.files.push(format!("{}: {error}", self.root.display()));
        }
        Ok(found)
    }

    async fn stop_processes(&mut self) -> Result<()> {
        serve::stop(&self.home).await?;
        if let Some(model) = &mut self.model {
            model.kill().await?;
        }
        Ok(())
    }

    /// After a failure nothing is removed.
    pub(super) fn keep_for_inspection(&mut self) -> PathBuf {
        self.directory.take().map(tempfile::TempDir::keep);
        self.root.clone()
    }
}

/// Short times, so that the whole life of a transfer fits into seconds, and a tier whose seconds are dear.
fn settings(keep: bool) -> Settings {
    let policy = PolicySettings {
        grace_ms: Some(2_000),
        tick_ms: Some(TICK_MS),
        lease_ms: Some(9_000),
        renew_ms: Some(1_000),
        tiers: vec![tier()],
        ..PolicySettings::default()
    };
    let node = NodeSettings { allow_degraded: true, checkpoint_every_ms: Some(5_000) };
    // What is kept stays until it is ended.
    let idle_exit_ms = keep.then_some(KEPT_MS);
    Settings { policy, node, idle_exit_ms, ..Settings::default() }
}

/// A tier whose seconds are dear.
pub(super) fn tier() -> Tier {
    let mut tier = Tier::defaults().swap_remove(0);
    tier.run_price = PicoUsd::from_pico(2_000_000);
    tier.frozen_price = PicoUsd::from_pico(200_000);
    tier
}

async fn start_model(home: &Home, root: &Path, keep: bool) -> Result<Child> {
    let address = root.join("model-address");
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("scripted-model").arg("--address-file").arg(&address);
    command.arg("--request-log").arg(root.join("requests.jsonl"));
    process::restrict(command.as_std_mut(), Needs::Places);
    command.env("HANDOFF_HOME", home.path()).kill_on_drop(!keep);
    let log = std::fs::File::create(root.join("model.log"))?;
    let mut child = command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).spawn()?;
    let deadline = Instant::now() + START_WITHIN;
    while !address.exists() {
        if let Some(status) = child.try_wait()? {
            bail!("the scripted model ended: {status}");
        }
        if Instant::now() > deadline {
            bail!("the scripted model did not start");
        }
        sleep(Duration::from_millis(5)).await;
    }
    Ok(child)
}

/// The operator's policy: one upstream, one price.
fn policy(choice: &ModelChoice, root: &Path) -> Result<String> {
    let Some(url) = &choice.model_url else {
        let address = std::fs::read_to_string(root.join("model-address"))?;
        let base = address.trim_end_matches("/v1");
        let (input, output) = SCRIPTED_PRICES;
        return Ok(GatewayPolicy::scripted_text(base, "scripted", &input.to_string(), &output.to_string()));
    };
    let prices = choice.price_input.as_ref().zip(choice.price_output.as_ref());
    let missing = "a model that is not scripted needs a name and its prices";
    let hint = "give --model, --price-input and --price-output, per million tokens in US dollars";
    let (input, output) = prices.or_refuse(ErrorCode::InvalidArgument, missing, hint)?;
    let model = choice.model.as_deref().or_refuse(ErrorCode::InvalidArgument, missing, hint)?;
    let mut text = toml::Table::new();
    let mut upstream = toml::Table::new();
    upstream.insert("name".into(), "model".into());
    upstream.insert("base_url".into(), url.trim_end_matches('/').trim_end_matches("/v1").into());
    upstream.insert("wire".into(), "openai-chat".into());
    upstream.insert("allow_plain_http".into(), url.starts_with("http://127.0.0.1").into());
    if let Some(reference) = &choice.credential {
        let mut credential = toml::Table::new();
        credential.insert("ref".into(), reference.as_str().into());
        credential.insert("header".into(), "authorization".into());
        credential.insert("scheme".into(), "Bearer".into());
        upstream.insert("credential".into(), credential.into());
        let mut store = toml::Table::new();
        store.insert("kind".into(), "env".into());
        store.insert("allow".into(), vec![toml::Value::from(reference.path())].into());
        let mut stores = toml::Table::new();
        stores.insert(reference.store().into(), store.into());
        text.insert("stores".into(), stores.into());
    }
    let mut price = toml::Table::new();
    price.insert("upstream".into(), "model".into());
    price.insert("model".into(), model.into());
    price.insert("input".into(), input.to_string().into());
    price.insert("output".into(), output.to_string().into());
    text.insert("upstream".into(), vec![toml::Value::from(upstream)].into());
    text.insert("price".into(), vec![toml::Value::from(price)].into());
    Ok(toml::to_string(&text)?)
}

fn start_agent(home: &Home, root: &Path, choice: &ModelChoice) -> Result<Child> {
    let (workspace, state) = (root.join("workspace"), root.join("source"));
    std::fs::create_dir_all(&workspace)?;
    let script = handoff_scripted_model::builtin("inventory").context("the built-in script")?;
    let prompt = root.join("system-prompt.txt");
    std::fs::write(&prompt, script.system_prompt.as_deref().unwrap_or_default())?;
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("agent").arg("--name").arg("inventory").arg("--workspace").arg(&workspace);
    command.arg("--state").arg(&state).arg("--system-prompt").arg(&prompt);
    command.arg("--task").arg(script.task.as_deref().unwrap_or_default()).arg("--max-tokens").arg("400");
    match &choice.model_url {
        None => {
            let address = std::fs::read_to_string(root.join("model-address"))?;
            command.arg("--model-url").arg(address).arg("--upstream").arg("scripted");
        }
        Some(url) => {
            command.arg("--model-url").arg(url).arg("--upstream").arg("model");
            command.arg("--model").arg(choice.model.as_deref().unwrap_or_default());
            if let Some(reference) = &choice.credential {
                command.arg("--credential").arg(reference.as_str());
            }
        }
    }
    process::restrict(command.as_std_mut(), Needs::Credentials);
    command.env("HANDOFF_HOME", home.path()).kill_on_drop(true);
    let log = std::fs::File::create(root.join("agent.log"))?;
    let child = command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).spawn();
    child.context("the agent cannot be started")
}
