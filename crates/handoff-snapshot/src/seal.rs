//! From the minimal input to a snapshot, without any file: what a caller gives is what is stored.
//!
//! One thing is not kept: a line break between two tokens of a message becomes a space, because a message is
//! a line. Inside a JSON string no line break can stand, so no value changes.

use handoff_protocol::document::{
    AgentInfo, Environment, Lineage, McpServer, ReportEntry, SessionDocument, SnapshotInput,
};
use handoff_protocol::json::InvalidJson;
use handoff_protocol::limits::SNAPSHOT_INPUT_BYTES;
use handoff_protocol::manifest::{Manifest, Part, PartRef};
use handoff_protocol::port::{BlobError, BlobStore};
use handoff_protocol::{Digest, ErrorCode, SessionId};

use crate::conversation::{Conversation, KnownChunks, Origin, check_json, finding};
use crate::limits::STATE_FILE_BYTES;
use crate::media::{self, Blob};
use crate::report::Report;
use crate::secret::{self, SecretKind};
use crate::shallow::{self, Kind};

/// Why an input cannot be sealed. Every variant says where, and none shows a value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    /// Not the JSON that is accepted.
    #[error("{at}: {error}")]
    Json {
        /// Which text, and where in it.
        at: String,
        /// What is wrong there.
        error: InvalidJson,
    },
    /// Not a message.
    #[error("{at}: {why}")]
    Message {
        /// Which message, and where in it.
        at: String,
        /// What is wrong there.
        why: &'static str,
    },
    /// Something that looks like a credential where a reference belongs.
    #[error("{at} looks like {}; name a credential reference instead", kind.words())]
    SecretFound {
        /// Where.
        at: String,
        /// What it looks like.
        kind: SecretKind,
    },
    /// More than the limits allow.
    #[error("{at} is larger than it may be")]
    TooLarge {
        /// What.
        at: String,
    },
    /// Not the document that was expected at all.
    #[error("{0}")]
    Document(String),
}

impl SealError {
    /// The stable code.
    pub const fn code(&self) -> ErrorCode {
        match self {
            Self::Json { .. } | Self::Message { .. } | Self::Document(_) => ErrorCode::SnapshotInvalid,
            Self::SecretFound { .. } => ErrorCode::SecretFound,
            Self::TooLarge { .. } => ErrorCode::PayloadTooLarge,
        }
    }
}

/// What the sealing side knows beside the input.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SealContext {
    /// The session, where it is known.
    pub session_id: Option<SessionId>,
    /// Its epoch, where it is known.
    pub epoch: Option<u64>,
    /// The snapshot that this one continues.
    pub parent: Option<Digest>,
}

/// A snapshot in memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealedSnapshot {
    /// The digest of the manifest: the snapshot's name.
    pub digest: Digest,
    /// The manifest.
    pub manifest: Manifest,
    /// All blobs, the manifest's bytes last.
    pub blobs: Vec<Blob>,
    /// The session part.
    pub session: SessionDocument,
}

impl SealedSnapshot {
    /// Stores all blobs, the manifest last: who finds the manifest finds its parts.
    ///
    /// # Errors
    /// As the store says; what was stored until then stays and harms nothing.
    pub async fn store(self, blobs: &dyn BlobStore) -> Result<Digest, BlobError> {
        for blob in self.blobs {
            blobs.put(blob.digest, blob.bytes).await?;
        }
        Ok(self.digest)
    }
}

/// Reads the minimal input from bytes of unknown origin: a file, an upload, an argument.
///
/// # Errors
/// Says what the bytes are where they are not the document: empty, another encoding, no JSON object, over
/// the limit. The texts inside are checked by [`seal`], each against the one depth limit.
pub fn parse_input(bytes: &[u8]) -> Result<SnapshotInput, SealError> {
    if bytes.len() > SNAPSHOT_INPUT_BYTES {
        return Err(SealError::TooLarge { at: format!("the input ({} bytes)", bytes.len()) });
    }
    let document = |why: &str| Err(SealError::Document(why.to_owned()));
    match bytes {
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => return document("the input is UTF-16; write it as UTF-8"),
        [0xef, 0xbb, 0xbf, ..] => return document("the input starts with a byte order mark; leave it out"),
        _ => {}
    }
    match bytes.iter().find(|byte| !byte.is_ascii_whitespace()) {
        None => return document("the input is empty"),
        Some(b'{') => {}
        Some(_) => return document("the input is not a JSON object"),
    }
    if let Err(error) = std::str::from_utf8(bytes) {
        return Err(SealError::Document(format!("the input is not UTF-8 at byte {}", error.valid_up_to())));
    }
    serde_json::from_slice(bytes).map_err(|error| SealError::Document(format!("the input: {error}")))
}

