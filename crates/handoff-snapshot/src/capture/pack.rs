//! Packs: the bytes of many files put together, because each small file compressed alone costs up to twice
//! the bytes; and the bytes of large files cut into pieces of a pack's size.
//!
//! Pieces are known by their digest. One that an earlier snapshot's pack holds is used from there, so a
//! refresh adds only what is new. A pack of which less than half is still used, and small packs once they
//! are many, are given up: the next round of the walk packs their live pieces anew.

use std::collections::{HashMap, HashSet};

use handoff_protocol::Digest;
use handoff_protocol::manifest::{Part, PartRef};

use crate::limits::PACK_BYTES;
use crate::media::{self, Blob};
use crate::tree::{Entry, Segment, Tree};

/// Packs of a quarter of the full size or less are small; more of them than this are put together.
const SMALL_PACKS: usize = 16;

/// Where a piece is. The slot becomes a layer's index when the walk is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) slot: u32,
    pub(crate) offset: u64,
}

#[derive(Debug)]
struct Slot {
    /// Absent while the pack is open.
    part: Option<PartRef>,
    from_before: bool,
}

/// The packs of one capture.
#[derive(Debug, Default)]
pub(crate) struct Packer {
    slots: Vec<Slot>,
    known: HashMap<Digest, Place>,
    open: Vec<u8>,
}

impl Packer {
    /// Starts from an earlier snapshot's tree and the layers of it that are still stored, by their index.
    pub(crate) fn new(tree: &Tree, layers: &HashMap<u32, PartRef>) -> Self {
        let mut packer = Self::default();
        let mut indexes: Vec<_> = layers.keys().copied().filter(|index| *index > 0).collect();
        indexes.sort_unstable();
        for index in &indexes {
            packer.slots.push(Slot { part: layers.get(index).cloned(), from_before: true });
        }
        for segment in tree.entries.iter().flat_map(|entry| &entry.content) {
            if let Ok(slot) = indexes.binary_search(&segment.pack) {
                packer.known.insert(segment.digest, Place { slot: slot as u32, offset: segment.offset });
            }
        }
        packer
    }

    /// Where a piece is, if it is stored.
    pub(crate) fn find(&self, digest: Digest) -> Option<Place> {
        self.known.get(&digest).copied()
    }

    /// Stores a piece of at most a pack's size; hands out a pack that this fills.
    pub(crate) fn add(&mut self, piece: &[u8]) -> (Digest, Place, Option<Blob>) {
        let digest = Digest::of(piece);
        if let Some(place) = self.find(digest) {
            return (digest, place, None);
        }
        let full = self.open.len() + piece.len() > PACK_BYTES;
        let pack = if full { self.flush() } else { None };
        if self.open.is_empty() {
            self.slots.push(Slot { part: None, from_before: false });
        }
        let place = Place { slot: self.slots.len() as u32 - 1, offset: self.open.len() as u64 };
        self.open.extend_from_slice(piece);
        self.known.insert(digest, place);
        (digest, place, pack)
    }

    /// Closes the open pack.
    pub(crate) fn flush(&mut self) -> Option<Blob> {
        if self.open.is_empty() {
            return None;
        }
        let (part, blob) = media::encode(Part::Workspace, media::PACK, &self.open);
        self.open.clear();
        self.slots.last_mut().expect("the open pack has a slot").part = Some(part);
        Some(blob)
    }

    /// Forgets the pieces of packs that are not worth carrying on. True if the walk must run again.
    pub(crate) fn give_up(&mut self, entries: &[Entry]) -> bool {
        let mut seen = HashSet::new();
        let mut live = vec![0u64; self.slots.len()];
        for segment in entries.iter().flat_map(|entry| &entry.content) {
            if seen.insert((segment.pack, segment.offset)) {
                live[segment.pack as usize] += segment.length;
            }
        }
        let size = |slot: &Slot| slot.part.as_ref().map_or(0, |part| part.logical_size);
        let used = |slot: &usize| self.slots[*slot].from_before && live[*slot] > 0;
        let small = |slot: &usize| size(&self.slots[*slot]) <= PACK_BYTES as u64 / 4;
        let used: Vec<usize> = (0..self.slots.len()).filter(used).collect();
        let many_small = used.iter().filter(|slot| small(slot)).count() > SMALL_PACKS;
        let sparse = |slot: &usize| live[*slot] * 2 < size(&self.slots[*slot]);
        let given_up: HashSet<u32> = used
            .into_iter()
            .filter(|slot| sparse(slot) || (many_small && small(slot)))
            .map(|slot| slot as u32)
            .collect();
        self.known.retain(|_, place| !given_up.contains(&place.slot));
        !given_up.is_empty()
    }

    /// The layers that the entries use, and the entries with the layers' indexes. All packs are closed.
    pub(crate) fn finish(self, entries: &mut [Entry]) -> Vec<PartRef> {
        let used: HashSet<u32> = segments(entries).map(|segment| segment.pack).collect();
        let (mut layers, mut index_of) = (Vec::new(), HashMap::new());
        for (slot, Slot { part, .. }) in self.slots.into_iter().enumerate() {
            if used.contains(&(slot as u32)) {
                let index = layers.len() as u32 + 1;
                index_of.insert(slot as u32, index);
                layers.push(PartRef { index, ..part.expect("every pack is closed") });
            }
        }
        for segment in segments(entries) {
            segment.pack = index_of[&segment.pack];
        }
        layers
    }
}

fn segments(entries: &mut [Entry]) -> impl Iterator<Item = &mut Segment> {
    entries.iter_mut().flat_map(|entry| &mut entry.content)
}
