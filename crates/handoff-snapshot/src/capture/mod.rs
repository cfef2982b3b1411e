//! From a session directory and a workspace to a snapshot.
//!
//! The reading side is one blocking thread that hands finished blobs over a short queue; the storing side
//! puts a few of them at once. So memory holds a handful of packs, whatever the sizes are, and a store that
//! is slow or full slows or ends the reading.

mod index;
mod pack;
mod prior;
pub(crate) mod session;
mod storing;
mod walk;

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use handoff_protocol::document::{Environment, ReportEntry, ReportKind, SessionDocument};
use handoff_protocol::manifest::{Manifest, Part, PartRef};
use handoff_protocol::port::{BlobError, BlobStore};
use handoff_protocol::session_dir::Boundary;
use handoff_protocol::{Digest, ErrorCode, NanoUsd, SessionId};
use tokio::sync::mpsc;

pub use index::CaptureIndex;

use self::index::Memory;
use self::pack::Packer;
use self::prior::Prior;
use self::storing::{Outbox, store_all, store_one};
use self::walk::Walk;
pub(crate) use self::walk::uncarried;
use crate::media::{self, Blob};
use crate::report::Report;
use crate::seal::{SealError, assemble};
use crate::search::Search;
use crate::tree::{Tree, TreeTotals};

/// Times of files are taken as final when they are so old: the coarsest filesystem counts in steps of 2 s.
const COARSEST_TIME: Duration = Duration::from_secs(2);

/// Whether the loop may still be running.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// It may: files are taken as well as they can be, and the report says what moved.
    Draft,
    /// It stands still at a boundary: a session directory that moves is refused.
    Final,
}

/// What is captured, and what the capturing side knows about it.
#[derive(Debug, Clone)]
pub struct CaptureSource {
    /// The session directory; hostile where it came from a sandbox.
    pub state_dir: PathBuf,
    /// The workspace, if the session has one.
    pub workspace_dir: Option<PathBuf>,
    /// Whether the loop may be running.
    pub moment: Moment,
    /// The host, for people.
    pub source_host: String,
    /// The session; where absent, what the session directory says.
    pub session_id: Option<SessionId>,
    /// The epoch; where absent, what the session directory says.
    pub epoch: Option<u64>,
    /// The snapshot that the loop resumed from; where absent, what the session directory says.
    pub parent: Option<Digest>,
    /// What the session has spent, for people.
    pub spent_usd: Option<NanoUsd>,
    /// The workspace's path as the agent sees it, for people; where absent, `workspace_dir`.
    pub workspace_shown: Option<String>,
    /// Directories that do not travel, such as the product's own state.
    pub exclude: Vec<PathBuf>,
    /// What is remembered from the capture before.
    pub index: Arc<CaptureIndex>,
}

impl CaptureSource {
    /// A source of which nothing more is known.
    pub fn new(
        state_dir: PathBuf,
        workspace_dir: Option<PathBuf>,
        moment: Moment,
        source_host: String,
    ) -> Self {
        Self {
            state_dir,
            workspace_dir,
            moment,
            source_host,
            session_id: None,
            epoch: None,
            parent: None,
            spent_usd: None,
            workspace_shown: None,
            exclude: Vec::new(),
            index: Arc::default(),
        }
    }
}

/// A snapshot that has been captured and stored.
#[derive(Debug, Clone, PartialEq)]
pub struct Captured {
    /// The snapshot's name.
    pub digest: Digest,
    /// Its manifest, stored under that name too.
    pub manifest: Manifest,
    /// The session part.
    pub session: SessionDocument,
    /// Blobs that the store did not have before.
    pub new_blobs: u64,
    /// Their bytes.
    pub new_bytes: u64,
    /// Bytes of the whole snapshot as stored.
    pub total_bytes: u64,
    /// What the workspace holds.
    pub workspace: TreeTotals,
    /// What does not survive as it was.
    pub report: Vec<ReportEntry>,
    /// The step boundary that it was taken at.
    pub boundary: Boundary,
}

