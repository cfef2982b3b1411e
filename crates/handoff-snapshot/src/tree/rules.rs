//! What every tree must keep, so that unpacking it can neither leave the workspace nor read outside of its packs.

use std::collections::HashSet;

use handoff_protocol::limits::SNAPSHOT_LOGICAL_BYTES;

use super::{Entry, EntryKind, MODE_BITS, Name, Tree};
use crate::beneath;
use crate::limits::{FILE_BYTES, PATH_BYTES, WORKSPACE_ENTRIES};

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

impl Tree {
    pub(super) fn check(&self, packs: &[u64]) -> Result<(), InvalidTree> {
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
fn names(path: &[u8]) -> Names<'_> {
    Names(path)
}

/// A path compared name by name.
#[derive(PartialEq, Eq)]
struct Names<'p>(&'p [u8]);

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

    use handoff_protocol::Digest;

    use super::*;
    use crate::tree::{Segment, TreeTotals};

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
        fn any_text_is_refused_or_read_without_harm(text in ".{0,64}") {
            let _ = Tree::parse(text.as_bytes(), &[]);
        }
    }
}
