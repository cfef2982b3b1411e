//! Looking into a snapshot without restoring it.

use std::collections::BTreeMap;
use std::path::Path;

use futures_util::TryStreamExt as _;
use handoff_protocol::Digest;
use handoff_protocol::document::SessionDocument;
use handoff_protocol::manifest::{Manifest, Part};
use handoff_protocol::port::BlobStore;
use serde::Serialize;

use crate::capture::{CaptureError, Moment, session};
use crate::fetch;
use crate::message;
use crate::restore::{RestoreError, read_parts, read_session, read_tree};
use crate::tree::TreeTotals;

/// Roles that are counted by name; a hostile conversation may have one for each message.
const ROLES: usize = 32;
const OTHER: &str = "(other)";

/// What a snapshot is, for people and for `--json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// Its name.
    pub digest: Digest,
    /// Bytes as stored, without the manifest.
    pub size: u64,
    /// Bytes that its parts unpack to.
    pub logical_size: u64,
    /// Its parts, in the order of the manifest.
    pub parts: Vec<PartSummary>,
    /// The conversation.
    pub messages: MessagesSummary,
    /// The workspace.
    pub workspace: TreeTotals,
    /// Lineage, environment, turn state, report.
    pub session: SessionDocument,
}

/// All layers of one part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PartSummary {
    /// The part's word.
    pub part: &'static str,
    /// How many layers it has.
    pub layers: u64,
    /// Bytes as stored.
    pub size: u64,
    /// Bytes that they unpack to.
    pub logical_size: u64,
}

/// A conversation in numbers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct MessagesSummary {
    /// Messages.
    pub count: u64,
    /// Bytes, line ends included.
    pub bytes: u64,
    /// Messages by role.
    pub roles: BTreeMap<String, u64>,
}

/// Summarises a snapshot. It reads every message and the tree, and no file.
///
/// # Errors
/// Where a part that it reads is missing or not sound.
pub async fn inspect(digest: Digest, blobs: &dyn BlobStore) -> Result<Summary, RestoreError> {
    let manifest = fetch::manifest(digest, blobs).await?;
    let session = read_session(&manifest, blobs).await?;
    let workspace = read_tree(&manifest, blobs).await?.totals();
    let messages = count_messages(&manifest, blobs).await?;
    let parts = summarize(&manifest);
    let logical_size = parts.iter().map(|part| part.logical_size).sum();
    Ok(Summary { digest, size: manifest.size(), logical_size, parts, messages, workspace, session })
}

fn summarize(manifest: &Manifest) -> Vec<PartSummary> {
    let of = |part: Part| {
        let empty = PartSummary { part: part.as_str(), layers: 0, size: 0, logical_size: 0 };
        manifest.of(part).fold(empty, |sum, layer| PartSummary {
            layers: sum.layers + 1,
            size: sum.size + layer.size,
            logical_size: sum.logical_size + layer.logical_size,
            ..sum
        })
    };
    Part::ALL.into_iter().map(of).filter(|part| part.layers > 0).collect()
}

async fn count_messages(manifest: &Manifest, blobs: &dyn BlobStore) -> Result<MessagesSummary, RestoreError> {
    let mut summary = MessagesSummary::default();
    let mut chunks = std::pin::pin!(read_parts(manifest.of(Part::Messages), blobs));
    while let Some((_, chunk)) = chunks.try_next().await? {
        summary.bytes += chunk.len() as u64;
        for line in lines(&chunk) {
            summary.count += 1;
            let role = message::role(line).unwrap_or_else(|_| OTHER.to_owned());
            let known = summary.roles.contains_key(&role) || summary.roles.len() < ROLES;
            *summary.roles.entry(if known { role } else { OTHER.to_owned() }).or_default() += 1;
        }
    }
    Ok(summary)
}

/// The digest of each message of a snapshot, without its line end: two histories have the same beginning
/// where these lists have.
///
/// # Errors
/// Where a chunk is missing or not sound.
pub async fn history(digest: Digest, blobs: &dyn BlobStore) -> Result<Vec<Digest>, RestoreError> {
    let manifest = fetch::manifest(digest, blobs).await?;
    let mut digests = Vec::new();
    let mut chunks = std::pin::pin!(read_parts(manifest.of(Part::Messages), blobs));
    while let Some((_, chunk)) = chunks.try_next().await? {
        digests.extend(lines(&chunk).map(Digest::of));
    }
    Ok(digests)
}

/// The digest of each message of a session directory up to its boundary, as [`history`] gives them of a
/// snapshot of it.
///
/// # Errors
/// Where the directory is not one that can be captured.
pub fn history_of_directory(state_dir: &Path) -> Result<Vec<Digest>, CaptureError> {
    let mut digests = Vec::new();
    let files = session::read(state_dir, Moment::Draft)?;
    session::each_message(&files, |message| {
        digests.push(Digest::of(message));
        Ok(())
    })?;
    Ok(digests)
}

fn lines(chunk: &[u8]) -> impl Iterator<Item = &[u8]> {
    chunk.split_inclusive(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\n").unwrap_or(line))
}