/// Why a capture failed. Blobs that were stored until then stay and harm nothing.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// A file of the session directory is missing, or not what it must be.
    #[error("{file} of the session directory: {why}")]
    Session {
        /// Which file.
        file: &'static str,
        /// What is wrong with it.
        why: String,
    },
    /// The session holds something that no snapshot may hold.
    #[error(transparent)]
    Seal(#[from] SealError),
    /// A final snapshot was asked for, and the session goes on.
    #[error("the session moved on while its final snapshot was taken")]
    Moving,
    /// More than the limits allow.
    #[error("{what} is larger than a snapshot takes")]
    TooLarge {
        /// What.
        what: &'static str,
    },
    /// The workspace cannot be read.
    #[error("'{at}' of the workspace cannot be read")]
    Io {
        /// Where, in the workspace.
        at: String,
        /// Why.
        source: io::Error,
    },
    /// The blobs cannot be stored.
    #[error(transparent)]
    Blobs(#[from] BlobError),
    /// The reading side ended without an answer. Always a bug.
    #[error("the capture ended early")]
    Ended,
}

impl CaptureError {
    pub(crate) fn io(path: &[u8], source: io::Error) -> Self {
        Self::Io { at: String::from_utf8_lossy(path).chars().take(300).collect(), source }
    }

    /// The stable code.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Session { .. } => ErrorCode::SnapshotInvalid,
            Self::Seal(error) => error.code(),
            Self::Moving => ErrorCode::NotFinal,
            Self::TooLarge { .. } => ErrorCode::PayloadTooLarge,
            Self::Io { .. } | Self::Ended => ErrorCode::Internal,
            Self::Blobs(error) => crate::blob_code(error),
        }
    }
}

/// Captures a session. With the digest of an earlier snapshot in the same store, only what is new since then
/// is packed and stored.
///
/// # Errors
/// See [`CaptureError`]; the manifest is stored last, so a failed capture leaves no snapshot.
pub async fn capture(
    source: CaptureSource,
    blobs: &dyn BlobStore,
    previous: Option<Digest>,
) -> Result<Captured, CaptureError> {
    let prior = match previous {
        Some(digest) => Prior::load(digest, blobs).await?,
        None => Prior::default(),
    };
    let (sender, receiver) = mpsc::channel(storing::QUEUE);
    let index = source.index.clone();
    let memory = index.take();
    let reading = tokio::task::spawn_blocking(move || gather(&source, &prior, memory, &Outbox::new(sender)));
    let stored = store_all(receiver, blobs).await;
    let gathered = reading.await.map_err(|_| CaptureError::Ended)?;
    // The storing side's failure is the cause of the reading side's.
    let mut new = stored?;
    let Gathered { manifest, manifest_blob, session, workspace, boundary, memory } = gathered?;
    index.put_back(memory);
    let digest = manifest_blob.digest;
    let total_bytes = manifest.size() + manifest_blob.bytes.len() as u64;
    new.add(store_one(manifest_blob, blobs).await?);
    let report = session.report.clone();
    let (new_blobs, new_bytes) = (new.blobs, new.bytes);
    Ok(Captured { digest, manifest, session, new_blobs, new_bytes, total_bytes, workspace, report, boundary })
}

struct Gathered {
    manifest: Manifest,
    manifest_blob: Blob,
    session: SessionDocument,
    workspace: TreeTotals,
    boundary: Boundary,
    memory: Memory,
}

