//! The storing side of a capture: blobs arrive over a short queue and a few are put at once.

use futures_util::StreamExt as _;
use handoff_protocol::port::{BlobError, BlobStore};
use tokio::sync::mpsc;

use super::CaptureError;
use crate::media::Blob;

/// Blobs that wait to be stored.
pub(super) const QUEUE: usize = 2;
/// Blobs that are stored at once.
const STORED_AT_ONCE: usize = 4;

/// The way from the reading to the storing side.
pub(super) struct Outbox(mpsc::Sender<Blob>);

impl Outbox {
    pub(super) const fn new(sender: mpsc::Sender<Blob>) -> Self {
        Self(sender)
    }

    /// Waits until there is room. Fails when nobody stores any more; the storing side knows why.
    pub(super) fn send(&self, blob: Option<Blob>) -> Result<(), CaptureError> {
        match blob {
            Some(blob) => self.0.blocking_send(blob).map_err(|_| CaptureError::Ended),
            None => Ok(()),
        }
    }
}

/// Blobs that the store did not have, and their bytes.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Stored {
    pub(super) blobs: u64,
    pub(super) bytes: u64,
}

impl Stored {
    pub(super) fn add(&mut self, other: Self) {
        self.blobs += other.blobs;
        self.bytes += other.bytes;
    }
}

pub(super) async fn store_all(
    mut receiver: mpsc::Receiver<Blob>,
    blobs: &dyn BlobStore,
) -> Result<Stored, BlobError> {
    let incoming = futures_util::stream::poll_fn(move |context| receiver.poll_recv(context));
    let mut puts = incoming.map(|blob| store_one(blob, blobs)).buffer_unordered(STORED_AT_ONCE);
    let mut all = Stored::default();
    while let Some(stored) = puts.next().await {
        all.add(stored?);
    }
    Ok(all)
}

pub(super) async fn store_one(blob: Blob, blobs: &dyn BlobStore) -> Result<Stored, BlobError> {
    let bytes = blob.bytes.len() as u64;
    if blobs.size(blob.digest).await? == Some(bytes) {
        return Ok(Stored::default());
    }
    blobs.put(blob.digest, blob.bytes).await?;
    Ok(Stored { blobs: 1, bytes })
}
