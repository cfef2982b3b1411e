//! Says what isolation this host gives, by making a sandbox and removing it. Exits with 1 where something is
//! lost. It answers the hidden subcommand as the product's binary does, so the tests start sandboxes with it.

use std::io::Write;
use std::process::ExitCode;

use handoff_sandbox::{Driver, Native, SUBCOMMAND, run_init};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let Some((SUBCOMMAND, rest)) = arguments.split_first().map(|(first, rest)| (first.as_str(), rest)) {
        return ExitCode::from(u8::try_from(run_init(rest)).unwrap_or(u8::MAX));
    }
    let exe = std::env::current_exe().expect("a running program has a path");
    let facts = Native::new(exe).probe();
    let text = serde_json::to_string_pretty(&facts.words()).expect("plain data");
    let _ = writeln!(std::io::stdout(), "{text}");
    ExitCode::from(u8::from(!facts.is_whole()))
}
