//! A snapshot as an OCI image layout: a directory that registries' tools carry as they are.
//!
//! ```text
//! oci-layout                {"imageLayoutVersion":"1.0.0"}
//! index.json                names the one manifest
//! blobs/sha256/<64 digits>  the manifest, its parts, and the empty config
//! ```
//!
//! Source of the form: OCI Image Layout Specification 1.0, `image-layout.md`.

use std::fs;
use std::io::{self, Read as _};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use handoff_protocol::limits::BLOB_BYTES;
use handoff_protocol::manifest::{ARTIFACT_TYPE, EMPTY_CONFIG, MANIFEST_MEDIA_TYPE};
use handoff_protocol::port::{BlobError, BlobStore};
use handoff_protocol::{Digest, ErrorCode, json};
use serde::{Deserialize, Serialize};

use crate::beneath;
use crate::fetch::{FetchError, Fetched, fetch};
use crate::limits::SMALL_FILE_BYTES;

const MARKER: &str = "oci-layout";
const VERSION: &str = r#"{"imageLayoutVersion":"1.0.0"}"#;
const INDEX: &str = "index.json";
const INDEX_MEDIA_TYPE: &str = "application/vnd.oci.image.index.v1+json";
const BLOBS: &str = "blobs/sha256";

/// Why a layout cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum LayoutError {
    /// It is no layout, or holds no snapshot, or several.
    #[error("no snapshot layout: {0}")]
    Shape(String),
    /// A file cannot be read or written.
    #[error("'{at}' of the layout")]
    Io {
        /// Which.
        at: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The snapshot in it is not whole or not sound.
    #[error(transparent)]
    Fetch(#[from] FetchError),
}

impl LayoutError {
    /// The stable code.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Shape(_) => ErrorCode::SnapshotInvalid,
            Self::Io { .. } => ErrorCode::Internal,
            Self::Fetch(error) => error.code(),
        }
    }
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Index {
    schema_version: u32,
    #[serde(default)]
    media_type: String,
    manifests: Vec<Named>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Named {
    media_type: String,
    digest: Digest,
    size: u64,
    #[serde(default)]
    artifact_type: String,
}

/// Writes a snapshot to a directory, which is made if it is missing. The index is written last.
///
/// # Errors
/// Where the snapshot is not whole, or the directory cannot be written.
pub async fn write_layout(digest: Digest, blobs: &dyn BlobStore, dir: &Path) -> Result<Fetched, LayoutError> {
    fs::create_dir_all(dir.join(BLOBS)).map_err(|source| io_at(&dir.join(BLOBS), source))?;
    let layout = Layout { dir: dir.to_owned() };
    let fetched = fetch(digest, blobs, &layout).await?;
    let stored = |error: BlobError| LayoutError::Fetch(error.into());
    layout.put(Digest::of(EMPTY_CONFIG), EMPTY_CONFIG.to_vec()).await.map_err(stored)?;
    let size = layout.size(digest).await.map_err(stored)?.unwrap_or_default();
    let index = Index {
        schema_version: 2,
        media_type: INDEX_MEDIA_TYPE.to_owned(),
        manifests: vec![Named {
            media_type: MANIFEST_MEDIA_TYPE.to_owned(),
            digest,
            size,
            artifact_type: ARTIFACT_TYPE.to_owned(),
        }],
    };
    let index = serde_json::to_vec(&index).expect("plain data always prints");
    for (name, bytes) in [(MARKER, VERSION.as_bytes()), (INDEX, &index)] {
        fs::write(dir.join(name), bytes).map_err(|source| io_at(&dir.join(name), source))?;
    }
    Ok(fetched)
}

/// Reads the snapshot of a layout of unknown origin into a store, verified.
///
/// # Errors
/// Where it is no layout, holds not exactly one snapshot, or that is not whole and sound.
pub async fn read_layout(dir: &Path, blobs: &dyn BlobStore) -> Result<Fetched, LayoutError> {
    let root = beneath::open_root(dir).map_err(|source| io_at(dir, source))?;
    let small = |name: &'static str| {
        let read = read_beneath(&root, name.as_bytes(), SMALL_FILE_BYTES);
        read.map_err(|error| LayoutError::Shape(format!("{name}: {error}")))
    };
    small(MARKER)?;
    let index = small(INDEX)?;
    json::check(&index).map_err(|error| LayoutError::Shape(format!("{INDEX}: {error}")))?;
    let index: Index =
        serde_json::from_slice(&index).map_err(|error| LayoutError::Shape(format!("{INDEX}: {error}")))?;
    let named: Vec<_> =
        index.manifests.iter().filter(|found| found.media_type == MANIFEST_MEDIA_TYPE).collect();
    let [named] = named[..] else {
        return Err(LayoutError::Shape(format!("{INDEX} names {} manifests, not one", named.len())));
    };
    Ok(fetch(named.digest, &Layout { dir: dir.to_owned() }, blobs).await?)
}

/// The blobs of a layout.
struct Layout {
    dir: PathBuf,
}

impl Layout {
    async fn run<T: Send + 'static>(
        &self,
        digest: Digest,
        work: impl FnOnce(&Path, &str) -> io::Result<T> + Send + 'static,
    ) -> Result<T, BlobError> {
        let dir = self.dir.clone();
        let done =
            tokio::task::spawn_blocking(move || work(&dir, &format!("{BLOBS}/{}", digest.hex()))).await;
        let done = done.map_err(|error| BlobError::Unavailable(Box::new(error)))?;
        done.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => BlobError::NotFound(digest),
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => BlobError::Full,
            io::ErrorKind::InvalidData => BlobError::Mismatch(digest),
            _ => BlobError::Unavailable(Box::new(error)),
        })
    }
}

#[async_trait]
impl BlobStore for Layout {
    async fn put(&self, digest: Digest, bytes: Vec<u8>) -> Result<(), BlobError> {
        self.run(digest, move |dir, path| {
            let partial = dir.join(format!("{path}.partial"));
            fs::write(&partial, bytes)?;
            fs::rename(partial, dir.join(path))
        })
        .await
    }

    async fn get(&self, digest: Digest) -> Result<Vec<u8>, BlobError> {
        self.run(digest, move |dir, path| {
            let bytes = read_beneath(&beneath::open_root(dir)?, path.as_bytes(), BLOB_BYTES)?;
            if Digest::of(&bytes) == digest { Ok(bytes) } else { Err(io::ErrorKind::InvalidData.into()) }
        })
        .await
    }

    async fn size(&self, digest: Digest) -> Result<Option<u64>, BlobError> {
        let found = self.run(digest, |dir, path| fs::symlink_metadata(dir.join(path))).await;
        match found {
            Ok(found) => Ok(Some(found.len())),
            Err(BlobError::NotFound(_)) => Ok(None),
            Err(error @ (BlobError::Mismatch(_) | BlobError::Full | BlobError::Unavailable(_))) => Err(error),
        }
    }

    async fn delete(&self, digest: Digest) -> Result<(), BlobError> {
        self.run(digest, |dir, path| fs::remove_file(dir.join(path))).await
    }
}

fn read_beneath(root: &OwnedFd, path: &[u8], limit: u64) -> io::Result<Vec<u8>> {
    let file = fs::File::from(beneath::open_file(root, path)?);
    let mut bytes = Vec::new();
    file.take(limit + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit { Err(io::ErrorKind::InvalidData.into()) } else { Ok(bytes) }
}

fn io_at(at: &Path, source: io::Error) -> LayoutError {
    LayoutError::Io { at: at.to_owned(), source }
}
