//! How the bytes of a part are stored: as they are, or as one zstd frame where that is smaller.

use handoff_protocol::Digest;
use handoff_protocol::manifest::{Part, PartRef};

use crate::limits::PART_LOGICAL_BYTES;

/// The level of every frame. The same bytes give the same frame with the same library.
const LEVEL: i32 = 3;
const ZSTD: &str = "+zstd";

/// The type of a JSON part.
pub const JSON: &str = "application/json";
/// The type of a chunk of messages.
pub const JSON_LINES: &str = "application/jsonl";
/// The type of the first layer of a workspace.
pub const TREE: &str = "application/vnd.handoff.tree.v1+json";
/// The type of the other layers of a workspace.
pub const PACK: &str = "application/vnd.handoff.pack.v1";

/// Bytes and their name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blob {
    /// The digest of the bytes.
    pub digest: Digest,
    /// The bytes.
    pub bytes: Vec<u8>,
}

impl Blob {
    /// Names these bytes.
    pub fn of(bytes: Vec<u8>) -> Self {
        Self { digest: Digest::of(&bytes), bytes }
    }
}

/// The type that bytes are stored as, without the mark of compression.
pub(crate) fn plain(media_type: &str) -> &str {
    media_type.strip_suffix(ZSTD).unwrap_or(media_type)
}

/// Stores raw bytes as a part with index 0.
pub(crate) fn encode(part: Part, media_type: &str, raw: &[u8]) -> (PartRef, Blob) {
    let frame = zstd::bulk::compress(raw, LEVEL).ok().filter(|frame| frame.len() < raw.len());
    let (media_type, bytes) = match frame {
        Some(frame) => (format!("{media_type}{ZSTD}"), frame),
        None => (media_type.to_owned(), raw.to_vec()),
    };
    let blob = Blob::of(bytes);
    let (digest, size) = (blob.digest, blob.bytes.len() as u64);
    (PartRef { part, index: 0, media_type, digest, size, logical_size: raw.len() as u64 }, blob)
}

/// Why a part's bytes cannot be had from what is stored.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Undecodable {
    /// It says that it unpacks to more than a part may.
    #[error("a part unpacks to at most {PART_LOGICAL_BYTES} bytes")]
    TooLarge,
    /// It unpacks to another size than it says, or it is no frame.
    #[error("the bytes do not unpack to the size that the manifest says")]
    Size,
    /// A type that this part does not have.
    #[error("the media type '{0}' is not known for this part")]
    MediaType(String),
}

/// The raw bytes of a part whose stored bytes have been verified.
pub(crate) fn decode(part: &PartRef, stored: Vec<u8>) -> Result<Vec<u8>, Undecodable> {
    if part.logical_size > PART_LOGICAL_BYTES {
        return Err(Undecodable::TooLarge);
    }
    check_type(part)?;
    let raw = if part.media_type.ends_with(ZSTD) {
        let capacity = usize::try_from(part.logical_size).map_err(|_| Undecodable::TooLarge)?;
        zstd::bulk::decompress(&stored, capacity).map_err(|_| Undecodable::Size)?
    } else {
        stored
    };
    if raw.len() as u64 == part.logical_size { Ok(raw) } else { Err(Undecodable::Size) }
}

fn check_type(part: &PartRef) -> Result<(), Undecodable> {
    let expected = match (part.part, part.index) {
        (Part::Session | Part::SystemPrompt | Part::ToolState | Part::McpConfig, _) => JSON,
        (Part::Messages, _) => JSON_LINES,
        (Part::Workspace, 0) => TREE,
        (Part::Workspace, _) => PACK,
        (Part::Native, _) => return Ok(()),
    };
    if plain(&part.media_type) == expected {
        Ok(())
    } else {
        Err(Undecodable::MediaType(part.media_type.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back_whether_they_shrink_or_not() {
        for raw in [&b""[..], b"{}", &[7; 100_000], &b"\x00\xff".repeat(40_000)] {
            let (part, blob) = encode(Part::Workspace, TREE, raw);
            assert_eq!(part.digest, Digest::of(&blob.bytes));
            assert!(part.size <= part.logical_size);
            assert_eq!(decode(&part, blob.bytes).expect("its own bytes"), raw);
        }
    }

    #[test]
    fn a_bomb_is_refused_before_it_unpacks() {
        let (mut part, blob) = encode(Part::ToolState, JSON, &[b' '; 1 << 20]);
        part.logical_size = 1000;
        assert_eq!(decode(&part, blob.bytes.clone()), Err(Undecodable::Size));
        part.logical_size = PART_LOGICAL_BYTES + 1;
        assert_eq!(decode(&part, blob.bytes), Err(Undecodable::TooLarge));
    }

    #[test]
    fn a_type_of_another_part_is_refused() {
        let (mut part, blob) = encode(Part::ToolState, JSON, b"{}");
        part.media_type = "text/html".to_owned();
        assert!(matches!(decode(&part, blob.bytes), Err(Undecodable::MediaType(_))));
    }
}
