//! The command line: the everyday verbs, and the protocol's commands under their groups.

use std::path::PathBuf;

mod transfer;

use clap::{Args, Parser, Subcommand};
use handoff_protocol::request::Operation;
use handoff_protocol::{ApprovalId, Digest, NanoUsd, NodeId, SessionId, TierName, TransferId};

pub use self::transfer::Transfer;

/// What the list of everyday verbs does not say.
const AFTER_HELP: &str = "\
More commands (`handoff help COMMAND` says what each takes):
  agent      Run an agent here that can be moved
  transfer   The protocol's commands, one by one: snapshot, provision, push, …
  token      Transfer tokens: issue
  wake       Wake a resting session
  reap       One round of the reaper, now
  node, gateway, supervise, scripted-model
             The processes in the background, one by one

Environment:
  HANDOFF_HOME            Where state lives; --home goes before it
  HANDOFF_LOG             How much is written to standard error, such as info
  TRANSFER_TOKEN_SECRET   Signs transfer tokens; without it a secret is made and kept

Exit codes:
  0 done   1 a promise was broken   2 usage or configuration   3 refused
  4 not now: the same call may succeed later   5 not allowed";

/// Moves a running AI-agent session from one host to another and meters what it costs to keep running.
#[derive(Debug, Parser)]
#[command(name = "handoff", version, propagate_version = true, after_help = AFTER_HELP)]
pub struct Cli {
    /// Where state lives; else $HANDOFF_HOME, else the data directory.
    #[arg(long, global = true, value_name = "DIR")]
    pub home: Option<PathBuf>,
    /// One JSON document on standard output instead of text.
    #[arg(long, global = true)]
    pub json: bool,
    /// What to do.
    #[command(subcommand)]
    pub verb: Verb,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Watch a session move, run out of budget and wind down, on this machine, with a scripted model.
    Demo(Demo),
    /// Move the session of a running agent into a sandbox; it works on until the last moment.
    Move(Move),
    /// Say what a move would carry, leave behind and cost, and change nothing.
    Plan(Plan),
    /// Show transfers, or one of them.
    Status(Status),
    /// Run a session again from its last snapshot, as a new transfer.
    Resume(Resume),
    /// Check this machine: isolation, limits, store, model upstreams.
    Doctor,
    /// Run the control plane, the reaper and this machine's node.
    Serve(Serve),
    /// Sessions: list, show, inspect a snapshot.
    #[command(subcommand)]
    Session(Session),
    /// Show what the agent of a transfer, or a background process, wrote.
    Logs(Logs),
    /// Approve, or refuse, what waits for a person.
    Approve(Approve),
    /// The protocol's commands, one by one.
    #[command(subcommand, hide = true)]
    Transfer(Transfer),
    /// Transfer tokens.
    #[command(subcommand, hide = true)]
    Token(Token),
    /// Wake a resting session.
    #[command(hide = true)]
    Wake {
        /// Which session.
        session: SessionId,
    },
    /// One round of the reaper, now.
    #[command(hide = true)]
    Reap,
    /// Run the native agent loop.
    #[command(hide = true)]
    Agent(Agent),
    /// Run a node.
    #[command(hide = true)]
    Node,
    /// Run a node's gateway.
    #[command(hide = true)]
    Gateway,
    /// Keep the control plane running.
    #[command(hide = true)]
    Supervise,
    /// Run a model server that plays a script and says so.
    #[command(hide = true)]
    ScriptedModel(ScriptedModel),
}

/// `handoff demo`
#[derive(Debug, Args)]
pub struct Demo {
    /// Leave the control plane running when the demo ends.
    #[arg(long)]
    pub keep: bool,
    #[command(flatten)]
    pub model: ModelChoice,
}

