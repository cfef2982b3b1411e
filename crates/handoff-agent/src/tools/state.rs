//! What the tools keep between calls, and its place in `tool_state.json`. Whatever else that file holds came
//! with the session and keeps its bytes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use handoff_protocol::scan;
use handoff_protocol::session_dir::TOOL_STATE;
use serde::{Deserialize, Serialize};

use crate::durable;
use crate::error::AgentError;

/// The member of the file's object that is this loop's.
const MEMBER: &str = "handoff_tools";
/// The most files that are remembered.
const FILES: usize = 512;

/// What the tools keep between calls.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ToolState {
    /// Where commands run, within the workspace.
    pub(crate) cwd: String,
    /// Calls begun, per tool.
    pub(crate) calls: BTreeMap<String, u64>,
    /// Files that were written, within the workspace.
    pub(crate) files: BTreeSet<String>,
}

impl Default for ToolState {
    fn default() -> Self {
        Self { cwd: ".".to_owned(), calls: BTreeMap::new(), files: BTreeSet::new() }
    }
}

impl ToolState {
    pub(crate) fn count(&mut self, tool: &str) {
        // A model may make up any number of names.
        if self.calls.len() < 64 || self.calls.contains_key(tool) {
            *self.calls.entry(tool.to_owned()).or_insert(0) += 1;
        }
    }

    pub(crate) fn touch(&mut self, path: &str) {
        if self.files.len() < FILES {
            self.files.insert(path.to_owned());
        }
    }
}

/// `tool_state.json` with this loop's part cut out.
#[derive(Debug)]
pub(crate) struct StateFile {
    dir: PathBuf,
    before: String,
    after: String,
    /// The file is no object: it belongs to somebody else and is left alone.
    foreign: bool,
    saved: ToolState,
}

impl StateFile {
    /// Reads the file of a session directory.
    pub(crate) fn open(dir: &Path) -> Result<(Self, ToolState), AgentError> {
        let path = dir.join(TOOL_STATE);
        let bytes = durable::read(&path).map_err(|error| AgentError::file(&path, error))?;
        let bytes = bytes.filter(|bytes| !bytes.trim_ascii().is_empty()).unwrap_or_else(|| b"{}".to_vec());
        let corrupt = |why: String| AgentError::corrupt(TOOL_STATE, why);
        handoff_protocol::json::check(&bytes).map_err(|error| corrupt(error.to_string()))?;
        let text = String::from_utf8(bytes).map_err(|error| corrupt(error.to_string()))?;
        let mut file = Self {
            dir: dir.to_owned(),
            before: String::new(),
            after: String::new(),
            foreign: false,
            saved: ToolState::default(),
        };
        if let Some(ours) = scan::member(&text, MEMBER) {
            let place = scan::place(&text, ours);
            (file.before, file.after) = (text[..place.start].to_owned(), text[place.end..].to_owned());
            file.saved = serde_json::from_str(ours).map_err(|error| corrupt(format!("{MEMBER}: {error}")))?;
        } else if let Some(members) = scan::members(&text) {
            let brace = text.find('{').map_or(0, |brace| brace + 1);
            let comma = if members.is_empty() { "" } else { "," };
            file.before = format!("{}\"{MEMBER}\":", &text[..brace]);
            file.after = format!("{comma}{}", &text[brace..]);
        } else {
            file.foreign = true;
            tracing::warn!("{TOOL_STATE} is no object: the tools' state is not kept in it");
        }
        let state = file.saved.clone();
        Ok((file, state))
    }

    /// Replaces this loop's part, if it changed. The next boundary makes it durable.
    pub(crate) fn save(&mut self, state: &ToolState) -> Result<(), AgentError> {
        if self.foreign || *state == self.saved {
            return Ok(());
        }
        let ours = serde_json::to_string(state).expect("plain data");
        let text = format!("{}{ours}{}", self.before, self.after);
        durable::prepare(&self.dir, TOOL_STATE, text.as_bytes())
            .map_err(|error| AgentError::file(&self.dir.join(TOOL_STATE), error))?;
        self.saved = state.clone();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn saved(before: &str) -> String {
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::write(dir.path().join(TOOL_STATE), before).expect("written");
        let (mut file, mut state) = StateFile::open(dir.path()).expect("loads");
        state.count("read_file");
        state.touch("a/b");
        file.save(&state).expect("saved");
        let (_, again) = StateFile::open(dir.path()).expect("loads");
        if !file.foreign {
            assert_eq!(again, state);
        }
        std::fs::read_to_string(dir.path().join(TOOL_STATE)).expect("text")
    }

    #[test]
    fn case_s14_and_s16_what_is_not_ours_keeps_its_bytes() {
        let ours = r#""handoff_tools":{"cwd":".","calls":{"read_file":1},"files":["a/b"]}"#;
        assert_eq!(saved(""), format!("{{{ours}}}"));
        assert_eq!(saved(" {} "), format!(" {{{ours}}} "));
        let odd = r#"{"b":117.63331139400017, "a":[18446744073709551616,1e400,-0], "\ud83d":"\u0000"}"#;
        assert_eq!(saved(odd), format!("{{{ours},{}", &odd[1..]));
        let there = r#"{"z":1e400, "handoff_tools": {"cwd":"."} ,"a":-0}"#;
        let expected = format!(r#"{{"z":1e400, {} ,"a":-0}}"#, ours.replacen(':', ": ", 1));
        assert_eq!(saved(there), expected);
        for foreign in ["[1,2]", "\"x\"", "-0"] {
            assert_eq!(saved(foreign), foreign);
        }
    }

    #[test]
    fn a_file_that_is_no_json_is_named() {
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::write(dir.path().join(TOOL_STATE), r#"{"a":1,"a":2}"#).expect("written");
        assert!(matches!(StateFile::open(dir.path()), Err(AgentError::Corrupt { .. })));
    }
}