/// Seals the minimal input. The same input and context give the same digest.
///
/// # Errors
/// Says which text of the input is refused and why; nothing has been stored.
pub fn seal(input: &SnapshotInput, context: &SealContext) -> Result<SealedSnapshot, SealError> {
    let mut seal = Seal::default();
    let mut conversation = Conversation::new(Origin::Caller, KnownChunks::new());
    for message in &input.message_history {
        seal.blobs.extend(conversation.add(&one_line(message.get()))?);
    }
    let (conversation, tail) = conversation.finish()?;
    seal.blobs.extend(tail);
    seal.report.extend(conversation.report);
    if let Some(prompt) = &input.system_prompt {
        seal.text(Part::SystemPrompt, prompt.get().as_bytes())?;
    }
    seal.parts.extend(conversation.parts);
    if let Some(state) = &input.tool_state {
        seal.text(Part::ToolState, state.get().as_bytes())?;
    }
    seal.servers(&input.mcp_config)?;
    let session = SessionDocument {
        lineage: Lineage {
            session_id: context.session_id,
            epoch: context.epoch,
            parent: context.parent,
            source_host: input.source_host.clone(),
        },
        agent: AgentInfo { kind: "caller".to_owned(), version: "unknown".to_owned() },
        spent_usd: None,
        environment: Environment { os: "unknown".to_owned(), arch: "unknown".to_owned(), workspace: None },
        turn: conversation.turn.state(),
        model: None,
        report: std::mem::take(&mut seal.report).finish(),
    };
    Ok(seal.finish(session))
}

/// The message on one line.
fn one_line(message: &str) -> Vec<u8> {
    message.bytes().map(|byte| if matches!(byte, b'\n' | b'\r') { b' ' } else { byte }).collect()
}

/// Checks a text that is a part of its own; hands out what is stored of it and what was found in it.
pub(crate) fn check_text(part: Part, text: &[u8]) -> Result<(Option<Vec<u8>>, Vec<ReportEntry>), SealError> {
    let name = part.as_str();
    if text.len() as u64 > STATE_FILE_BYTES {
        return Err(SealError::TooLarge { at: name.to_owned() });
    }
    check_json(name, text)?;
    if part == Part::SystemPrompt && !matches!(shallow::kind(text), Kind::String | Kind::Array | Kind::Null) {
        let why = "a system prompt is a string or an array of blocks";
        return Err(SealError::Message { at: name.to_owned(), why });
    }
    let (clean, kinds) = secret::redact(text);
    Ok((clean, kinds.into_iter().map(|kind| finding(name, kind)).collect()))
}

/// Refuses a literal credential among the tool servers.
pub(crate) fn check_servers(servers: &[McpServer]) -> Result<(), SealError> {
    match secret::in_servers(servers) {
        Some((at, kind)) => Err(SealError::SecretFound { at, kind }),
        None => Ok(()),
    }
}

/// The manifest's name and everything that must be stored for it.
pub(crate) fn assemble(session: &SessionDocument, mut parts: Vec<PartRef>) -> (Manifest, Blob, Blob) {
    let text = serde_json::to_vec(session).expect("plain data always prints");
    let (part, blob) = media::encode(Part::Session, media::JSON, &text);
    parts.insert(0, part);
    parts.sort_by_key(|part| (part.part, part.index));
    let manifest = Manifest { parts };
    let bytes = Blob::of(manifest.to_bytes());
    (manifest, blob, bytes)
}

#[derive(Default)]
struct Seal {
    parts: Vec<PartRef>,
    blobs: Vec<Blob>,
    report: Report,
}

impl Seal {
    fn text(&mut self, part: Part, text: &[u8]) -> Result<(), SealError> {
        let (clean, findings) = check_text(part, text)?;
        self.report.extend(findings);
        self.part(part, clean.as_deref().unwrap_or(text));
        Ok(())
    }

    fn servers(&mut self, servers: &[McpServer]) -> Result<(), SealError> {
        check_servers(servers)?;
        if !servers.is_empty() {
            let text = serde_json::to_vec(servers).expect("plain data always prints");
            self.part(Part::McpConfig, &text);
        }
        Ok(())
    }

    fn part(&mut self, part: Part, raw: &[u8]) {
        let (part, blob) = media::encode(part, media::JSON, raw);
        self.parts.push(part);
        self.blobs.push(blob);
    }

    fn finish(mut self, session: SessionDocument) -> SealedSnapshot {
        let (manifest, part, bytes) = assemble(&session, self.parts);
        let digest = bytes.digest;
        self.blobs.extend([part, bytes]);
        SealedSnapshot { digest, manifest, blobs: self.blobs, session }
    }
}
