//! The shell tool: one command, bounded in time and output, in a process group that ends with it.

use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use serde::Deserialize;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::beneath::{Workspace, told};
use super::{ToolLimits, bounded};

/// What a command sees of this process's environment. Everything else stays here: a command's output is part
/// of the conversation, and with it of every snapshot. By the last one the host finds what belongs to a
/// sandbox without namespaces, after whatever end.
const ENVIRONMENT: [&str; 12] = [
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "TZ",
    "TERM",
    "TMPDIR",
    "HANDOFF_SANDBOX",
];
/// How long output is awaited from what a command left behind and that could not be ended.
const LEFT_BEHIND: Duration = Duration::from_millis(500);

/// What `run_shell` is asked for.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Asked {
    command: String,
    #[serde(default)]
    pub(super) cwd: Option<String>,
    #[serde(default)]
    timeout_ms: Option<u64>,
}

/// Where to run: the directory asked for, else the one kept from before, else (true) the root.
pub(super) fn directory(
    workspace: &Workspace,
    kept: &str,
    asked: Option<&str>,
) -> Result<(String, bool), String> {
    let path = match asked {
        Some(asked) => workspace.relative(kept, asked)?,
        None => PathBuf::from(kept),
    };
    match (workspace.directory(&path), asked) {
        (Ok(_), _) => Ok((path.to_string_lossy().into_owned(), false)),
        (Err(error), Some(_)) => Err(told(&path, &error)),
        // A directory kept in the state may not exist on this host.
        (Err(_), None) => Ok((".".to_owned(), true)),
    }
}

/// Runs the command to its end, its time's end, or until it is cancelled. Its process group does not outlive
/// this call.
pub(super) async fn run(dir: &Path, asked: &Asked, limits: &ToolLimits, cancel: CancellationToken) -> String {
    let mut command = Command::new("sh");
    command.arg("-c").arg(&asked.command).current_dir(dir).env_clear().process_group(0);
    command.envs(ENVIRONMENT.iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => return format!("error: no shell could be started: {error}"),
    };
    let group = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
    let output = collect(child.stdout.take(), limits.output_bytes);
    let errors = collect(child.stderr.take(), limits.output_bytes);
    let time_ms = asked.timeout_ms.unwrap_or(limits.shell_ms).min(limits.shell_ms);
    let end = tokio::select! {
        ended = child.wait() => ended.map_or_else(|error| format!("error: {error}"), said),
        () = tokio::time::sleep(Duration::from_millis(time_ms)) => format!("killed after {time_ms} ms"),
        () = cancel.cancelled() => "interrupted".to_owned(),
    };
    finish(&mut child, group).await;
    let (output, errors) = (shown(output, "").await, shown(errors, "--- standard error\n").await);
    format!("{end}\n{output}{errors}")
}

/// Ends what the command left running, so that a step boundary is one: nothing writes after it.
async fn finish(child: &mut Child, group: Option<Pid>) {
    if let Some(group) = group
        && let Err(error) = kill_process_group(group, Signal::KILL)
        && error != rustix::io::Errno::SRCH
    {
        tracing::warn!(%error, "a command's process group was not ended");
    }
    if let Err(error) = child.wait().await {
        tracing::warn!(%error, "a command's end was not seen");
    }
}

fn said(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit {code}"),
        (None, Some(signal)) => format!("ended by signal {signal}"),
        (None, None) => "ended".to_owned(),
    }
}

/// An output that is being read: what is kept, and how many bytes there were.
struct Collected {
    kept: Arc<Mutex<(Vec<u8>, u64)>>,
    limit: usize,
    reader: JoinHandle<()>,
}

/// Reads to the end, keeping as much as reaches the model.
fn collect(pipe: Option<impl AsyncRead + Unpin + Send + 'static>, limit: usize) -> Collected {
    let kept = Arc::new(Mutex::new((Vec::new(), 0)));
    let into = kept.clone();
    let reader = tokio::spawn(async move {
        let Some(mut pipe) = pipe else { return };
        let mut buffer = vec![0; 16 << 10];
        while let Ok(length @ 1..) = pipe.read(&mut buffer).await {
            let mut into = into.lock().expect("nothing panics while it holds an output");
            let room = limit.saturating_sub(into.0.len()).min(length);
            into.0.extend_from_slice(&buffer[..room]);
            into.1 += length as u64;
        }
    });
    Collected { kept, limit, reader }
}

/// The output as text; a process that left the group may hold the pipe open for longer than it is awaited.
async fn shown(mut output: Collected, head: &str) -> String {
    if tokio::time::timeout(LEFT_BEHIND, &mut output.reader).await.is_err() {
        output.reader.abort();
    }
    let kept = output.kept.lock().expect("nothing panics while it holds an output");
    let (bytes, total) = &*kept;
    if bytes.is_empty() { String::new() } else { format!("{head}{}", bounded(bytes, output.limit, *total)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// H-91: without it, what a command left behind could not be found after its sandbox's init was killed.
    #[test]
    fn commands_carry_the_mark_of_their_sandbox() {
        assert!(ENVIRONMENT.contains(&"HANDOFF_SANDBOX"));
    }
}
