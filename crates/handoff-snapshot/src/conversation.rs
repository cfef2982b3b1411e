//! Sealing a conversation: each line checked, searched for credentials, and stored in chunks.

use std::collections::HashMap;

use handoff_protocol::document::{ReportEntry, ReportKind};
use handoff_protocol::manifest::{Part, PartRef};
use handoff_protocol::{Digest, json};
use serde::{Deserialize, Serialize};

use crate::chunk::Chunker;
use crate::limits::{MESSAGE_BYTES, MESSAGES_BYTES};
use crate::media::{self, Blob};
use crate::message::{self, Turn};
use crate::place;
use crate::seal::SealError;
use crate::secret::{self, SecretKind};

/// What is known of a raw chunk that was sealed before: it need not be checked and compressed again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SealedChunk {
    media_type: String,
    digest: Digest,
    size: u64,
    logical_size: u64,
    lines: u64,
    findings: Vec<(u64, SecretKind)>,
}

impl SealedChunk {
    /// The blob that holds it.
    pub(crate) fn digest(&self) -> Digest {
        self.digest
    }
}

/// Chunks by the digest of their raw bytes.
pub(crate) type KnownChunks = HashMap<Digest, SealedChunk>;

/// A conversation that has been sealed.
#[derive(Debug)]
pub(crate) struct Sealed {
    pub(crate) parts: Vec<PartRef>,
    pub(crate) report: Vec<ReportEntry>,
    pub(crate) chunks: KnownChunks,
    /// Whose turn it is, of a caller's conversation: a loop says so itself.
    pub(crate) turn: Turn,
    pub(crate) messages: u64,
}

/// Who says the messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A caller, in a minimal input.
    Caller,
    /// A loop that has lived with them.
    Loop,
}

impl Origin {
    /// What the places in errors and reports start with.
    const fn name(self) -> &'static str {
        match self {
            Self::Caller => "message_history",
            Self::Loop => "messages",
        }
    }
}

/// The conversation while its lines arrive.
pub(crate) struct Conversation {
    origin: Origin,
    chunker: Chunker,
    known: KnownChunks,
    bytes: u64,
    sealed: Sealed,
}

impl Conversation {
    /// `known` holds only chunks whose blobs are there.
    pub(crate) fn new(origin: Origin, known: KnownChunks) -> Self {
        let sealed = Sealed {
            parts: Vec::new(),
            report: Vec::new(),
            chunks: KnownChunks::new(),
            turn: Turn::default(),
            messages: 0,
        };
        Self { origin, chunker: Chunker::default(), known, bytes: 0, sealed }
    }

    /// Adds a message without its line end.
    pub(crate) fn add(&mut self, message: &[u8]) -> Result<Option<Blob>, SealError> {
        self.bytes += message.len() as u64 + 1;
        if message.len() > MESSAGE_BYTES || self.bytes > MESSAGES_BYTES {
            let at = format!("{}[{}]", self.origin.name(), self.sealed.messages);
            return Err(SealError::TooLarge { at });
        }
        match self.chunker.add(&[message, b"\n"].concat()) {
            Some(chunk) => self.seal(&chunk),
            None => Ok(None),
        }
    }

    /// Seals the tail.
    pub(crate) fn finish(mut self) -> Result<(Sealed, Vec<Blob>), SealError> {
        let mut blobs = Vec::new();
        for chunk in std::mem::take(&mut self.chunker).finish() {
            blobs.extend(self.seal(&chunk)?);
        }
        Ok((self.sealed, blobs))
    }

    fn seal(&mut self, raw: &[u8]) -> Result<Option<Blob>, SealError> {
        let name = Digest::of(raw);
        let (chunk, blob) = match self.known.remove(&name) {
            Some(known) => (known, None),
            None => {
                let (chunk, blob) = self.seal_new(raw)?;
                (chunk, Some(blob))
            }
        };
        let first = self.sealed.messages;
        self.sealed.messages += chunk.lines;
        let entries = chunk
            .findings
            .iter()
            .map(|(line, kind)| finding(&format!("{}[{}]", self.origin.name(), first + line), *kind));
        self.sealed.report.extend(entries);
        self.sealed.parts.push(PartRef {
            part: Part::Messages,
            index: self.sealed.parts.len() as u32,
            media_type: chunk.media_type.clone(),
            digest: chunk.digest,
            size: chunk.size,
            logical_size: chunk.logical_size,
        });
        self.sealed.chunks.insert(name, chunk);
        Ok(blob)
    }

    fn seal_new(&mut self, raw: &[u8]) -> Result<(SealedChunk, Blob), SealError> {
        let (mut stored, mut findings, mut lines) = (Vec::with_capacity(raw.len()), Vec::new(), 0);
        for line in raw.split_inclusive(|byte| *byte == b'\n') {
            let message = line.strip_suffix(b"\n").unwrap_or(line);
            self.check(self.sealed.messages + lines, message)?;
            let (clean, kinds) = secret::redact(message);
            stored.extend_from_slice(clean.as_deref().unwrap_or(message));
            stored.push(b'\n');
            findings.extend(kinds.into_iter().map(|kind| (lines, kind)));
            lines += 1;
        }
        let (part, blob) = media::encode(Part::Messages, media::JSON_LINES, &stored);
        let PartRef { media_type, digest, size, logical_size, .. } = part;
        Ok((SealedChunk { media_type, digest, size, logical_size, lines, findings }, blob))
    }

    fn check(&mut self, index: u64, message: &[u8]) -> Result<(), SealError> {
        let at = |path: &str| format!("{}[{index}]{path}", self.origin.name());
        check_json(&at(""), message)?;
        let facts = match self.origin {
            Origin::Caller => message::read(message).map(Some),
            Origin::Loop => message::role(message).map(|_| None),
        };
        let facts = facts.map_err(|fault| SealError::Message { at: at(&fault.path), why: fault.why })?;
        if let Some(facts) = facts {
            self.sealed.turn.see(&facts);
        }
        Ok(())
    }
}

/// Checks a JSON text and says where in it something is wrong.
pub(crate) fn check_json(name: &str, text: &[u8]) -> Result<(), SealError> {
    json::check(text).map_err(|error| {
        let offset = match &error {
            json::InvalidJson::TooDeep { at }
            | json::InvalidJson::DuplicateKey { at, .. }
            | json::InvalidJson::Syntax { at } => *at,
        };
        SealError::Json { at: format!("{name}{}", place::path_at(text, offset)), error }
    })
}

/// What is reported of something that looks like a credential.
pub(crate) fn finding(at: &str, kind: SecretKind) -> ReportEntry {
    let (what, why) = match kind {
        SecretKind::TransferToken => (ReportKind::Redacted, "a transfer token was taken out".to_owned()),
        SecretKind::ApiKey
        | SecretKind::CodeHostToken
        | SecretKind::CloudKey
        | SecretKind::ChatToken
        | SecretKind::PrivateKey
        | SecretKind::SignedToken
        | SecretKind::Password
        | SecretKind::NamedValue
        | SecretKind::RandomValue => {
            (ReportKind::Degraded, format!("holds what looks like {}; it travels as it is", kind.words()))
        }
    };
    ReportEntry { what, at: at.to_owned(), why }
}
