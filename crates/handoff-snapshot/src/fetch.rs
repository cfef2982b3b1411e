//! Bringing a snapshot's blobs to where they will be unpacked, and proving that all are what they should be.
//!
//! A fetch that was cut goes on where it stopped: what is there is not fetched again. [`Verified`] can only
//! be had from here, and a restore takes nothing else: nothing is unpacked that was not verified.

use std::collections::HashSet;

use futures_util::{StreamExt as _, TryStreamExt as _};
use handoff_protocol::limits::MANIFEST_BYTES;
use handoff_protocol::manifest::{InvalidManifest, Manifest, PartRef};
use handoff_protocol::port::{BlobError, BlobStore};
use handoff_protocol::{Digest, ErrorCode};

use crate::limits::PART_LOGICAL_BYTES;

/// Blobs that are fetched or verified at once.
const AT_ONCE: usize = 4;

/// A snapshot of which every blob is in the local store and has been verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verified {
    digest: Digest,
    manifest: Manifest,
}

impl Verified {
    /// The snapshot's name.
    pub const fn digest(&self) -> Digest {
        self.digest
    }

    /// Its manifest.
    pub const fn manifest(&self) -> &Manifest {
        &self.manifest
    }
}

/// What a fetch did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fetched {
    /// The proof.
    pub verified: Verified,
    /// Bytes that had to be fetched.
    pub bytes_fetched: u64,
    /// Bytes of the whole snapshot as stored, its manifest included.
    pub bytes_total: u64,
}

/// Why a snapshot cannot be had. Nothing has been unpacked.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// The blob under the snapshot's name is no manifest that this program reads.
    #[error(transparent)]
    Manifest(#[from] InvalidManifest),
    /// A part that unpacks to more than a part may.
    #[error("a part of the snapshot unpacks to more than {PART_LOGICAL_BYTES} bytes")]
    TooLarge,
    /// A blob has another size than the manifest says.
    #[error("{digest} has {found} bytes, and the manifest says {expected}")]
    Size {
        /// The blob.
        digest: Digest,
        /// As it is.
        found: u64,
        /// As it should be.
        expected: u64,
    },
    /// A blob is missing, damaged, or cannot be stored.
    #[error(transparent)]
    Blobs(#[from] BlobError),
}

impl FetchError {
    /// The stable code.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Manifest(InvalidManifest::Version(_)) => ErrorCode::VersionUnsupported,
            Self::Manifest(
                InvalidManifest::TooLarge | InvalidManifest::Shape(_) | InvalidManifest::Layer { .. },
            ) => ErrorCode::SnapshotInvalid,
            Self::TooLarge => ErrorCode::PayloadTooLarge,
            Self::Size { .. } => ErrorCode::ChecksumMismatch,
            Self::Blobs(error) => crate::blob_code(error),
        }
    }
}

/// The parts whose blobs are not in the store, each blob once.
///
/// # Errors
/// As the store says.
pub async fn missing(manifest: &Manifest, blobs: &dyn BlobStore) -> Result<Vec<PartRef>, BlobError> {
    let (mut missing, mut seen) = (Vec::new(), HashSet::new());
    for part in &manifest.parts {
        if seen.insert(part.digest) && blobs.size(part.digest).await? != Some(part.size) {
            missing.push(part.clone());
        }
    }
    Ok(missing)
}

/// Reads and checks the manifest of a snapshot.
///
/// # Errors
/// Where it is not stored, damaged, or breaks a rule of the format.
pub async fn manifest(digest: Digest, blobs: &dyn BlobStore) -> Result<Manifest, FetchError> {
    let bytes = blobs.get(digest).await?;
    parse_manifest(digest, &bytes)
}

