//! Cutting a conversation into chunks so that a new turn adds only its own bytes.
//!
//! ```text
//! | ≥ 256 KiB | ≥ 256 KiB | ≥ 32 KiB | ≥ 32 KiB | ≥ 4 KiB | rest |
//!   sealed      sealed      the tail, cut in the same way at smaller sizes
//! ```
//!
//! A chunk closes at the first line end at or after its size. Where one closes depends only on what stands
//! before it, so an appended line leaves every closed chunk as it was, and small closed chunks melt into a
//! larger one only when that closes.

use handoff_protocol::limits::MESSAGE_CHUNK_BYTES;

use crate::limits::TAIL_CHUNK_BYTES;

/// The chunks while lines arrive.
#[derive(Debug, Default)]
pub(crate) struct Chunker {
    open: Vec<u8>,
    /// Where each line of `open` ends.
    ends: Vec<usize>,
}

impl Chunker {
    /// Adds a line, its end included; hands out a chunk if it closes with this line.
    pub(crate) fn add(&mut self, line: &[u8]) -> Option<Vec<u8>> {
        self.open.extend_from_slice(line);
        self.ends.push(self.open.len());
        (self.open.len() >= MESSAGE_CHUNK_BYTES).then(|| {
            self.ends.clear();
            std::mem::take(&mut self.open)
        })
    }

    /// The chunks of the tail.
    pub(crate) fn finish(self) -> Vec<Vec<u8>> {
        let (mut chunks, mut start) = (Vec::new(), 0);
        for size in TAIL_CHUNK_BYTES {
            for end in &self.ends {
                if *end >= start + size {
                    chunks.push(self.open[start..*end].to_vec());
                    start = *end;
                }
            }
        }
        if start < self.open.len() {
            chunks.push(self.open[start..].to_vec());
        }
        chunks
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn chunks(lines: &[Vec<u8>]) -> Vec<Vec<u8>> {
        let mut chunker = Chunker::default();
        let mut sealed: Vec<_> = lines.iter().filter_map(|line| chunker.add(line)).collect();
        sealed.extend(chunker.finish());
        sealed
    }

    fn lines(sizes: &[usize]) -> Vec<Vec<u8>> {
        sizes
            .iter()
            .enumerate()
            .map(|(index, size)| [vec![index as u8; *size], vec![b'\n']].concat())
            .collect()
    }

    #[test]
    fn a_long_conversation_re_sends_little_for_a_short_turn() {
        let mut all = lines(&[1000; 2000]);
        let before = chunks(&all);
        all.push(vec![b'x'; 1000]);
        let fresh: usize = chunks(&all).iter().filter(|chunk| !before.contains(chunk)).map(Vec::len).sum();
        assert!(fresh < 6_000, "{fresh}");
    }

    proptest! {
        #[test]
        fn nothing_is_lost_and_closed_chunks_stay(sizes in proptest::collection::vec(0usize..90_000, 0..40)) {
            let all = lines(&sizes);
            let cut = chunks(&all);
            prop_assert_eq!(cut.concat(), all.concat());
            let sealed = cut.iter().filter(|chunk| chunk.len() >= MESSAGE_CHUNK_BYTES).count();
            let longer = chunks(&[all, lines(&[10])].concat());
            prop_assert_eq!(&cut[..sealed], &longer[..sealed]);
            prop_assert!(cut.len() - sealed <= 8 + 8 + 1, "a short tail");
        }
    }
}
