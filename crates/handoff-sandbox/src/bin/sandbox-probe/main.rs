//! Says what isolation this host gives, by making a sandbox and removing it. Exits with 1 where something is
//! lost.
//!
//! It answers the hidden subcommand as the product's binary does, so the tests start sandboxes with it; and
//! from inside of one, `attempts` tries to get out (`against-parent` where there are no namespaces) and `hold`, `fork`, `spin`, `vfork` use up what a tier limits.

mod attempts;
mod loads;

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use handoff_protocol::{IncarnationId, Tier};
use handoff_sandbox::{Driver, Native, SUBCOMMAND, Spec, run_init};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let code = match &words[..] {
        [SUBCOMMAND, ..] => run_init(&arguments[1..]),
        ["attempts", rest @ ..] => attempts::run(rest),
        ["against-parent"] => attempts::against_parent(),
        ["hold", mebibytes] => loads::hold(number(mebibytes)),
        ["fork", most] => loads::fork(number(most)),
        ["spin", ms] => loads::spin(number(ms)),
        ["vfork"] => loads::vfork(),
        ["start", name, dir] => start(name, Path::new(dir)),
        _ => probe(),
    };
    ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX))
}

fn number(word: &str) -> u64 {
    word.parse().expect("a number")
}

fn probe() -> i32 {
    let exe = std::env::current_exe().expect("a running program has a path");
    let facts = Native::new(exe).probe();
    let text = serde_json::to_string_pretty(&facts.words()).expect("plain data");
    let _ = writeln!(std::io::stdout(), "{text}");
    i32::from(!facts.is_whole())
}

/// Starts a sandbox in which nothing happens, and ends: it has to outlive who started it.
fn start(name: &str, dir: &Path) -> i32 {
    let exe = std::env::current_exe().expect("a running program has a path");
    let name = name.parse().expect("a name");
    let tier = Tier::defaults().swap_remove(0);
    let mut spec = Spec::new(name, dir, &exe, tier, IncarnationId::from_u128(1));
    spec.command = ["/bin/sh", "-c", "while :; do sleep 0.05; echo x >> /workspace/beats; done"]
        .map(str::to_owned)
        .to_vec();
    spec.allow_degraded = true;
    match Native::new(exe).start(&spec) {
        Ok(started) => {
            let _ = writeln!(std::io::stdout(), "{}", started.init.pid);
            0
        }
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "{error}");
            1
        }
    }
}
