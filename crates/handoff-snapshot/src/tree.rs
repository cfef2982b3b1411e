//! The first layer of a workspace: what files, directories and links it has, and in which pack the bytes of
//! each file are.
//!
//! Entries stand in the order in which a walk meets them: by their names' bytes, a directory before what is
//! in it. That makes the document deterministic, repetition impossible, and lets a reader check with one look
//! back that every parent is a directory.
//!
//! What is carried: names and link targets byte for byte, permission bits, times of change, holes. What is
//! not: owners, extended attributes, hard links (each name becomes a file), set-uid and set-gid bits.

use std::collections::HashSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use handoff_protocol::Digest;
use handoff_protocol::limits::SNAPSHOT_LOGICAL_BYTES;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::beneath;
use crate::limits::{FILE_BYTES, PATH_BYTES, WORKSPACE_ENTRIES};

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

/// A name or path of any bytes: a string where it is UTF-8, else `{"base64": "…"}`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(pub Vec<u8>);

impl Name {
    /// The name for people; bytes that are not UTF-8 are replaced.
    pub fn shown(&self) -> String {
        String::from_utf8_lossy(&self.0).into_owned()
    }
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
enum NameForm {
    Text(String),
    Bytes(Base64),
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Base64 {
    base64: String,
}

impl Serialize for Name {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match std::str::from_utf8(&self.0) {
            Ok(text) => to.serialize_str(text),
            Err(_) => Base64 { base64: STANDARD.encode(&self.0) }.serialize(to),
        }
    }
}

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        match NameForm::deserialize(from)? {
            NameForm::Text(text) => Ok(Self(text.into_bytes())),
            NameForm::Bytes(Base64 { base64 }) => {
                STANDARD.decode(base64).map(Self).map_err(serde::de::Error::custom)
            }
        }
    }
}

impl JsonSchema for Name {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Name".into()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        NameForm::json_schema(generator)
    }
}

/// Why a tree is refused. Nothing has been written when it is.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidTree {
    /// Not the document.
    #[error("the tree is not readable: {0}")]
    Shape(String),
    /// Too many entries or bytes.
    #[error("a workspace has at most {WORKSPACE_ENTRIES} entries and {SNAPSHOT_LOGICAL_BYTES} bytes of data")]
    TooLarge,
    /// An entry that breaks a rule.
    #[error("entry '{path}': {why}")]
    Entry {
        /// Its path.
        path: String,
        /// The rule.
        why: &'static str,
    },
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

    fn check(&self, packs: &[u64]) -> Result<(), InvalidTree> {
        if self.entries.len() > WORKSPACE_ENTRIES {
            return Err(InvalidTree::TooLarge);
        }
        let mut dirs: HashSet<&[u8]> = HashSet::from([&b""[..]]);
        let (mut last, mut bytes): (Option<&[u8]>, u64) = (None, 0);
        for entry in &self.entries {
            let path = entry.path.0.as_slice();
            let wrong = |why| InvalidTree::Entry { path: entry.path.shown(), why };
            beneath::check_path(path).map_err(wrong)?;
            if last.is_some_and(|last| names(last) >= names(path)) {
                return Err(wrong("entries are out of order or stand twice"));
            }
            if !dirs.contains(beneath::split(path).0) {
                return Err(wrong("its parent is not a directory of this tree"));
            }
            entry.check(packs).map_err(wrong)?;
            if entry.kind == EntryKind::Dir {
                dirs.insert(path);
            }
            bytes = entry.content.iter().fold(bytes, |sum, segment| sum.saturating_add(segment.length));
            last = Some(path);
        }
        if bytes > SNAPSHOT_LOGICAL_BYTES { Err(InvalidTree::TooLarge) } else { Ok(()) }
    }
}

/// The order of a walk: name by name.
pub(crate) fn names(path: &[u8]) -> Names<'_> {
    Names(path)
}

/// A path compared name by name.
#[derive(PartialEq, Eq)]
pub(crate) struct Names<'p>(&'p [u8]);

impl Ord for Names<'_> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.split(|byte| *byte == b'/').cmp(other.0.split(|byte| *byte == b'/'))
    }
}

