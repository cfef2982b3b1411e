//! The built-in tools: what a model is offered, and the way from a call to its result. Every tool stays in the
//! workspace, answers in bounded size, and reports errors as results.

use std::sync::Mutex;

use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;

use crate::message::ToolCall;

mod beneath;
mod files;
mod shell;
mod state;

pub(crate) use beneath::Workspace;
pub(crate) use state::{StateFile, ToolState};

/// What one tool call may take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolLimits {
    /// Milliseconds that a shell command may run, at most and by default.
    pub shell_ms: u64,
    /// Bytes of each output of a command that reach the model.
    pub output_bytes: usize,
    /// Bytes that one `read_file` gives, at most and by default.
    pub read_bytes: usize,
    /// Entries that one `list_files` gives.
    pub entries: usize,
}

impl Default for ToolLimits {
    fn default() -> Self {
        Self { shell_ms: 120_000, output_bytes: 64 << 10, read_bytes: 64 << 10, entries: 1_000 }
    }
}

/// The tools as a request offers them.
pub(crate) const OFFERED: &str = include_str!("tools/offered.json");

/// The tools of one session.
#[derive(Debug)]
pub(crate) struct Tools {
    workspace: Workspace,
    limits: ToolLimits,
    state: Mutex<ToolState>,
}

impl Tools {
    pub(crate) fn new(workspace: Workspace, limits: ToolLimits, state: ToolState) -> Self {
        Self { workspace, limits, state: Mutex::new(state) }
    }

    /// The state as it is now.
    pub(crate) fn state(&self) -> ToolState {
        self.lock().clone()
    }

    /// Runs a call to its end, or until it is cancelled; then nothing of it runs any more.
    pub(crate) async fn run(self: std::sync::Arc<Self>, call: ToolCall, cancel: CancellationToken) -> String {
        self.lock().count(&call.name);
        if call.name == "run_shell" {
            return match arguments(&call) {
                Ok(asked) => self.shell(asked, cancel).await,
                Err(why) => why,
            };
        }
        let tools = self.clone();
        let ran = tokio::task::spawn_blocking(move || tools.file_tool(&call)).await;
        ran.unwrap_or_else(|panicked| format!("error: the tool failed: {panicked}"))
    }

    fn file_tool(&self, call: &ToolCall) -> String {
        let files =
            files::Files { workspace: &self.workspace, limits: &self.limits, cwd: self.lock().cwd.clone() };
        let done = match call.name.as_str() {
            "read_file" => arguments(call).and_then(|asked| files.read(&asked)),
            "write_file" => {
                arguments(call).and_then(|asked| self.touching(&asked, |asked| files.write(asked)))
            }
            "append_file" => {
                arguments(call).and_then(|asked| self.touching(&asked, |asked| files.append(asked)))
            }
            "list_files" => arguments(call).and_then(|asked| files.list(&asked)),
            other => Err(format!("error: there is no tool '{other}'")),
        };
        done.unwrap_or_else(|why| why)
    }

    fn touching(
        &self,
        asked: &files::Written,
        write: impl FnOnce(&files::Written) -> Result<String, String>,
    ) -> Result<String, String> {
        let done = write(asked)?;
        let cwd = self.lock().cwd.clone();
        if let Ok(path) = self.workspace.relative(&cwd, &asked.path) {
            self.lock().touch(&path.to_string_lossy());
        }
        Ok(done)
    }

    async fn shell(&self, asked: shell::Asked, cancel: CancellationToken) -> String {
        let kept = self.lock().cwd.clone();
        let (dir, moved) = match shell::directory(&self.workspace, &kept, asked.cwd.as_deref()) {
            Ok(found) => found,
            Err(why) => return why,
        };
        let note = if moved && asked.cwd.is_none() {
            format!("note: the directory '{kept}' is not here; this ran at the workspace's root\n")
        } else {
            String::new()
        };
        let ran = shell::run(&self.workspace.path().join(&dir), &asked, &self.limits, cancel).await;
        self.lock().cwd = dir;
        note + &ran
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, ToolState> {
        self.state.lock().expect("nothing panics while it holds the tools' state")
    }
}

/// The arguments of a call, or what the model is told about them.
fn arguments<T: DeserializeOwned>(call: &ToolCall) -> Result<T, String> {
    let text = if call.arguments.trim().is_empty() { "{}" } else { call.arguments.as_str() };
    // A lone surrogate in them becomes U+FFFD here; in the message it stays as it was written.
    let fixed = handoff_protocol::scan::without_lone_surrogates(text);
    serde_json::from_str(fixed.as_deref().unwrap_or(text))
        .map_err(|error| format!("error: the arguments of {} are not valid: {error}", call.name))
}

/// Bytes as text, cut at a limit, with a word about what was left out.
fn bounded(bytes: &[u8], limit: usize, total: u64) -> String {
    let shown = &bytes[..bytes.len().min(limit)];
    let mut text = String::from_utf8_lossy(shown).into_owned();
    if total > shown.len() as u64 {
        text.push_str(&format!("\n[{} of {total} bytes shown]", shown.len()));
    }
    text
}

#[cfg(test)]
mod tests;
