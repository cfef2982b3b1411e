//! What a capture can use of an earlier snapshot in the same store.

use std::collections::{HashMap, HashSet};

use futures_util::StreamExt as _;
use handoff_protocol::Digest;
use handoff_protocol::manifest::{Manifest, Part, PartRef};
use handoff_protocol::port::{BlobError, BlobStore};

use super::CaptureError;
use crate::media;
use crate::tree::Tree;

/// Questions to the store at once.
const AT_ONCE: usize = 8;

/// What is still stored of an earlier snapshot.
#[derive(Debug, Default)]
pub(super) struct Prior {
    pub(super) stored: HashSet<Digest>,
    /// Layers of the workspace by their index.
    pub(super) workspace: HashMap<u32, PartRef>,
    pub(super) tree: Tree,
}

impl Prior {
    /// An earlier snapshot that is gone or unreadable only makes the capture larger.
    pub(super) async fn load(digest: Digest, blobs: &dyn BlobStore) -> Result<Self, CaptureError> {
        let Some(bytes) = readable(blobs.get(digest).await)? else { return Ok(Self::default()) };
        let Ok(manifest) = Manifest::parse(&bytes) else { return Ok(Self::default()) };
        let mut prior = Self::default();
        let sizes = manifest.parts.iter().map(|part| async move { (part, blobs.size(part.digest).await) });
        let sizes: Vec<_> = sizes.collect();
        let mut sizes = futures_util::stream::iter(sizes).buffer_unordered(AT_ONCE);
        while let Some((part, size)) = sizes.next().await {
            if size? == Some(part.size) {
                prior.stored.insert(part.digest);
                if part.part == Part::Workspace {
                    prior.workspace.insert(part.index, part.clone());
                }
            }
        }
        let sizes: Vec<u64> = manifest.of(Part::Workspace).skip(1).map(|part| part.logical_size).collect();
        if let Some(part) = prior.workspace.get(&0)
            && let Some(bytes) = readable(blobs.get(part.digest).await)?
        {
            let part = part.clone();
            let parse = move || Tree::parse(&media::decode(&part, bytes).ok()?, &sizes).ok();
            let tree = tokio::task::spawn_blocking(parse).await.map_err(|_| CaptureError::Ended)?;
            prior.tree = tree.unwrap_or_default();
        }
        Ok(prior)
    }
}

fn readable(got: Result<Vec<u8>, BlobError>) -> Result<Option<Vec<u8>>, BlobError> {
    match got {
        Ok(bytes) => Ok(Some(bytes)),
        Err(BlobError::NotFound(_) | BlobError::Mismatch(_)) => Ok(None),
        Err(error @ (BlobError::Full | BlobError::Unavailable(_))) => Err(error),
    }
}