impl PartialOrd for Names<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Entry {
    fn check(&self, packs: &[u64]) -> Result<(), &'static str> {
        let has_data = self.size > 0 || !self.content.is_empty();
        if self.mode & !MODE_BITS != 0 {
            return Err("its mode has bits that do not travel");
        }
        match (self.kind, &self.target) {
            (EntryKind::Dir | EntryKind::File, Some(_)) => return Err("only a link has a target"),
            (EntryKind::Symlink, None) => return Err("a link has a target"),
            (EntryKind::Symlink, Some(Name(target)))
                if target.is_empty() || target.len() > PATH_BYTES || target.contains(&0) =>
            {
                return Err("a link's target has 1 to 4095 bytes and no NUL");
            }
            (EntryKind::Dir | EntryKind::Symlink, _) if has_data => return Err("only a file has data"),
            (EntryKind::Symlink, Some(_)) if self.mode != 0 => return Err("a link has no mode"),
            (EntryKind::Dir | EntryKind::File, None) | (EntryKind::Symlink, Some(_)) => {}
        }
        if self.size > FILE_BYTES {
            return Err("a file has at most 2^40 bytes");
        }
        self.check_content(packs)
    }

    fn check_content(&self, packs: &[u64]) -> Result<(), &'static str> {
        let mut covered = 0;
        for segment in &self.content {
            let end = segment.at.checked_add(segment.length);
            let Some(end) = end.filter(|end| segment.length > 0 && *end <= self.size) else {
                return Err("a segment lies outside of its file or is empty");
            };
            if segment.at < covered {
                return Err("segments overlap or are out of order");
            }
            let pack = (segment.pack as usize).checked_sub(1).and_then(|index| packs.get(index));
            let pack_end = segment.offset.checked_add(segment.length);
            if pack.zip(pack_end).is_none_or(|(size, end)| end > *size) {
                return Err("a segment lies outside of the packs");
            }
            covered = end;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn entry(path: &str, kind: EntryKind) -> Entry {
        let target = (kind == EntryKind::Symlink).then(|| Name(b"x".to_vec()));
        let mode = if kind == EntryKind::Symlink { 0 } else { 0o644 };
        Entry { path: Name(path.into()), kind, mode, mtime_ns: 0, size: 0, content: Vec::new(), target }
    }

    fn refusal(entries: Vec<Entry>) -> String {
        let refused = Tree::parse(&Tree { entries }.to_bytes(), &[10]).expect_err("breaks a rule");
        refused.to_string()
    }

    fn file(content: &[(u64, u64, u32, u64)]) -> Entry {
        let digest = Digest::of(b"");
        let segment = |(at, length, pack, offset): &(u64, u64, u32, u64)| Segment {
            at: *at,
            length: *length,
            digest,
            pack: *pack,
            offset: *offset,
        };
        Entry { size: 10, content: content.iter().map(segment).collect(), ..entry("f", EntryKind::File) }
    }

    #[test]
    fn a_tree_reads_back() {
        let mut link = entry("d/l", EntryKind::Symlink);
        link.target = Some(Name(b"../\xff".to_vec()));
        let mut odd = entry("d/x", EntryKind::File);
        odd.path = Name(b"d/\xff".to_vec());
        let whole = Tree {
            entries: vec![
                entry("a", EntryKind::Dir),
                entry("a/z", EntryKind::File),
                entry("a.b", EntryKind::File),
                entry("d", EntryKind::Dir),
                link,
                odd,
                file(&[(0, 4, 1, 0), (6, 4, 1, 0)]),
            ],
        };
        assert_eq!(Tree::parse(&whole.to_bytes(), &[10]).expect("its own bytes"), whole);
        assert_eq!(whole.totals(), TreeTotals { files: 4, dirs: 2, symlinks: 1, bytes: 8 });
    }

    #[test]
    fn paths_that_lead_elsewhere_are_refused() {
        for path in ["../x", "/etc/passwd", "a/../../x", "", ".", "a//b"] {
            assert!(refusal(vec![entry(path, EntryKind::File)]).starts_with("entry "), "{path}");
        }
    }

    #[test]
    fn nothing_stands_beneath_a_link_or_a_file_and_nothing_twice() {
        for kind in [EntryKind::Symlink, EntryKind::File] {
            let beneath = refusal(vec![entry("a", kind), entry("a/b", EntryKind::File)]);
            assert!(beneath.contains("parent"), "{beneath}");
        }
        let twice = refusal(vec![entry("a", EntryKind::File), entry("a", EntryKind::Symlink)]);
        assert!(twice.contains("twice"), "{twice}");
        let order = refusal(vec![entry("b", EntryKind::File), entry("a", EntryKind::File)]);
        assert!(order.contains("order"), "{order}");
    }

    #[test]
    fn content_stays_within_its_file_and_its_packs() {
        for content in [
            &[(0, 11, 1, 0)][..],
            &[(0, 0, 1, 0)],
            &[(0, 4, 1, 0), (3, 4, 1, 0)],
            &[(0, 4, 0, 0)],
            &[(0, 4, 2, 0)],
            &[(0, 4, 1, 7)],
            &[(u64::MAX, 2, 1, 0)],
            &[(0, 2, 1, u64::MAX)],
        ] {
            assert!(refusal(vec![file(content)]).contains("segment"), "{content:?}");
        }
    }

    #[test]
    fn other_fields_are_refused() {
        let dir_with_target = Entry { target: Some(Name(b"x".to_vec())), ..entry("a", EntryKind::Dir) };
        let suid = Entry { mode: 0o4755, ..entry("a", EntryKind::File) };
        let no_target = Entry { target: None, ..entry("a", EntryKind::Symlink) };
        let huge = Entry { size: FILE_BYTES + 1, ..entry("a", EntryKind::File) };
        for broken in [dir_with_target, suid, no_target, huge] {
            refusal(vec![broken]);
        }
        assert!(Tree::parse(br#"{"entries":[],"more":1}"#, &[]).is_err());
    }

    proptest! {
        #[test]
        fn names_of_any_bytes_read_back(bytes in proptest::collection::vec(any::<u8>(), 0..16)) {
            let name = Name(bytes);
            let text = serde_json::to_string(&name).expect("prints");
            prop_assert_eq!(serde_json::from_str::<Name>(&text).expect("its own text"), name);
        }

        #[test]
        fn any_text_is_refused_or_read_without_harm(text in ".{0,64}") {
            let _ = Tree::parse(text.as_bytes(), &[]);
        }
    }
}
