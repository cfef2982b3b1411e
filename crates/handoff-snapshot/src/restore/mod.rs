//! From a snapshot to a session directory and a workspace.
//!
//! All documents are read and checked before anything is written; everything is written beside its place
//! and moved there when it is whole.

mod staging;
mod workspace;

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use futures_util::{Stream, StreamExt as _, TryStreamExt as _};
use handoff_protocol::document::{McpServer, ReportEntry, SessionDocument};
use handoff_protocol::manifest::{Manifest, Part, PartRef};
use handoff_protocol::port::{BlobError, BlobStore};
use handoff_protocol::session_dir::{self, Boundary};
use handoff_protocol::{Digest, ErrorCode};
use rustix::fs::Mode;
use rustix::io::Errno;
use serde::de::DeserializeOwned;

use self::staging::Staging;
use self::workspace::Writer;
use crate::beneath;
use crate::fetch::{FetchError, Verified, part_bytes, verify};
use crate::media::{self, Undecodable};
use crate::message;
use crate::seal::SealError;
use crate::tree::{InvalidTree, Tree, TreeTotals};

/// Parts that are read and unpacked ahead of the writing.
const AHEAD: usize = 2;
/// What stands in a session directory for a snapshot without tool servers.
pub(crate) const NO_SERVERS: &[u8] = b"[]";

/// Where a session is restored to. Both places are free: missing, or empty directories. They are on
/// filesystems where a directory can be renamed within its parent, so neither is a mount point.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RestoreTarget {
    /// The session directory.
    pub state_dir: PathBuf,
    /// The workspace.
    pub workspace_dir: PathBuf,
    /// Whether the result survives a power cut. Whoever remembers durably that it was restored needs that.
    pub durable: bool,
}

impl RestoreTarget {
    /// A target that need not survive a power cut.
    pub const fn new(state_dir: PathBuf, workspace_dir: PathBuf) -> Self {
        Self { state_dir, workspace_dir, durable: false }
    }
}

/// What was restored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Restored {
    /// The snapshot.
    pub digest: Digest,
    /// The session document as it was written: its parent is the snapshot.
    pub session: SessionDocument,
    /// The boundary as it was written. Its step is the number of assistant messages.
    pub boundary: Boundary,
    /// What the workspace holds.
    pub workspace: TreeTotals,
    /// What did not survive as it was, from the snapshot.
    pub report: Vec<ReportEntry>,
}

