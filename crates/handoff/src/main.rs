//! The one binary: every role is a subcommand.

#![allow(unreachable_pub, reason = "nothing leaves a binary; `pub` says what other modules use")]

mod cli;
mod command;
mod config;
mod output;
mod process;
mod refusal;
mod serving;

use std::io::IsTerminal as _;
use std::process::ExitCode;

use clap::Parser as _;

use crate::cli::{Cli, Verb};
use crate::config::Home;
use crate::output::Output;

fn main() -> ExitCode {
    // Inside a sandbox nothing else of the program may have happened yet: one thread, no runtime.
    let arguments: Vec<String> =
        std::env::args_os().skip(1).map(|word| word.to_string_lossy().into()).collect();
    if arguments.first().is_some_and(|word| word == handoff_sandbox::SUBCOMMAND) {
        let code = handoff_sandbox::run_init(&arguments[1..]);
        return ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX));
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) if error.use_stderr() => return output::misused(&error, &arguments),
        Err(help) => {
            let _ = help.print();
            return ExitCode::SUCCESS;
        }
    };
    start_logging();
    rustls::crypto::ring::default_provider().install_default().expect("nothing was installed before");
    let output = Output::new(cli.json);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let done = runtime.map_err(anyhow::Error::from).and_then(|runtime| {
        let done = runtime.block_on(run(cli, output));
        // A blocking read of a terminal or a pipe must not keep the process from ending.
        runtime.shutdown_timeout(std::time::Duration::from_secs(2));
        done
    });
    match done {
        Ok(code) => code,
        Err(error) => output::fail(output, &error),
    }
}

fn start_logging() {
    let filter = tracing_subscriber::EnvFilter::try_from_env("HANDOFF_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("warn,handoff=info"));
    let colored = std::io::stderr().is_terminal();
    let format = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(colored);
    format.with_writer(std::io::stderr).init();
}

async fn run(cli: Cli, output: Output) -> anyhow::Result<ExitCode> {
    let home = Home::find(cli.home)?;
    match cli.verb {
        Verb::Demo(demo) => return command::demo::run(demo, output).await,
        Verb::Move(arguments) => command::relocate::run(&home, arguments, output).await?,
        Verb::Plan(arguments) => command::plan::run(&home, arguments, output).await?,
        Verb::Status(arguments) => command::status::run(&home, arguments, output).await?,
        Verb::Resume(arguments) => command::resume::run(&home, arguments, output).await?,
        Verb::Doctor => return command::doctor::run(&home, output).await,
        Verb::Serve(arguments) => command::serve::run(&home, arguments, output).await?,
        Verb::Session(session) => command::session::run(&home, session, output).await?,
        Verb::Logs(arguments) => command::logs::run(&home, arguments, output).await?,
        Verb::Approve(arguments) => command::approve::run(&home, arguments, output).await?,
        Verb::Transfer(transfer) => command::transfer::run(&home, transfer, output).await?,
        Verb::Token(token) => command::token::run(&home, token, output).await?,
        Verb::Wake { session } => command::session::wake(&home, session, output).await?,
        Verb::Reap => command::reap::run(&home, output).await?,
        Verb::Agent(arguments) => return command::agent::run(&home, arguments, output).await,
        Verb::Node => command::node::run(&home).await?,
        Verb::Gateway => command::gateway::run(&home).await?,
        Verb::Supervise => command::supervise::run(&home).await?,
        Verb::ScriptedModel(arguments) => command::scripted_model::run(arguments, output).await?,
    }
    Ok(ExitCode::SUCCESS)
}
