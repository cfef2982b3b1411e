//! The session directory while an agent runs it: messages are appended and synced, the boundary is replaced,
//! and a start finds out where the last one ended.
//!
//! A message that is whole stays, also beyond the boundary; a torn one is cut off. Since a boundary that names
//! open calls is durable before one of them runs, messages beyond the boundary prove that nothing ran since.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use handoff_protocol::document::{SessionDocument, TurnState};
use handoff_protocol::session_dir::{BOUNDARY, Boundary, MESSAGES, SESSION, SYSTEM_PROMPT};
use rustix::fs::FlockOperation;
use serde::de::DeserializeOwned;

use crate::durable;
use crate::error::AgentError;
use crate::machine::Recovered;
use crate::message::{OpenCalls, ToolCall};
use crate::outgoing::{Note, Outgoing};

/// A session directory that this process alone runs.
#[derive(Debug)]
pub(crate) struct Journal {
    dir: PathBuf,
    /// Holds the lock, too.
    messages: File,
}

/// What a start finds.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) journal: Journal,
    /// The boundary on disk.
    pub(crate) durable: Boundary,
    /// What the conversation holds: more, after an unlucky end.
    pub(crate) now: Boundary,
    pub(crate) recovered: Recovered,
    /// The copy of the conversation for the model.
    pub(crate) outgoing: Outgoing,
    pub(crate) notes: Vec<Note>,
    /// The system prompt as a message, mended like the others; empty if there is none.
    pub(crate) system: String,
    pub(crate) document: Option<SessionDocument>,
}

impl Journal {
    /// Locks a session directory, and changes nothing. Whether the session may run here is asked under this lock:
    /// before it, another process may be freezing or retiring it.
    pub(crate) fn lock(dir: &Path) -> Result<Self, AgentError> {
        let path = dir.join(MESSAGES);
        let messages = OpenOptions::new().read(true).append(true).open(&path);
        let messages = messages.map_err(|error| AgentError::file(&path, error))?;
        rustix::fs::flock(&messages, FlockOperation::NonBlockingLockExclusive)
            .map_err(|_| AgentError::InUse(dir.to_owned()))?;
        Ok(Self { dir: dir.to_owned(), messages })
    }

    /// Cuts off what is torn, and reads everything.
    pub(crate) fn load(mut self) -> Result<Loaded, AgentError> {
        let dir = self.dir.clone();
        let (dir, path) = (dir.as_path(), dir.join(MESSAGES));
        let file = |error| AgentError::file(&path, error);
        let mut bytes = Vec::new();
        self.messages.read_to_end(&mut bytes).map_err(file)?;
        let on_disk: Option<Boundary> = json_file(dir, BOUNDARY)?;
        let mut history = History::default();
        let (kept, unended) = match &on_disk {
            Some(boundary) => (history.beyond(boundary, &bytes)?, false),
            None => history.whole(&bytes)?,
        };
        if kept < bytes.len() {
            tracing::warn!(bytes = bytes.len() - kept, "a torn message was cut off");
            self.messages.set_len(kept as u64).map_err(file)?;
            self.messages.sync_data().map_err(file)?;
        }
        if unended {
            self.write(b"\n")?;
        }
        let now = history.boundary(on_disk.as_ref(), kept as u64 + u64::from(unended));
        if on_disk.is_none() {
            self.write_boundary(&now)?;
        }
        let beyond = on_disk.as_ref().is_some_and(|boundary| boundary.messages < now.messages);
        let recovered = Recovered {
            model_next: history.calls.model_next(),
            may_have_run: !history.calls.open.is_empty() && !beyond,
            open: history.calls.open,
        };
        let (system, system_notes) = system_message(dir)?;
        history.notes.extend(system_notes);
        Ok(Loaded {
            journal: self,
            durable: on_disk.unwrap_or_else(|| now.clone()),
            now,
            recovered,
            outgoing: history.outgoing,
            notes: history.notes,
            system,
            document: json_file(dir, SESSION)?,
        })
    }

    /// Appends a message; it is on disk when this returns.
    pub(crate) fn append(&mut self, message: &str) -> Result<(), AgentError> {
        let mut line = Vec::with_capacity(message.len() + 1);
        line.extend_from_slice(message.as_bytes());
        line.push(b'\n');
        self.write(&line)
    }

    /// Replaces the boundary; it is on disk when this returns.
    pub(crate) fn write_boundary(&self, boundary: &Boundary) -> Result<(), AgentError> {
        let mut bytes = serde_json::to_vec(boundary).expect("plain data");
        bytes.push(b'\n');
        durable::replace(&self.dir, BOUNDARY, &bytes)
            .map_err(|error| AgentError::file(&self.dir.join(BOUNDARY), error))
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), AgentError> {
        let written = self.messages.write_all(bytes).and_then(|()| self.messages.sync_data());
        written.map_err(|error| AgentError::file(&self.dir.join(MESSAGES), error))
    }
}

