//! Finding the product's processes from outside, and killing them.

use std::path::Path;
use std::process::Child;

/// A control plane that ends, and its node and gateway with it, whatever becomes of the test.
pub(crate) struct Leash(Child);

impl Leash {
    pub(crate) fn on(child: Child) -> Self {
        Self(child)
    }

    /// Asks it to end, and waits until it has.
    pub(crate) fn end(self) {}
}

impl Drop for Leash {
    fn drop(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.0);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let _ = self.0.wait();
    }
}

/// SIGKILL, if it is still there.
pub(crate) fn kill(pid: i32) {
    if let Some(pid) = rustix::process::Pid::from_raw(pid) {
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }
}

fn pids() -> Vec<i32> {
    let entries = std::fs::read_dir("/proc").expect("mounted");
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect()
}

fn cmdline(pid: i32) -> String {
    let bytes = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&bytes).replace('\0', " ")
}

fn parent(pid: i32) -> Option<i32> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse().ok()
}

/// Whether a process was started for the state directory below this root.
pub(crate) fn of_this_world(pid: i32, root: &Path) -> bool {
    let needle = root.as_os_str().as_encoded_bytes();
    ["environ", "cmdline"].iter().any(|file| {
        let bytes = std::fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
        bytes.windows(needle.len()).any(|window| window == needle)
    })
}

/// The launchers and inits of the sandboxes whose name holds this text.
pub(crate) fn sandbox_processes(name: &str) -> Vec<i32> {
    let ours = |pid: &i32| cmdline(*pid).contains("sandbox-init") && cmdline(*pid).contains(name);
    pids().into_iter().filter(ours).collect()
}

/// The agent in such a sandbox.
pub(crate) fn sandbox_agent(name: &str) -> Option<i32> {
    let inits = sandbox_processes(name);
    let is_agent = |pid: &i32| cmdline(*pid).contains("--wait-for-go");
    pids().into_iter().filter(is_agent).find(|pid| parent(*pid).is_some_and(|parent| inits.contains(&parent)))
}
