//! Limits that hold before anything is parsed. Every entry point uses these and no others.

/// Levels of nesting that any JSON text may have, at every entry point.
pub const JSON_DEPTH: usize = 128;
/// Bytes of a JSON body on `/v1`, other than uploads.
pub const BODY_BYTES: usize = 1 << 20;
/// Bytes of a snapshot that is given inline, as an argument.
pub const INLINE_SNAPSHOT_BYTES: usize = 256 << 10;
/// Bytes of a minimal snapshot input that is read from a file or an upload.
pub const SNAPSHOT_INPUT_BYTES: usize = 256 << 20;
/// Bytes of one blob.
pub const BLOB_BYTES: u64 = 64 << 20;
/// Bytes of a manifest.
pub const MANIFEST_BYTES: usize = 4 << 20;
/// Parts that a manifest may name.
pub const MANIFEST_PARTS: usize = 20_000;
/// Logical bytes of all parts of one snapshot together.
pub const SNAPSHOT_LOGICAL_BYTES: u64 = 20 << 30;
/// Raw bytes that one sealed chunk of `messages` holds before it is closed.
pub const MESSAGE_CHUNK_BYTES: usize = 256 << 10;
/// Seconds by which two clocks may differ when a token's times are judged.
pub const TOKEN_LEEWAY_MS: u64 = 5_000;
/// Bytes of the secret that transfer tokens are signed with, at the least.
pub const TOKEN_SECRET_BYTES: usize = 32;
/// Labels of one session.
pub const LABELS: usize = 32;
/// Bytes of a reason, a label's key or its value.
pub const WORDS_BYTES: usize = 256;