fn parse_manifest(digest: Digest, bytes: &[u8]) -> Result<Manifest, FetchError> {
    if bytes.len() > MANIFEST_BYTES {
        return Err(InvalidManifest::TooLarge.into());
    }
    if Digest::of(bytes) != digest {
        return Err(BlobError::Mismatch(digest).into());
    }
    let manifest = Manifest::parse(bytes)?;
    if manifest.parts.iter().any(|part| part.logical_size > PART_LOGICAL_BYTES) {
        return Err(FetchError::TooLarge);
    }
    Ok(manifest)
}

/// Fetches what the local store lacks of a snapshot, and verifies all of it. The manifest is stored last.
///
/// # Errors
/// See [`FetchError`]. What was fetched until then stays, and is not fetched again.
pub async fn fetch(digest: Digest, from: &dyn BlobStore, to: &dyn BlobStore) -> Result<Fetched, FetchError> {
    let bytes = match to.get(digest).await {
        Ok(bytes) => bytes,
        Err(BlobError::NotFound(_) | BlobError::Mismatch(_)) => from.get(digest).await?,
        Err(error @ (BlobError::Full | BlobError::Unavailable(_))) => return Err(error.into()),
    };
    let manifest = parse_manifest(digest, &bytes)?;
    let bytes_total = manifest.size() + bytes.len() as u64;
    // Collected, so that no closure over a borrowed part lives across an await: callers spawn this future.
    let fetches: Vec<_> = manifest.parts.iter().map(|part| fetch_part(part, from, to)).collect();
    let fetched: Vec<u64> =
        futures_util::stream::iter(fetches).buffer_unordered(AT_ONCE).try_collect().await?;
    let mut bytes_fetched = fetched.into_iter().sum();
    if to.size(digest).await? != Some(bytes.len() as u64) {
        bytes_fetched += bytes.len() as u64;
        to.put(digest, bytes).await?;
    }
    Ok(Fetched { verified: Verified { digest, manifest }, bytes_fetched, bytes_total })
}

/// The bytes that were fetched; none if the blob is there and sound.
async fn fetch_part(part: &PartRef, from: &dyn BlobStore, to: &dyn BlobStore) -> Result<u64, FetchError> {
    match verify_part(part, to).await {
        Ok(()) => return Ok(0),
        Err(FetchError::Blobs(BlobError::NotFound(_))) => {}
        // Damaged here: it makes room for the sound one.
        Err(FetchError::Blobs(BlobError::Mismatch(_))) => to.delete(part.digest).await?,
        Err(error) => return Err(error),
    }
    let bytes = from.get(part.digest).await?;
    check_size(part, &bytes)?;
    if Digest::of(&bytes) != part.digest {
        return Err(BlobError::Mismatch(part.digest).into());
    }
    to.put(part.digest, bytes).await?;
    Ok(part.size)
}

/// Verifies a snapshot whose blobs should all be in the store.
///
/// # Errors
/// Where one is missing or damaged.
pub async fn verify(digest: Digest, blobs: &dyn BlobStore) -> Result<Verified, FetchError> {
    let manifest = manifest(digest, blobs).await?;
    let checks: Vec<_> = manifest.parts.iter().map(|part| verify_part(part, blobs)).collect();
    futures_util::stream::iter(checks).buffer_unordered(AT_ONCE).try_collect::<()>().await?;
    Ok(Verified { digest, manifest })
}

/// The store has verified the digest; a size that differs is the manifest's lie and no damage.
async fn verify_part(part: &PartRef, blobs: &dyn BlobStore) -> Result<(), FetchError> {
    check_size(part, &blobs.get(part.digest).await?)
}

/// The bytes of a part, of the size that the manifest says.
pub(crate) async fn part_bytes(part: &PartRef, blobs: &dyn BlobStore) -> Result<Vec<u8>, FetchError> {
    let bytes = blobs.get(part.digest).await?;
    check_size(part, &bytes)?;
    Ok(bytes)
}

fn check_size(part: &PartRef, bytes: &[u8]) -> Result<(), FetchError> {
    if bytes.len() as u64 == part.size {
        return Ok(());
    }
    Err(FetchError::Size { digest: part.digest, found: bytes.len() as u64, expected: part.size })
}
