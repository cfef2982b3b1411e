//! The port to wherever snapshot bytes live.

use async_trait::async_trait;

use crate::Digest;

/// Content-addressed bytes. A blob is stored whole or not at all, and what comes back is what its name says.
#[async_trait]
pub trait BlobStore: Send + Sync {
    /// Stores the bytes under their digest; storing them again changes nothing.
    async fn put(&self, digest: Digest, bytes: Vec<u8>) -> Result<(), BlobError>;

    /// The bytes, verified against the digest.
    async fn get(&self, digest: Digest) -> Result<Vec<u8>, BlobError>;

    /// How many bytes it has, if it is stored.
    async fn size(&self, digest: Digest) -> Result<Option<u64>, BlobError>;

    /// Forgets it. Only the collector calls this.
    async fn delete(&self, digest: Digest) -> Result<(), BlobError>;
}

/// Why bytes could not be stored or had.
#[derive(Debug, thiserror::Error)]
pub enum BlobError {
    /// It is not stored here.
    #[error("there is no blob {0}")]
    NotFound(Digest),
    /// The bytes are not the ones that the name says.
    #[error("the bytes of {0} do not have that digest")]
    Mismatch(Digest),
    /// There is no room, or the fill mark is reached.
    #[error("there is no room for more blobs")]
    Full,
    /// The place cannot be reached now.
    #[error("the blob store does not answer")]
    Unavailable(#[source] Box<dyn std::error::Error + Send + Sync>),
}
