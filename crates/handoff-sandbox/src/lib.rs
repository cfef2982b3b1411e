//! Sandbox drivers, and the init that keeps the lease inside them.
//!
//! A sandbox is one destination's place on a host: a root file system made from a list, namespaces of its
//! own, the tier's limits, no network, and one door, the gateway's Unix socket. It outlives the node that
//! made it. Its first process, the init, holds the lease: at two thirds of it the payload is frozen, whether
//! or not anybody is there to say so.
//!
//! ```text
//! node ── start(&Spec) ──► launcher ──► first process of the namespaces ──► init ──► agent
//!           plan on stdin   binds init.sock,   builds the root,           keeps the lease,  fd 3
//!           reports ◄────── opens cgroups      gives everything up        reaps, freezes
//! node ◄─ init.sock, one JSON object per line ([`control`]) ────────────────┘
//! ```
//!
//! Everything before the agent runs in processes that were executed for it and have one thread; the node,
//! which has many, never forks by itself. What is lost of the isolation is a list of facts ([`Isolation`]),
//! found by setting and reading back; a start that loses any is refused unless its [`Spec`] allows it.
//!
//! # Where things are
//!
//! | to see | look into |
//! |---|---|
//! | how long the payload may run, and the arithmetic of it | `lease.rs` |
//! | what node and init say to each other | `control.rs`, `client.rs` |
//! | the order of a start | `native.rs`, `launch/mod.rs`, `launch/inside.rs`, `init/mod.rs` |
//! | what can be seen inside | `launch/root.rs` |
//! | who the payload is on the host | `launch/identity.rs` |
//! | which system calls are refused | `confine/seccomp.rs` |
//! | limits and freezers | `cgroup/` |
//! | what happens without namespaces | `launch/bare.rs`, `init/reach.rs`, `strays.rs` |
//! | how everything is found again after a restart | `name.rs`, `teardown.rs` |
//! | `unsafe` | `sys.rs`, and three forks in `launch/` |
//!
//! # How to add a driver
//!
//! 1. Implement [`Driver`] in a file of its own, beside `native.rs`. It remembers nothing: every method finds
//!    what it needs by the sandbox's [`Name`], so that a node that has just started can adopt and tear down.
//! 2. Make the init ([`run_init`] with `init`, or your own) the first process inside, with the destination's
//!    `init.sock` bound on the host's side, and speak [`control`] over it word for word. The lease is kept
//!    inside or not at all: a node that is away cannot freeze.
//! 3. Give the agent its end of the control connection as descriptor 3, [`WORKSPACE_INSIDE`] and
//!    [`STATE_INSIDE`] to write to, [`DOOR_INSIDE`] to read (a directory: a restarted gateway binds a new
//!    socket in it), and [`EXE_INSIDE`].
//! 4. Answer `probe` by making a sandbox, looking, and removing it. A limit that is not read back is lost.
//! 5. Return [`Absence`] only after a search has found nothing; the ledger closes on it.
//! 6. Let the stories in `tests/sandbox` run over it as well: they know [`Driver`] and nothing below.
//!
//! # What a driver must not know
//!
//! | it gets | it never sees |
//! |---|---|
//! | a name, a directory, a size, a command, an environment | sessions, transfers, statuses, epochs |
//! | a lease's length and first sending, through the init | who granted it, and why |
//! | the directory of the gateway's socket | the gateway, prices, budgets, credentials |
//! | the agent's lines, as lines | what they mean, except that `go` needs a lease |
//! | its own cgroups' counters | what use costs |
//!
//! It has no network client, no database, no clock but CLOCK_BOOTTIME, and no runtime: its methods block.

mod cgroup;
mod client;
mod clock;
mod confine;
pub mod control;
mod driver;
mod inherited;
mod init;
mod isolation;
mod launch;
pub mod lease;
mod lines;
mod name;
mod native;
mod probe;
mod proc;
mod spec;
mod strays;
mod sys;
mod teardown;

pub use cgroup::Usage;
pub use client::{InitClient, connect};
pub use clock::{boot_id, boot_ms};
pub use driver::Driver;
pub use inherited::control_connection;
pub use isolation::{Facet, Fact, Isolation};
pub use name::{InvalidName, Name};
pub use native::Native;
pub use proc::{Process, SUBCOMMAND};
pub use spec::{DOOR_INSIDE, EXE_INSIDE, STATE_INSIDE, Spec, StartError, Started, WORKSPACE_INSIDE};
pub use teardown::{Absence, Leftovers};

/// What a binary does when it is called as `… sandbox-init …`: `arguments` are those after the subcommand.
/// Returns the exit code, for the caller to end with at once.
///
/// Call it as the first thing in `main`: before any thread is started (namespaces are made by forking) and
/// before anything is opened (the launcher closes every descriptor above the standard three).
pub fn run_init(arguments: &[String]) -> i32 {
    match arguments.first().map(String::as_str) {
        Some("launch") => launch::run(),
        Some("init") => init::run(),
        Some("nothing") => 0,
        Some(_) | None => 2,
    }
}