/// A model other than the scripted one.
#[derive(Debug, Clone, Default, Args)]
pub struct ModelChoice {
    /// An OpenAI-compatible endpoint, up to and without `/chat/completions`.
    #[arg(long, value_name = "URL")]
    pub model_url: Option<String>,
    /// The provider's name for the model.
    #[arg(long, value_name = "NAME", requires = "model_url")]
    pub model: Option<String>,
    /// Where its key can be found: env://STORE/NAME or file://STORE/PATH.
    #[arg(long, value_name = "REF", requires = "model_url")]
    pub credential: Option<handoff_protocol::reference::CredentialRef>,
    /// What a million input tokens of it cost, in US dollars.
    #[arg(long, value_name = "USD", requires = "model_url")]
    pub price_input: Option<NanoUsd>,
    /// What a million output tokens of it cost, in US dollars.
    #[arg(long, value_name = "USD", requires = "model_url")]
    pub price_output: Option<NanoUsd>,
}

/// Which source, and what for.
#[derive(Debug, Clone, Args)]
pub struct Source {
    /// The agent's name, session id or folder; needed when several are running.
    #[arg(value_name = "AGENT")]
    pub agent: Option<String>,
    /// The size of the destination.
    #[arg(long, default_value = "sandbox-small", value_parser = tier)]
    pub tier: TierName,
    /// What it may spend in all, in US dollars.
    #[arg(long, default_value = "5.00", value_name = "USD")]
    pub budget: NanoUsd,
    /// A node; else the one with most room.
    #[arg(long)]
    pub node: Option<NodeId>,
    /// Go on although this host cannot enforce everything; what is lost is listed.
    #[arg(long)]
    pub allow_degraded: bool,
}

/// `handoff move`
#[derive(Debug, Args)]
pub struct Move {
    #[command(flatten)]
    pub source: Source,
    /// Finish the move that was interrupted; it needs no AGENT.
    #[arg(long)]
    pub resume: bool,
}

/// `handoff plan`
#[derive(Debug, Args)]
pub struct Plan {
    #[command(flatten)]
    pub source: Source,
}

/// `handoff status`
#[derive(Debug, Args)]
pub struct Status {
    /// One transfer; else a list.
    pub transfer: Option<TransferId>,
}

/// `handoff resume`
#[derive(Debug, Args)]
pub struct Resume {
    /// Which session.
    pub session: SessionId,
    /// What it may spend in all, in US dollars.
    #[arg(long, value_name = "USD")]
    pub budget: NanoUsd,
    /// The size of the destination.
    #[arg(long, default_value = "sandbox-small", value_parser = tier)]
    pub tier: TierName,
    /// Give up a source that cannot be stopped: what it still does is no longer the session.
    #[arg(long)]
    pub abandon_source: bool,
}

/// `handoff serve`
#[derive(Debug, Args)]
pub struct Serve {
    /// Started in the background: ends by itself when there is nothing to do.
    #[arg(long, hide = true)]
    pub managed: bool,
    /// End the control plane of this machine, its node and its gateway; sandboxes stay, and are adopted by the next.
    #[arg(long, conflicts_with = "managed")]
    pub stop: bool,
}

/// `handoff session …`
#[derive(Debug, Subcommand)]
pub enum Session {
    /// All sessions, newest first.
    List,
    /// One session.
    Show {
        /// Which.
        session: SessionId,
    },
    /// What a snapshot holds, without its content.
    Inspect {
        /// The snapshot.
        snapshot: Digest,
    },
}

/// `handoff logs`
#[derive(Debug, Args)]
pub struct Logs {
    /// A transfer whose destination is on this machine, or one of serve, node, gateway, supervise.
    pub of: String,
}

/// `handoff approve`
#[derive(Debug, Args)]
pub struct Approve {
    /// Which; else list what waits.
    pub approval: Option<ApprovalId>,
    /// Refuse it.
    #[arg(long, requires = "approval")]
    pub refuse: bool,
}

