//! Processes that run in the background: started detached, elected by a lock, watched with back-off.
//!
//! A role's process holds `<role>.lock` for as long as it lives; the kernel lets go of it when it dies. Whoever
//! wants the role to run waits for that lock and starts a process when it is free. So a restarted control plane
//! adopts a running node and gateway without asking who started them.

use std::ffi::OsString;
use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result};
use handoff_protocol::ErrorCode;
use rustix::fs::{FlockOperation, flock};
use tokio_util::sync::CancellationToken;

use crate::config::Home;
use crate::refusal::refuse;

/// A role that this process has for as long as this lives.
#[derive(Debug)]
pub struct RoleLock(File);

/// Takes a role, if no other process has it.
pub fn take_role(home: &Home, role: &str) -> Result<Option<RoleLock>> {
    let Some(mut lock) = try_lock(home, role)? else { return Ok(None) };
    // For people, tests and whoever stops it; the lock itself is what counts.
    lock.0.set_len(0)?;
    writeln!(lock.0, "{}", std::process::id())?;
    Ok(Some(lock))
}

/// Why a second process of a role does not start.
pub fn role_taken(home: &Home, role: &str) -> anyhow::Error {
    let pid = std::fs::read_to_string(home.lock(role)).unwrap_or_default();
    let by = if pid.trim().is_empty() { String::new() } else { format!(", as process {}", pid.trim()) };
    let message = format!("`handoff {role}` runs already for {}{by}", home.path().display());
    let hint = format!("use it, or end it first: `handoff --home {} serve --stop`", home.path().display());
    refuse(ErrorCode::StoreLocked, message, hint)
}

/// Whether some process has a role.
pub fn is_taken(home: &Home, role: &str) -> Result<bool> {
    Ok(try_lock(home, role)?.is_none())
}

/// The lock alone: whoever only asks whether the role is free leaves no pid as if it had it.
fn try_lock(home: &Home, role: &str) -> Result<Option<RoleLock>> {
    let file = open_lock(home, role)?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(RoleLock(file))),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
        Err(error) => Err(error).with_context(|| format!("the lock of the role {role} cannot be taken")),
    }
}

fn open_lock(home: &Home, role: &str) -> Result<File> {
    let path = home.lock(role);
    let mut options = std::fs::OpenOptions::new();
    let file = options.read(true).write(true).create(true).truncate(false).mode(0o600).open(&path);
    file.with_context(|| format!("{} cannot be opened", path.display()))
}

/// Ends the process that has a role, if there is one: asked first, then killed. Returns when the role is free.
pub async fn stop_role(home: &Home, role: &str, patience: Duration) -> Result<()> {
    let deadline = tokio::time::Instant::now() + patience;
    let mut asked = false;
    while try_lock(home, role)?.is_none() {
        let pid = std::fs::read_to_string(home.lock(role)).ok().and_then(|text| text.trim().parse().ok());
        let late = tokio::time::Instant::now() > deadline;
        if let Some(pid) = pid.and_then(rustix::process::Pid::from_raw)
            && (late || !asked)
        {
            let signal = if late { rustix::process::Signal::KILL } else { rustix::process::Signal::TERM };
            let _ = rustix::process::kill_process(pid, signal);
            asked = true;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(())
}

/// What a role needs of the environment that it is started from. The rest is not passed on: whoever may read a
/// process's memory or `/proc/<pid>/environ` finds there what it was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    /// The control plane, and the supervisor that starts it again: its own secrets, too.
    ControlPlane,
    /// What resolves credential references: any variable may be one, so only the control plane's secrets are left
    /// out.
    Credentials,
    /// Places and words for the log, and nothing else.
    Places,
}

/// Secrets of the control plane's process alone.
const CONTROL_PLANE_SECRETS: [&str; 2] = ["TRANSFER_TOKEN_SECRET", "DATABASE_URL"];
/// The secret of whoever calls the control plane: of no process that runs in the background.
const CALLER_SECRET: &str = "HANDOFF_API_KEY";
/// What says where things are, and how to speak.
const PLACES: [&str; 13] = [
    "HANDOFF_HOME",
    "HANDOFF_LOG",
    "HOME",
    "LANG",
    "LC_ALL",
    "LOGNAME",
    "PATH",
    "RUST_BACKTRACE",
    "TMPDIR",
    "TZ",
    "USER",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
];

impl Needs {
    /// Of a role in the background.
    fn of(role: &str) -> Self {
        match role {
            "serve" | "supervise" => Self::ControlPlane,
            "gateway" => Self::Credentials,
            _ => Self::Places,
        }
    }
}

/// Leaves out of a command's environment what its role does not need.
pub fn restrict(command: &mut Command, needs: Needs) {
    command.env_remove(CALLER_SECRET);
    match needs {
        Needs::ControlPlane => {}
        Needs::Credentials => CONTROL_PLANE_SECRETS.iter().for_each(|name| {
            command.env_remove(name);
        }),
        Needs::Places => {
            command.env_clear();
            command.envs(PLACES.iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
        }
    }
}

/// Starts this program in another role, detached: a session of its own, no terminal, its output in the log.
pub fn start_detached(home: &Home, role: &str, arguments: &[&str]) -> Result<Child> {
    spawn(detached(home, role, arguments)?, role)
}

/// The same, with its answer on a pipe: why it does not run, as a document. A reader that goes away is no loss to it.
pub fn start_answering(home: &Home, role: &str, arguments: &[&str]) -> Result<Child> {
    let mut command = detached(home, role, arguments)?;
    command.arg("--json").stdout(Stdio::piped());
    spawn(command, role)
}

fn spawn(mut command: Command, role: &str) -> Result<Child> {
    command.spawn().with_context(|| format!("the {role} process cannot be started"))
}

fn detached(home: &Home, role: &str, arguments: &[&str]) -> Result<Command> {
    let log = home.log().join(format!("{role}.log"));
    let mut options = std::fs::OpenOptions::new();
    let out = options.append(true).create(true).mode(0o600).open(&log);
    let out = out.with_context(|| format!("{} cannot be opened", log.display()))?;
    let mut command = Command::new(std::env::current_exe()?);
    command.args(arguments.iter().map(OsString::from));
    restrict(&mut command, Needs::of(role));
    command.env("HANDOFF_HOME", home.path());
    command.stdin(Stdio::null()).stdout(out.try_clone()?).stderr(out);
    command.process_group(0);
    Ok(command)
}

/// Cancelled when this process is told to end.
pub fn stop_signal() -> Result<CancellationToken> {
    use tokio::signal::unix::{SignalKind, signal};
    let stop = CancellationToken::new();
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let token = stop.clone();
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        token.cancel();
    });
    Ok(stop)
}