#[derive(Default)]
struct History {
    calls: OpenCalls,
    outgoing: Outgoing,
    notes: Vec<Note>,
    messages: u64,
    /// Answers up to the boundary.
    certain_answers: u64,
}

impl History {
    /// Reads a conversation up to its boundary, where all must be well, and beyond it as far as it is whole.
    /// Says how many bytes are.
    fn beyond(&mut self, boundary: &Boundary, bytes: &[u8]) -> Result<usize, AgentError> {
        let corrupt = |why| Err(AgentError::corrupt(MESSAGES, why));
        let certain = usize::try_from(boundary.messages_bytes).unwrap_or(usize::MAX);
        let Some((before, beyond)) = bytes.split_at_checked(certain) else {
            return corrupt(format!("{} bytes, but the boundary speaks of {certain}", bytes.len()));
        };
        if before.last().is_some_and(|last| *last != b'\n') {
            return corrupt(format!("the boundary at byte {certain} lies within a message"));
        }
        self.whole(before)?;
        if self.messages != boundary.messages {
            let found = self.messages;
            return corrupt(format!("{found} messages up to the boundary of {}", boundary.messages));
        }
        self.certain_answers = self.calls.answers;
        let mut kept = certain;
        for line in beyond.split_inclusive(|byte| *byte == b'\n') {
            let Some(line_only) = line.strip_suffix(b"\n") else { break };
            if self.line(line_only).is_err() {
                break;
            }
            kept += line.len();
        }
        Ok(kept)
    }

    /// Reads a conversation of which every line must be well. Says how many bytes it has, and whether the last
    /// line lacks its end.
    fn whole(&mut self, bytes: &[u8]) -> Result<(usize, bool), AgentError> {
        let ended = bytes.strip_suffix(b"\n");
        let lines = ended.unwrap_or(bytes);
        if !bytes.is_empty() {
            for line in lines.split(|byte| *byte == b'\n') {
                let number = self.messages + 1;
                self.line(line)
                    .map_err(|why| AgentError::corrupt(MESSAGES, format!("line {number}: {why}")))?;
            }
        }
        Ok((bytes.len(), ended.is_none() && !bytes.is_empty()))
    }

    fn line(&mut self, line: &[u8]) -> Result<(), String> {
        handoff_protocol::json::check(line).map_err(|error| error.to_string())?;
        let text = std::str::from_utf8(line).map_err(|error| error.to_string())?;
        if !self.calls.follow(text) {
            return Err("not a message: there is no role".to_owned());
        }
        self.notes.extend(self.outgoing.push(text));
        self.messages += 1;
        Ok(())
    }

    fn boundary(&self, on_disk: Option<&Boundary>, messages_bytes: u64) -> Boundary {
        let turn = if !self.calls.open.is_empty() {
            TurnState::ToolsOpen { calls: self.calls.open.iter().map(ToolCall::id_text).collect() }
        } else if self.calls.model_next() {
            TurnState::ModelNext
        } else {
            TurnState::Idle
        };
        let counted = on_disk.map_or(0, |boundary| boundary.step);
        let step = counted + self.calls.answers - self.certain_answers;
        Boundary { step, messages_bytes, messages: self.messages, turn }
    }
}

/// The system prompt as the first message of a request.
fn system_message(dir: &Path) -> Result<(String, Vec<Note>), AgentError> {
    let path = dir.join(SYSTEM_PROMPT);
    let bytes = durable::read(&path).map_err(|error| AgentError::file(&path, error))?.unwrap_or_default();
    if bytes.trim_ascii().is_empty() {
        return Ok((String::new(), Vec::new()));
    }
    let corrupt = |why: String| AgentError::corrupt(SYSTEM_PROMPT, why);
    handoff_protocol::json::check(&bytes).map_err(|error| corrupt(error.to_string()))?;
    let prompt = std::str::from_utf8(&bytes).map_err(|error| corrupt(error.to_string()))?.trim_ascii();
    match prompt.as_bytes().first() {
        Some(b'n') => Ok((String::new(), Vec::new())),
        Some(b'"' | b'[') => {
            let mut outgoing = Outgoing::default();
            let notes = outgoing.push(&format!(r#"{{"role":"system","content":{prompt}}}"#));
            Ok((outgoing.messages().to_owned(), notes))
        }
        _ => Err(corrupt("neither a text nor blocks".to_owned())),
    }
}

fn json_file<T: DeserializeOwned>(dir: &Path, name: &str) -> Result<Option<T>, AgentError> {
    let path = dir.join(name);
    let Some(bytes) = durable::read(&path).map_err(|error| AgentError::file(&path, error))? else {
        return Ok(None);
    };
    serde_json::from_slice(&bytes).map(Some).map_err(|error| AgentError::corrupt(name, error.to_string()))
}

#[cfg(test)]
mod tests;
