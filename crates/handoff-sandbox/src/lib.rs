//! Sandbox drivers and the init that keeps the lease inside them.

mod cgroup;
mod client;
mod clock;
mod confine;
pub mod control;
mod driver;
mod init;
mod isolation;
mod launch;
pub mod lease;
mod lines;
mod name;
mod native;
mod proc;
mod spec;
mod sys;
mod teardown;

pub use cgroup::Usage;
pub use client::{InitClient, connect};
pub use clock::{boot_id, boot_ms};
pub use driver::Driver;
pub use isolation::{Facet, Fact, Isolation};
pub use name::{InvalidName, Name};
pub use native::Native;
pub use proc::{Process, SUBCOMMAND};
pub use spec::{DOOR_INSIDE, EXE_INSIDE, STATE_INSIDE, Spec, StartError, Started, WORKSPACE_INSIDE};
pub use teardown::{Absence, Leftovers};

/// What a binary does when it is called as `… sandbox-init …`: `arguments` are those after the subcommand.
/// Returns only the exit code: the process must do nothing else and have started no thread before.
pub fn run_init(arguments: &[String]) -> i32 {
    match arguments.first().map(String::as_str) {
        Some("launch") => launch::run(),
        Some("init") => init::run(),
        Some("nothing") => 0,
        Some(_) | None => 2,
    }
}