/// Why a restore failed. Both places are as they were.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// The blobs are not there or not sound.
    #[error(transparent)]
    Fetch(#[from] FetchError),
    /// A part does not unpack.
    #[error("the {part} part: {error}")]
    Part {
        /// Which.
        part: &'static str,
        /// Why.
        error: Undecodable,
    },
    /// A JSON text that is not what it must be.
    #[error(transparent)]
    Text(#[from] SealError),
    /// A document that does not have its shape.
    #[error("the {part} part: {why}")]
    Document {
        /// Which.
        part: &'static str,
        /// What is wrong with it.
        why: String,
    },
    /// The tree breaks a rule.
    #[error(transparent)]
    Tree(#[from] InvalidTree),
    /// A file's bytes are not the ones that the tree names.
    #[error("the bytes of '{path}' are not the ones that the tree names")]
    Content {
        /// Which file.
        path: String,
    },
    /// Something is in the way.
    #[error("'{0}' is in use; a restore goes to a place that is free")]
    TargetInUse(PathBuf),
    /// There is no room.
    #[error("there is no room for the workspace")]
    Full,
    /// Something cannot be written.
    #[error("'{at}' cannot be written")]
    Io {
        /// Where.
        at: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The writing side ended without an answer. Always a bug.
    #[error("the restore ended early")]
    Ended,
}

impl RestoreError {
    fn io(at: &Path, source: io::Error) -> Self {
        match Errno::from_io_error(&source) {
            Some(Errno::NOSPC | Errno::DQUOT) => Self::Full,
            _ => Self::Io { at: at.to_owned(), source },
        }
    }

    /// The stable code.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Fetch(error) => error.code(),
            Self::Part { .. } | Self::Document { .. } | Self::Tree(_) => ErrorCode::SnapshotInvalid,
            Self::Text(error) => error.code(),
            Self::Content { .. } => ErrorCode::ChecksumMismatch,
            Self::TargetInUse(_) => ErrorCode::MoveBlocked,
            Self::Full => ErrorCode::StorageFull,
            Self::Io { .. } | Self::Ended => ErrorCode::Internal,
        }
    }
}

impl From<BlobError> for RestoreError {
    fn from(error: BlobError) -> Self {
        Self::Fetch(error.into())
    }
}

/// Verifies a snapshot in the local store and restores it.
///
/// # Errors
/// See [`RestoreError`]. A restore that was killed leaves only hidden neighbors of its places, and the next
/// one to the same places starts over.
pub async fn restore(
    digest: Digest,
    blobs: &dyn BlobStore,
    target: RestoreTarget,
) -> Result<Restored, RestoreError> {
    let verified = verify(digest, blobs).await?;
    restore_verified(&verified, blobs, target).await
}

/// Restores a snapshot that has been verified in this store.
///
/// # Errors
/// As [`restore`].
pub async fn restore_verified(
    verified: &Verified,
    blobs: &dyn BlobStore,
    target: RestoreTarget,
) -> Result<Restored, RestoreError> {
    let documents = Documents::read(verified, blobs).await?;
    let staging = blocking(move || Staging::start(target)).await?;
    let (workspace, report) = (documents.tree.totals(), documents.session.report.clone());
    match fill(verified, documents, blobs, &staging).await {
        Ok((session, boundary)) => {
            blocking(move || staging.place()).await?;
            Ok(Restored { digest: verified.digest(), session, boundary, workspace, report })
        }
        Err(error) => {
            blocking(move || {
                staging.discard();
                Ok(())
            })
            .await?;
            Err(error)
        }
    }
}

/// Everything of a snapshot that says how to read the rest.
struct Documents {
    session: SessionDocument,
    tree: Tree,
    texts: Vec<(&'static str, Vec<u8>)>,
}

impl Documents {
    async fn read(verified: &Verified, blobs: &dyn BlobStore) -> Result<Self, RestoreError> {
        let manifest = verified.manifest();
        let mut texts = Vec::new();
        let names = [
            (Part::SystemPrompt, session_dir::SYSTEM_PROMPT),
            (Part::ToolState, session_dir::TOOL_STATE),
            (Part::McpConfig, session_dir::MCP_CONFIG),
        ];
        for (part, name) in names {
            if let Some(found) = manifest.of(part).next() {
                texts.push((name, read_text(found, blobs).await?));
            }
        }
        match texts.iter().find(|(name, _)| *name == session_dir::MCP_CONFIG) {
            Some((_, text)) => drop(parse::<Vec<McpServer>>(Part::McpConfig, text)?),
            None => texts.push((session_dir::MCP_CONFIG, NO_SERVERS.to_vec())),
        }
        let session = read_session(manifest, blobs).await?;
        Ok(Self { session, tree: read_tree(manifest, blobs).await?, texts })
    }
}

/// The session part of a snapshot.
///
/// # Errors
/// Where it cannot be had or does not have its shape.
pub async fn read_session(
    manifest: &Manifest,
    blobs: &dyn BlobStore,
) -> Result<SessionDocument, RestoreError> {
    let part = manifest.parts.first().expect("a checked manifest starts with the session part");
    parse(Part::Session, &read_text(part, blobs).await?)
}

/// The tree of a snapshot's workspace; an empty one if it has none.
pub(crate) async fn read_tree(manifest: &Manifest, blobs: &dyn BlobStore) -> Result<Tree, RestoreError> {
    let mut layers = manifest.of(Part::Workspace);
    let Some(first) = layers.next() else { return Ok(Tree::default()) };
    let sizes: Vec<u64> = layers.map(|part| part.logical_size).collect();
    let raw = read_part(first, blobs).await?;
    blocking(move || Ok(Tree::parse(&raw, &sizes)?)).await
}

/// The raw bytes of a part.
pub(crate) async fn read_part(part: &PartRef, blobs: &dyn BlobStore) -> Result<Vec<u8>, RestoreError> {
    let stored = part_bytes(part, blobs).await?;
    let part = part.clone();
    blocking(move || {
        let undecodable = |error| RestoreError::Part { part: part.part.as_str(), error };
        media::decode(&part, stored).map_err(undecodable)
    })
    .await
}

async fn read_text(part: &PartRef, blobs: &dyn BlobStore) -> Result<Vec<u8>, RestoreError> {
    let text = read_part(part, blobs).await?;
    crate::conversation::check_json(part.part.as_str(), &text)?;
    Ok(text)
}

fn parse<T: DeserializeOwned>(part: Part, text: &[u8]) -> Result<T, RestoreError> {
    let parsed = serde_json::from_slice(text);
    parsed.map_err(|error| RestoreError::Document { part: part.as_str(), why: error.to_string() })
}

/// The raw bytes of several parts in order, read a little ahead.
pub(crate) fn read_parts<'p>(
    parts: impl Iterator<Item = &'p PartRef> + 'p,
    blobs: &'p dyn BlobStore,
) -> impl Stream<Item = Result<(u32, Vec<u8>), RestoreError>> + 'p {
    let read = move |part: &'p PartRef| async move { Ok((part.index, read_part(part, blobs).await?)) };
    // Collected, so that no closure over a borrowed part lives across an await: callers spawn this future.
    futures_util::stream::iter(parts.map(read).collect::<Vec<_>>()).buffered(AHEAD)
}