/// Keeps a role running until told to stop: whenever its lock is free, starts it again, more slowly each time it
/// dies young.
pub async fn keep_running(home: Home, role: &'static str, arguments: Vec<String>, stop: CancellationToken) {
    let mut pause = Backoff::default();
    while !stop.is_cancelled() {
        let free = tokio::select! {
            () = stop.cancelled() => return,
            free = lock_is_free(home.clone(), role) => free,
        };
        let started = tokio::time::Instant::now();
        match free.and_then(|()| start_detached(&home, role, &borrowed(&arguments))) {
            Ok(child) => watch(child, role, &stop).await,
            Err(error) => tracing::error!(role, error = format!("{error:#}"), "cannot be started"),
        }
        let pause = pause.after(started.elapsed());
        let _ = tokio::time::timeout(pause, stop.cancelled()).await;
    }
}

fn borrowed(arguments: &[String]) -> Vec<&str> {
    arguments.iter().map(String::as_str).collect()
}

/// Waits until nobody has the role: the process of an earlier control plane may still be running.
async fn lock_is_free(home: Home, role: &'static str) -> Result<()> {
    loop {
        if let Some(lock) = try_lock(&home, role)? {
            drop(lock);
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
}

/// Waits for the child to end. On an orderly stop it is asked to end, too.
async fn watch(mut child: Child, role: &str, stop: &CancellationToken) {
    let pid = rustix::process::Pid::from_child(&child);
    let ended = tokio::task::spawn_blocking(move || child.wait());
    tokio::pin!(ended);
    let status = tokio::select! {
        status = &mut ended => status,
        () = stop.cancelled() => {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
            ended.await
        }
    };
    match status {
        Ok(Ok(status)) => tracing::warn!(role, %status, "ended"),
        Ok(Err(error)) => tracing::error!(role, %error, "cannot be waited for"),
        Err(_) => {}
    }
}

/// Pauses that double from 100 ms to 5 s, and start over after a minute of good health.
#[derive(Debug, Default)]
pub struct Backoff {
    failures: u32,
}

impl Backoff {
    /// The pause before the next start, after a process that lived for so long.
    pub fn after(&mut self, lived: Duration) -> Duration {
        self.failures = if lived > Duration::from_secs(60) { 0 } else { (self.failures + 1).min(6) };
        Duration::from_millis(100 << self.failures.min(6)).min(Duration::from_secs(5))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_role_is_held_by_one_at_a_time() {
        let directory = tempfile::tempdir().expect("a directory");
        let home = Home::find(Some(directory.path().to_owned())).expect("named");
        let first = take_role(&home, "node").expect("a lock");
        assert!(first.is_some());
        assert!(take_role(&home, "node").expect("a lock").is_none());
        assert!(take_role(&home, "gateway").expect("a lock").is_some());
        drop(first);
        assert!(try_lock(&home, "start").expect("a lock").is_some());
        assert_eq!(std::fs::read(home.lock("start")).expect("there"), b"", "who only asks has no role");
        assert!(take_role(&home, "node").expect("a lock").is_some());
    }

    #[test]
    fn pauses_grow_to_a_limit_and_start_over() {
        let mut pause = Backoff::default();
        let young = Duration::from_secs(1);
        let first = pause.after(young);
        assert!(pause.after(young) > first);
        for _ in 0..20 {
            assert!(pause.after(young) <= Duration::from_secs(5));
        }
        assert!(pause.after(Duration::from_secs(61)) < first);
    }
}
