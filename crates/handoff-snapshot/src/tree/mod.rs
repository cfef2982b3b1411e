//! The first layer of a workspace: what files, directories and links it has, and in which pack the bytes of
//! each file are.
//!
//! Entries stand in the order in which a walk meets them: by their names' bytes, a directory before what is
//! in it. That makes the document deterministic, repetition impossible, and lets a reader check with one look
//! back that every parent is a directory.
//!
//! What is carried: names and link targets byte for byte, permission bits, times of change, holes. What is
//! not: owners, extended attributes, hard links (each name becomes a file), set-uid and set-gid bits.

mod name;
mod rules;

use handoff_protocol::Digest;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use name::Name;
pub use rules::InvalidTree;

/// The permission bits that travel: read, write, execute, and sticky. Set-uid and set-gid never do: who may
/// act as whom is the destination's to say.
pub const MODE_BITS: u32 = 0o1777;

/// The document.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Tree {
    /// Everything in the workspace but the workspace itself, in order.
    pub entries: Vec<Entry>,
}

/// One file, directory or link.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// Its path in the workspace.
    pub path: Name,
    /// What it is.
    pub kind: EntryKind,
    /// Permission bits; 0 for a link, which has none.
    #[serde(default)]
    pub mode: u32,
    /// When it was last changed, in nanoseconds since 1970.
    pub mtime_ns: i64,
    /// Bytes of a file, holes included.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub size: u64,
    /// Where a file's bytes are, by their place in the file; what no segment covers is a hole.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub content: Vec<Segment>,
    /// Where a link points, as it is written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<Name>,
}

/// What an entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EntryKind {
    /// A directory.
    Dir,
    /// A regular file.
    File,
    /// A symbolic link.
    Symlink,
}

/// Bytes of a file that stand together in a pack.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Segment {
    /// Where in the file they start.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub at: u64,
    /// How many they are.
    pub length: u64,
    /// Their digest.
    pub digest: Digest,
    /// The index of the `workspace` layer that holds them, from 1.
    pub pack: u32,
    /// Where in the unpacked layer they start.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub offset: u64,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// What a tree holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct TreeTotals {
    /// Files.
    pub files: u64,
    /// Directories.
    pub dirs: u64,
    /// Symbolic links.
    pub symlinks: u64,
    /// Bytes of data in files, holes not counted.
    pub bytes: u64,
}

impl Tree {
    /// Reads a tree and checks every rule. `packs` are the logical sizes of the layers from 1.
    ///
    /// # Errors
    /// Names the entry and the rule that it breaks.
    pub fn parse(bytes: &[u8], packs: &[u64]) -> Result<Self, InvalidTree> {
        let tree: Self =
            serde_json::from_slice(bytes).map_err(|error| InvalidTree::Shape(error.to_string()))?;
        tree.check(packs)?;
        Ok(tree)
    }

    /// The bytes of the document.
    pub fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("plain data always prints")
    }

    /// Counts what is there.
    pub fn totals(&self) -> TreeTotals {
        let mut totals = TreeTotals::default();
        for entry in &self.entries {
            match entry.kind {
                EntryKind::Dir => totals.dirs += 1,
                EntryKind::File => totals.files += 1,
                EntryKind::Symlink => totals.symlinks += 1,
            }
            totals.bytes += entry.content.iter().map(|segment| segment.length).sum::<u64>();
        }
        totals
    }
}
