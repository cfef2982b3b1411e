//! Reading a session directory that an agent writes, possibly at this moment, possibly with ill intent.

use std::fs::File;
use std::io::{BufRead as _, BufReader, ErrorKind, Read as _};
use std::os::fd::OwnedFd;
use std::path::Path;

use handoff_protocol::document::{McpServer, ReportEntry, SessionDocument};
use handoff_protocol::json;
use handoff_protocol::manifest::Part;
use handoff_protocol::session_dir::{self, Boundary};
use serde::de::DeserializeOwned;

use super::{CaptureError, Moment, Outbox};
use crate::beneath;
use crate::conversation::{Conversation, KnownChunks, Origin, Sealed};
use crate::limits::{MESSAGE_BYTES, MESSAGES_BYTES, SMALL_FILE_BYTES, STATE_FILE_BYTES};
use crate::restore::NO_SERVERS;
use crate::seal::{check_servers, check_text};

/// How often a directory that is being written is read again to find all files of one step.
const READ_AGAIN: usize = 5;

/// The small files of a session directory, as of one boundary.
pub(crate) struct SessionFiles {
    pub(crate) session: SessionDocument,
    pub(crate) boundary: Boundary,
    /// The parts that are JSON texts of their own, as they are stored.
    pub(crate) texts: Vec<(Part, Vec<u8>)>,
    pub(crate) findings: Vec<ReportEntry>,
    /// Whether all of it is of one step.
    pub(crate) is_settled: bool,
    messages: File,
}

/// Reads the small files and opens the conversation.
pub(crate) fn read(state_dir: &Path, moment: Moment) -> Result<SessionFiles, CaptureError> {
    let dir = beneath::open_root(state_dir).map_err(|error| bad(session_dir::BOUNDARY, error.to_string()))?;
    let mut files = read_once(&dir)?;
    for _ in 0..READ_AGAIN {
        let now: Boundary = document(&dir, session_dir::BOUNDARY)?;
        if now == files.boundary {
            return Ok(files);
        }
        if moment == Moment::Final {
            return Err(CaptureError::Moving);
        }
        files = read_once(&dir)?;
    }
    Ok(SessionFiles { is_settled: false, ..files })
}

fn read_once(dir: &OwnedFd) -> Result<SessionFiles, CaptureError> {
    let boundary: Boundary = document(dir, session_dir::BOUNDARY)?;
    let session: SessionDocument = document(dir, session_dir::SESSION)?;
    let messages =
        File::from(open(dir, session_dir::MESSAGES)?.ok_or_else(|| missing(session_dir::MESSAGES))?);
    let size = messages.metadata().map_err(|error| bad(session_dir::MESSAGES, error.to_string()))?.len();
    if boundary.messages_bytes > MESSAGES_BYTES {
        return Err(CaptureError::TooLarge { what: "the conversation" });
    }
    if boundary.messages_bytes > size {
        let why = format!("it has {size} bytes, and the boundary says {}", boundary.messages_bytes);
        return Err(bad(session_dir::MESSAGES, why));
    }
    let (mut texts, mut findings) = (Vec::new(), Vec::new());
    for (part, name) in
        [(Part::SystemPrompt, session_dir::SYSTEM_PROMPT), (Part::ToolState, session_dir::TOOL_STATE)]
    {
        if let Some(text) = bytes(dir, name, STATE_FILE_BYTES)? {
            let (clean, found) = check_text(part, &text)?;
            texts.push((part, clean.unwrap_or(text)));
            findings.extend(found);
        }
    }
    if let Some(text) = bytes(dir, session_dir::MCP_CONFIG, SMALL_FILE_BYTES)? {
        let servers: Vec<McpServer> = parse(session_dir::MCP_CONFIG, &text)?;
        check_servers(&servers)?;
        // No part and an empty list are the same, and a restore writes the list.
        if text != NO_SERVERS {
            texts.push((Part::McpConfig, text));
        }
    }
    Ok(SessionFiles { session, boundary, texts, findings, is_settled: true, messages })
}

/// Seals the conversation up to the boundary exactly.
pub(super) fn seal_messages(
    files: &SessionFiles,
    known: KnownChunks,
    outbox: &Outbox,
) -> Result<Sealed, CaptureError> {
    let mut conversation = Conversation::new(Origin::Loop, known);
    each_message(files, |message| outbox.send(conversation.add(message)?))?;
    let (sealed, blobs) = conversation.finish()?;
    for blob in blobs {
        outbox.send(Some(blob))?;
    }
    Ok(sealed)
}

/// Hands out each message up to the boundary, and fails if the boundary is not at the end of a line or
/// counts other lines.
pub(crate) fn each_message(
    files: &SessionFiles,
    mut take: impl FnMut(&[u8]) -> Result<(), CaptureError>,
) -> Result<(), CaptureError> {
    let failed = |error: std::io::Error| bad(session_dir::MESSAGES, error.to_string());
    let Boundary { messages_bytes, messages, .. } = files.boundary;
    let mut reader = BufReader::with_capacity(256 << 10, (&files.messages).take(messages_bytes));
    let mut line = Vec::new();
    let (mut lines, mut read) = (0, 0);
    loop {
        line.clear();
        let length = reader.by_ref().take(MESSAGE_BYTES as u64 + 2).read_until(b'\n', &mut line);
        match length.map_err(failed)? {
            0 => break,
            length => read += length as u64,
        }
        match line.strip_suffix(b"\n") {
            Some(message) => take(message)?,
            None if line.len() > MESSAGE_BYTES => return Err(CaptureError::TooLarge { what: "a message" }),
            None => {
                let why = format!("line {lines} has no end before the boundary");
                return Err(bad(session_dir::MESSAGES, why));
            }
        }
        lines += 1;
    }
    if (lines, read) == (messages, messages_bytes) {
        return Ok(());
    }
    let why =
        format!("it has {lines} lines in {read} bytes; the boundary says {messages} in {messages_bytes}");
    Err(bad(session_dir::MESSAGES, why))
}

fn open(dir: &OwnedFd, name: &'static str) -> Result<Option<OwnedFd>, CaptureError> {
    match beneath::open_file(dir, name.as_bytes()) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(bad(name, error.to_string())),
    }
}

fn bytes(dir: &OwnedFd, name: &'static str, limit: u64) -> Result<Option<Vec<u8>>, CaptureError> {
    let Some(file) = open(dir, name)? else { return Ok(None) };
    let mut bytes = Vec::new();
    let read = File::from(file).take(limit + 1).read_to_end(&mut bytes);
    read.map_err(|error| bad(name, error.to_string()))?;
    if bytes.len() as u64 > limit {
        return Err(CaptureError::TooLarge { what: name });
    }
    Ok(Some(bytes))
}

fn document<T: DeserializeOwned>(dir: &OwnedFd, name: &'static str) -> Result<T, CaptureError> {
    let text = bytes(dir, name, SMALL_FILE_BYTES)?.ok_or_else(|| missing(name))?;
    parse(name, &text)
}

fn parse<T: DeserializeOwned>(name: &'static str, text: &[u8]) -> Result<T, CaptureError> {
    json::check(text).map_err(|error| bad(name, error.to_string()))?;
    serde_json::from_slice(text).map_err(|error| bad(name, error.to_string()))
}

fn missing(name: &'static str) -> CaptureError {
    bad(name, "it is not there".to_owned())
}

fn bad(file: &'static str, why: String) -> CaptureError {
    CaptureError::Session { file, why }
}
