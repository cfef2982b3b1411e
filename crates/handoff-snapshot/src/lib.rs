//! Capture, sealing and restore of snapshots, and the directory blob store.
//!
//! ```text
//! minimal input ── seal ──┐                                    ┌── inspect
//!                         ├─ manifest + blobs ── fetch, verify ┤
//! directories ─ capture ──┘     (BlobStore)                    └── restore ── directories
//! ```
//!
//! Everything that is read here may come from a hostile side: a session directory that an agent wrote, a
//! workspace, a manifest and blobs that somebody uploaded. Directories are opened beneath their root and no
//! link is followed; sizes and counts are checked before anything is parsed or unpacked; a digest is verified
//! before its bytes are used.

mod beneath;
pub mod capture;
mod chunk;
mod conversation;
pub mod directory_blobs;
pub mod fetch;
pub mod inspect;
pub mod layout;
pub mod limits;
pub mod media;
mod message;
mod place;
mod report;
pub mod restore;
pub mod schema;
pub mod seal;
mod search;
mod secret;
mod shallow;
mod survey;
pub mod tree;

use handoff_protocol::ErrorCode;
use handoff_protocol::port::BlobError;

pub use beneath::remove_tree;
pub use capture::{CaptureError, CaptureIndex, CaptureSource, Captured, Moment, capture};
pub use directory_blobs::DirectoryBlobs;
pub use fetch::{FetchError, Fetched, Verified, fetch, missing, verify};
pub use inspect::{Summary, history, history_of_directory, inspect};
pub use layout::{LayoutError, read_layout, write_layout};
pub use media::Blob;
pub use restore::{RestoreError, RestoreTarget, Restored, restore, restore_verified};
pub use seal::{SealContext, SealError, SealedSnapshot, parse_input, seal};
pub use secret::SecretKind;
pub use survey::{Survey, survey};

/// The stable code of a blob store's error.
pub(crate) fn blob_code(error: &BlobError) -> ErrorCode {
    match error {
        BlobError::NotFound(_) => ErrorCode::NotFound,
        BlobError::Mismatch(_) => ErrorCode::ChecksumMismatch,
        BlobError::Full => ErrorCode::StorageFull,
        BlobError::Unavailable(_) => ErrorCode::StoreUnavailable,
    }
}
