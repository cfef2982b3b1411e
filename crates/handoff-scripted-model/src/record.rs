//! The request log: one JSON object per line and request, with digests in place of content and of secrets.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;

use serde::{Deserialize, Serialize};

use handoff_protocol::Digest;

use crate::reply::Usage;

/// What is remembered of one request, written before it is answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Milliseconds since 1970 at which the whole request had arrived.
    pub at_unix_ms: u64,
    /// Such as `POST`.
    pub method: String,
    /// Such as `/v1/chat/completions`.
    pub path: String,
    /// The header `x-handoff-epoch`, as it was sent.
    pub epoch: Option<String>,
    /// Whether there was an `authorization` header.
    pub authorization: bool,
    /// The digest of that header's whole value.
    pub authorization_digest: Option<Digest>,
    /// The digest of the body.
    pub body_digest: Digest,
    /// Bytes of the body.
    pub body_bytes: u64,
    /// How many messages it held.
    pub messages: u64,
    /// The digest of each message's bytes.
    pub message_digests: Vec<Digest>,
    /// The model that was asked for.
    pub model: Option<String>,
    /// Whether a stream was asked for.
    pub stream: bool,
    /// The number of the step that answers.
    pub step: Option<u64>,
    /// The HTTP status of the answer.
    pub status: u16,
    /// The usage that the answer states, if it gets so far.
    pub usage: Option<Usage>,
}

/// Why a log cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// It cannot be opened or read.
    #[error("the request log cannot be read")]
    Io(#[from] std::io::Error),
    /// A line is not a record.
    #[error("line {line} of the request log is not a record")]
    Line {
        /// Counted from 1.
        line: usize,
        /// Why.
        source: serde_json::Error,
    },
}

/// All records so far. A line that is being written, without its end, is left out.
///
/// # Errors
/// The file cannot be read, or a whole line is no record.
pub fn read_log(path: &Path) -> Result<Vec<Record>, LogError> {
    let text = std::fs::read_to_string(path)?;
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let lines = whole.lines().enumerate();
    let read = |(index, line)| {
        serde_json::from_str(line).map_err(|source| LogError::Line { line: index + 1, source })
    };
    lines.map(read).collect()
}

/// A log that is being written.
#[derive(Debug)]
pub(crate) struct Log(File);

impl Log {
    pub(crate) fn open(path: &Path) -> std::io::Result<Self> {
        OpenOptions::new().create(true).append(true).open(path).map(Self)
    }

    /// One write per line, so that several servers may share a file.
    pub(crate) fn write(&self, record: &Record) -> std::io::Result<()> {
        let mut line = serde_json::to_vec(record).expect("plain data");
        line.push(b'\n');
        (&self.0).write_all(&line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_half_written_line_is_left_out_and_a_broken_one_is_named() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("log");
        std::fs::write(&path, "{\"half").expect("written");
        assert_eq!(read_log(&path).expect("readable"), []);
        std::fs::write(&path, "{}\n").expect("written");
        assert!(matches!(read_log(&path), Err(LogError::Line { line: 1, .. })));
    }
}