async fn fill(
    verified: &Verified,
    documents: Documents,
    blobs: &dyn BlobStore,
    staging: &Staging,
) -> Result<(SessionDocument, Boundary), RestoreError> {
    let Documents { mut session, tree, texts } = documents;
    session.lineage.parent = Some(verified.digest());
    let state = staging.open_state()?;
    let boundary = fill_messages(verified.manifest(), &session, blobs, &state).await?;
    let root = staging.open_workspace()?;
    let mut writer = blocking(move || Writer::start(root, tree)).await?;
    let mut packs = std::pin::pin!(read_parts(verified.manifest().of(Part::Workspace).skip(1), blobs));
    while let Some((index, raw)) = packs.try_next().await? {
        writer = blocking(move || writer.pack(index, &raw).map(|()| writer)).await?;
    }
    blocking(move || writer.finish()).await?;
    let written = (session, boundary);
    blocking(move || {
        let (session, boundary) = &written;
        for (name, text) in &texts {
            write(&state, name, text)?;
        }
        write(&state, session_dir::SESSION, &print(session))?;
        write(&state, session_dir::BOUNDARY, &print(boundary))?;
        Ok(written)
    })
    .await
}

/// Writes the conversation and says where it ends.
async fn fill_messages(
    manifest: &Manifest,
    session: &SessionDocument,
    blobs: &dyn BlobStore,
    state: &OwnedFd,
) -> Result<Boundary, RestoreError> {
    let mut file = create(state, session_dir::MESSAGES)?;
    let mut boundary = Boundary { step: 0, messages_bytes: 0, messages: 0, turn: session.turn.clone() };
    let mut chunks = std::pin::pin!(read_parts(manifest.of(Part::Messages), blobs));
    while let Some((_, raw)) = chunks.try_next().await? {
        (file, boundary) = blocking(move || {
            let boundary = count(&raw, boundary)?;
            file.write_all(&raw).map_err(|error| RestoreError::io(session_dir::MESSAGES.as_ref(), error))?;
            Ok((file, boundary))
        })
        .await?;
    }
    Ok(boundary)
}

/// Checks the messages of a chunk, as they were checked when they were sealed: by somebody else, maybe.
fn count(chunk: &[u8], mut boundary: Boundary) -> Result<Boundary, RestoreError> {
    for line in chunk.split_inclusive(|byte| *byte == b'\n') {
        let at = |path: &str| format!("messages[{}]{path}", boundary.messages);
        let Some(text) = line.strip_suffix(b"\n") else {
            return Err(SealError::Message { at: at(""), why: "a chunk ends within a message" }.into());
        };
        crate::conversation::check_json(&at(""), text)?;
        let role = message::role(text)
            .map_err(|fault| SealError::Message { at: at(&fault.path), why: fault.why })?;
        boundary.messages += 1;
        boundary.step += u64::from(role == "assistant");
    }
    boundary.messages_bytes += chunk.len() as u64;
    Ok(boundary)
}

fn create(dir: &OwnedFd, name: &str) -> Result<File, RestoreError> {
    let made = beneath::create_file(dir, name.as_bytes()).and_then(|file| {
        rustix::fs::fchmod(&file, Mode::RUSR | Mode::WUSR)?;
        Ok(File::from(file))
    });
    made.map_err(|error| RestoreError::io(name.as_ref(), error))
}

fn write(dir: &OwnedFd, name: &str, bytes: &[u8]) -> Result<(), RestoreError> {
    create(dir, name)?.write_all(bytes).map_err(|error| RestoreError::io(name.as_ref(), error))
}

fn print(document: &impl serde::Serialize) -> Vec<u8> {
    serde_json::to_vec(document).expect("plain data always prints")
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, RestoreError> + Send + 'static,
) -> Result<T, RestoreError> {
    tokio::task::spawn_blocking(work).await.unwrap_or(Err(RestoreError::Ended))
}
