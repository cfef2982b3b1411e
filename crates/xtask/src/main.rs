//! Repository rules and test tiers as code. `cargo xtask tidy` checks what clippy cannot see, `cargo xtask
//! spec` holds the specification against the code, `cargo xtask verify` runs the suites of `scripts/test`.
// A command line tool speaks on its standard output.
#![allow(clippy::print_stdout, clippy::print_stderr)]

mod demo;
mod git;
mod spec;
mod tidy;
mod verify;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Repository rules and test tiers as code")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Check the repository's own rules: sizes, rooms, leftovers, SQL guards, links
    Tidy,
    /// Hold docs/protocol.md against the code
    Spec(spec::Options),
    /// Check that every promise in the output of `handoff demo --json` was kept
    CheckDemo {
        /// The file that holds the output
        file: PathBuf,
    },
    /// Run test suites; `scripts/test` is the way in
    Verify(verify::Options),
}

fn main() -> ExitCode {
    let root = root();
    let outcome = match Arguments::parse().task {
        Task::Tidy => tidy::run(&root),
        Task::Spec(options) => spec::run(&root, &options),
        Task::CheckDemo { file } => demo::run(&file),
        Task::Verify(options) => verify::run(&root, &options),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The repository's root: two folders above this crate, wherever the clone was built.
fn root() -> PathBuf {
    let crate_folder = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    let above = |path: &Path| path.parent().map(Path::to_path_buf);
    above(&crate_folder)
        .and_then(|crates| above(&crates))
        .expect("the crate lies in crates/ of the repository")
}