fn gather(
    source: &CaptureSource,
    prior: &Prior,
    mut memory: Memory,
    outbox: &Outbox,
) -> Result<Gathered, CaptureError> {
    let files = session::read(&source.state_dir, source.moment)?;
    memory.chunks.retain(|_, chunk| prior.stored.contains(&chunk.digest()));
    let messages = session::seal_messages(&files, memory.chunks, outbox)?;
    let mut report = Report::default();
    if !files.is_settled {
        let why = "the session moved on while the draft was taken; its parts may be of different steps";
        report.add(ReportKind::Degraded, "session", why);
    }
    let mut parts = messages.parts;
    for (part, text) in &files.texts {
        let (part, blob) = media::encode(*part, media::JSON, text);
        outbox.send(Some(blob))?;
        parts.push(part);
    }
    report.extend(files.findings);
    report.extend(messages.report);
    let (mut workspace, mut known_files) = (TreeTotals::default(), HashMap::new());
    if let Some(dir) = &source.workspace_dir {
        let found = gather_workspace(source, dir, prior, &memory.files, outbox)?;
        workspace = found.totals;
        known_files = found.files;
        parts.extend(found.parts);
        report.extend(found.report);
    }
    let session = describe(source, files.session, &files.boundary, report.finish());
    let (manifest, session_blob, manifest_blob) = assemble(&session, parts);
    if Manifest::parse(&manifest_blob.bytes).is_err() {
        return Err(CaptureError::TooLarge { what: "the session and its workspace together" });
    }
    outbox.send(Some(session_blob))?;
    let memory = Memory { files: known_files, chunks: messages.chunks };
    Ok(Gathered { manifest, manifest_blob, session, workspace, boundary: files.boundary, memory })
}

fn describe(
    source: &CaptureSource,
    mut session: SessionDocument,
    boundary: &Boundary,
    report: Vec<ReportEntry>,
) -> SessionDocument {
    let lineage = &mut session.lineage;
    lineage.session_id = source.session_id.or(lineage.session_id);
    lineage.epoch = source.epoch.or(lineage.epoch);
    lineage.parent = source.parent.or(lineage.parent);
    lineage.source_host.clone_from(&source.source_host);
    let shown = source.workspace_dir.as_ref().map(|dir| dir.to_string_lossy().into_owned());
    session.environment = Environment {
        os: std::env::consts::OS.to_owned(),
        arch: std::env::consts::ARCH.to_owned(),
        workspace: source.workspace_shown.clone().or(shown),
    };
    session.spent_usd = source.spent_usd.or(session.spent_usd);
    session.turn = boundary.turn.clone();
    session.report = report;
    session
}

struct FoundWorkspace {
    parts: Vec<PartRef>,
    totals: TreeTotals,
    files: HashMap<Vec<u8>, index::KnownFile>,
    report: Vec<ReportEntry>,
}

fn gather_workspace(
    source: &CaptureSource,
    dir: &Path,
    prior: &Prior,
    known: &HashMap<Vec<u8>, index::KnownFile>,
    outbox: &Outbox,
) -> Result<FoundWorkspace, CaptureError> {
    let root = crate::beneath::open_root(dir).map_err(|error| CaptureError::io(b".", error))?;
    let excluded =
        source.exclude.iter().chain([&source.state_dir]).filter_map(|path| identity(path)).collect();
    let settled = settled_before_ns();
    let search = || Search::of_capture(source.moment);
    let mut packer = Packer::new(&prior.tree, &prior.workspace);
    let mut found = Walk::new(&mut packer, known, &excluded, outbox, settled, search()).run(&root)?;
    if packer.give_up(&found.entries) {
        found = Walk::new(&mut packer, known, &excluded, outbox, settled, search()).run(&root)?;
    }
    let layers = packer.finish(&mut found.entries);
    let tree = Tree { entries: found.entries };
    let (part, blob) = media::encode(Part::Workspace, media::TREE, &tree.to_bytes());
    if part.logical_size > crate::limits::PART_LOGICAL_BYTES {
        return Err(CaptureError::TooLarge { what: "the workspace's number of files" });
    }
    outbox.send(Some(blob))?;
    let parts = std::iter::once(part).chain(layers).collect();
    Ok(FoundWorkspace { parts, totals: tree.totals(), files: found.files, report: found.report.finish() })
}

/// The device and inode of a directory: the same directory under any name.
fn identity(path: &Path) -> Option<(u64, u64)> {
    let found = rustix::fs::stat(path).ok()?;
    Some((found.st_dev, found.st_ino))
}

fn settled_before_ns() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.saturating_sub(COARSEST_TIME).as_nanos()).unwrap_or(i64::MAX)
}
