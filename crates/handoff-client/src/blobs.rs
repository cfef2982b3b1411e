//! Snapshot bytes over the wire: the routes, and the blob port on top of them.

use async_trait::async_trait;
use bytes::Bytes;
use handoff_protocol::limits::BLOB_BYTES;
use handoff_protocol::port::{BlobError, BlobStore};
use handoff_protocol::{Digest, ErrorCode};
use http::{Method, header};

use crate::call::Call;
use crate::transport::Answer;
use crate::{Client, ClientError};

/// How long one blob may take, either way.
const BLOB_WAIT_MS: u64 = 120_000;

fn path(digest: Digest) -> String {
    format!("/v1/blobs/{digest}")
}

fn most() -> usize {
    usize::try_from(BLOB_BYTES).expect("a blob fits into memory")
}

impl Client {
    /// How many bytes a blob has, if it is stored.
    pub async fn blob_size(&self, digest: Digest) -> Result<Option<u64>, ClientError> {
        let call = Call::bytes(Method::HEAD, path(digest), None);
        self.patiently(call, size).await
    }

    /// A blob's bytes from `from` on; all of them from 0. They are not verified here.
    pub async fn blob(&self, digest: Digest, from: u64) -> Result<Bytes, ClientError> {
        let mut call = Call::bytes(Method::GET, path(digest), None).at_most(most()).waiting(BLOB_WAIT_MS);
        if from > 0 {
            call = call.header(header::RANGE, format!("bytes={from}-"));
        }
        let read = |answer: &Answer, at: &str| {
            answer.check(at)?;
            let partial = answer.status == http::StatusCode::PARTIAL_CONTENT;
            if partial != (from > 0) {
                return Err(answer.unreadable(at, "it is not the range that was asked for".to_owned()));
            }
            Ok(answer.body.clone())
        };
        self.patiently(call, read).await
    }

    /// Stores a blob under its digest.
    pub async fn put_blob(&self, digest: Digest, bytes: Bytes) -> Result<(), ClientError> {
        let call = Call::bytes(Method::PUT, path(digest), Some(bytes)).waiting(BLOB_WAIT_MS);
        self.patiently(call, |answer, at| answer.check(at)).await
    }
}

/// The answer to HEAD has no body, so its status stands alone.
fn size(answer: &Answer, at: &str) -> Result<Option<u64>, ClientError> {
    if answer.status == http::StatusCode::NOT_FOUND {
        return Ok(None);
    }
    if !answer.status.is_success() {
        return Err(answer.bare_problem(at));
    }
    let length = answer.headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok());
    match length.and_then(|text| text.parse().ok()) {
        Some(bytes) => Ok(Some(bytes)),
        None => Err(answer.unreadable(at, "it does not say a length".to_owned())),
    }
}

/// The control plane's blobs as a blob store.
#[derive(Debug, Clone)]
pub struct ClientBlobs {
    client: Client,
}

impl ClientBlobs {
    /// Over this client.
    pub fn new(client: Client) -> Self {
        Self { client }
    }
}

#[async_trait]
impl BlobStore for ClientBlobs {
    async fn put(&self, digest: Digest, bytes: Vec<u8>) -> Result<(), BlobError> {
        self.client.put_blob(digest, bytes.into()).await.map_err(|error| failed(error, digest))
    }

    async fn get(&self, digest: Digest) -> Result<Vec<u8>, BlobError> {
        let bytes = self.client.blob(digest, 0).await.map_err(|error| failed(error, digest))?;
        if Digest::of(&bytes) == digest { Ok(bytes.into()) } else { Err(BlobError::Mismatch(digest)) }
    }

    async fn size(&self, digest: Digest) -> Result<Option<u64>, BlobError> {
        self.client.blob_size(digest).await.map_err(|error| failed(error, digest))
    }

    async fn delete(&self, _: Digest) -> Result<(), BlobError> {
        // Only the collector deletes, and it stands beside the store, not behind the wire.
        Err(BlobError::Unavailable("blobs are not deleted over the wire".into()))
    }
}

fn failed(error: ClientError, digest: Digest) -> BlobError {
    match error.code() {
        Some(ErrorCode::NotFound) => BlobError::NotFound(digest),
        Some(ErrorCode::ChecksumMismatch) => BlobError::Mismatch(digest),
        Some(ErrorCode::StorageFull) => BlobError::Full,
        Some(_) | None => BlobError::Unavailable(Box::new(error)),
    }
}