/// `handoff token …`
#[derive(Debug, Subcommand)]
pub enum Token {
    /// Mint a token for one transfer and one operation. It is shown once.
    Issue {
        /// For which transfer.
        transfer: TransferId,
        /// provision_runtime or activate.
        #[arg(value_parser = operation)]
        operation: Operation,
        /// Seconds it is good for.
        #[arg(long, value_name = "SECONDS")]
        ttl: Option<u64>,
        /// The most that provision may ask for.
        #[arg(long, value_name = "USD")]
        max_budget: Option<NanoUsd>,
        /// The only tier that provision may ask for.
        #[arg(long, value_parser = tier)]
        tier: Option<TierName>,
    },
}

/// `handoff agent`
#[derive(Debug, Args)]
pub struct Agent {
    /// A name for `handoff move`; else the workspace folder's.
    #[arg(long)]
    pub name: Option<String>,
    /// The folder it works in.
    #[arg(long, default_value = ".")]
    pub workspace: PathBuf,
    /// Its session directory; else below the state directory.
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
    /// The first message of a new session.
    #[arg(long, value_name = "TEXT")]
    pub task: Option<String>,
    /// A file with the system prompt of a new session.
    #[arg(long, value_name = "FILE")]
    pub system_prompt: Option<PathBuf>,
    /// An OpenAI-compatible endpoint, up to and without `/chat/completions`.
    #[arg(long, value_name = "URL")]
    pub model_url: Option<String>,
    /// The provider's name for the model.
    #[arg(long, default_value = "scripted")]
    pub model: String,
    /// The operator's name for the model's upstream, as the destination's gateway knows it.
    #[arg(long, default_value = "scripted")]
    pub upstream: String,
    /// Where its key can be found: env://STORE/NAME or file://STORE/PATH.
    #[arg(long, value_name = "REF")]
    pub credential: Option<handoff_protocol::reference::CredentialRef>,
    /// The most tokens of one answer.
    #[arg(long, value_name = "N")]
    pub max_tokens: Option<u64>,
    /// Inside a sandbox: load, and wait until told to go.
    #[arg(long, hide = true)]
    pub wait_for_go: bool,
    /// Inside a sandbox: the gateway's socket.
    #[arg(long, hide = true, value_name = "PATH")]
    pub door: Option<PathBuf>,
}

/// `handoff scripted-model`
#[derive(Debug, Args)]
pub struct ScriptedModel {
    /// Where to listen.
    #[arg(long, default_value = "127.0.0.1:0")]
    pub listen: std::net::SocketAddr,
    /// A script; else the built-in one.
    #[arg(long, value_name = "FILE")]
    pub script: Option<PathBuf>,
    /// A file that gets one JSON line per request.
    #[arg(long, value_name = "FILE")]
    pub request_log: Option<PathBuf>,
    /// A file that gets the address once it listens.
    #[arg(long, value_name = "FILE")]
    pub address_file: Option<PathBuf>,
}

fn tier(name: &str) -> Result<TierName, String> {
    if name.is_empty() || name.len() > 64 { Err("a tier has a name".to_owned()) } else { Ok(name.into()) }
}

fn operation(word: &str) -> Result<Operation, String> {
    [Operation::ProvisionRuntime, Operation::Activate]
        .into_iter()
        .find(|operation| operation.as_str() == word)
        .ok_or_else(|| "provision_runtime or activate".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_help_shows_the_everyday_verbs_and_three_more() {
        let command = Cli::command();
        let shown: Vec<&str> = command
            .get_subcommands()
            .filter(|verb| !verb.is_hide_set())
            .map(|verb| verb.get_name())
            .collect();
        let expected =
            ["demo", "move", "plan", "status", "resume", "doctor", "serve", "session", "logs", "approve"];
        assert_eq!(shown, expected);
    }

    /// H-97
    #[test]
    fn a_token_is_never_an_argument() {
        for verb in Cli::command().get_subcommands() {
            for inner in verb.get_subcommands().chain([verb]) {
                assert!(
                    inner.get_arguments().all(|argument| argument.get_id() != "token"),
                    "{}",
                    inner.get_name()
                );
            }
        }
    }
}
