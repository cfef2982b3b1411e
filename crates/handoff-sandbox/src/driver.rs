//! The port that drivers implement.

use std::path::Path;

use crate::cgroup::Usage;
use crate::isolation::Isolation;
use crate::name::Name;
use crate::proc::Process;
use crate::spec::{Spec, StartError, Started};
use crate::teardown::{Absence, Leftovers};

/// A way to make sandboxes. Nothing is remembered between calls: all finding is by name, so that a node that
/// has just started can take over what an earlier one left.
pub trait Driver: std::fmt::Debug + Send + Sync {
    /// What this host gives, found by making a sandbox, looking, and removing it.
    fn probe(&self) -> Isolation;

    /// Makes a sandbox and executes the agent in it.
    ///
    /// # Errors
    /// [`StartError`]; nothing of the sandbox is left then.
    fn start(&self, spec: &Spec) -> Result<Started, StartError>;

    /// The init of a running sandbox, if there is one.
    fn adopt(&self, name: &Name) -> Option<Process>;

    /// What the sandbox has used so far, by the kernel's count.
    fn usage(&self, name: &Name) -> Usage;

    /// Ends and removes whatever there is of a sandbox, and proves that nothing is left. The destination's
    /// own files are not touched, except for `init.sock`.
    ///
    /// # Errors
    /// What is still there; call again.
    fn teardown(&self, name: &Name, dir: &Path) -> Result<Absence, Box<Leftovers>>;

    /// Everything on this host that belongs to a sandbox whose name begins so.
    ///
    /// # Errors
    /// The host cannot be searched, so nothing can be said.
    fn leftovers(&self, prefix: &str) -> std::io::Result<Vec<Leftovers>>;
}
