//! Server-sent events, cut out of a byte stream that may be split anywhere (WHATWG HTML, 9.2). Events keep
//! their bytes: joined again they are the stream.

use bytes::{Bytes, BytesMut};

/// One event with all its bytes, the blank line included.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Frame {
    /// The bytes as they came.
    pub(crate) raw: Bytes,
}

impl Frame {
    /// The event's data: the values of its `data` fields, joined by line feeds.
    pub(crate) fn data(&self) -> Vec<u8> {
        let mut data = Vec::new();
        let mut first = true;
        for line in self.raw.split(|byte| matches!(byte, b'\n' | b'\r')) {
            let Some(value) = line.strip_prefix(b"data") else { continue };
            let value = match value {
                [] => value,
                [b':', b' ', rest @ ..] | [b':', rest @ ..] => rest,
                _ => continue,
            };
            if !std::mem::take(&mut first) {
                data.push(b'\n');
            }
            data.extend_from_slice(value);
        }
        data
    }
}

/// Cuts a byte stream into events.
#[derive(Debug, Default)]
pub(crate) struct Frames {
    pending: BytesMut,
    /// Bytes of `pending` that were looked at already.
    scanned: usize,
    /// The line that is being read has no byte yet.
    blank: bool,
    /// The last byte was a carriage return, which ended a line; a line feed after it belongs to it.
    returned: bool,
}

impl Frames {
    pub(crate) fn new() -> Self {
        Self { blank: true, ..Self::default() }
    }

    /// Takes the next bytes in.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.pending.extend_from_slice(bytes);
    }

    /// The next whole event, if it is there.
    pub(crate) fn next_frame(&mut self) -> Option<Frame> {
        while let Some(byte) = self.pending.get(self.scanned).copied() {
            let feeds_return = byte == b'\n' && std::mem::take(&mut self.returned);
            self.scanned += 1;
            if feeds_return {
                continue;
            }
            self.returned = byte == b'\r';
            match byte {
                b'\n' | b'\r' if self.blank => return Some(self.cut()),
                b'\n' | b'\r' => self.blank = true,
                _ => self.blank = false,
            }
        }
        None
    }

    /// How many bytes of an unfinished event are waiting.
    pub(crate) fn pending(&self) -> usize {
        self.pending.len()
    }

    /// The bytes of an unfinished event.
    pub(crate) fn rest(&mut self) -> Bytes {
        self.scanned = 0;
        self.blank = true;
        self.pending.split().freeze()
    }

    fn cut(&mut self) -> Frame {
        let raw = self.pending.split_to(self.scanned).freeze();
        self.scanned = 0;
        Frame { raw }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn frames(pieces: &[&[u8]]) -> (Vec<Vec<u8>>, Vec<u8>) {
        let mut cutter = Frames::new();
        let mut data = Vec::new();
        let mut joined = Vec::new();
        for piece in pieces {
            cutter.push(piece);
            while let Some(frame) = cutter.next_frame() {
                data.push(frame.data());
                joined.extend_from_slice(&frame.raw);
            }
        }
        joined.extend_from_slice(&cutter.rest());
        (data, joined)
    }

    #[test]
    fn case_m15_any_split_gives_the_same_events() {
        for text in [
            "data: {\"a\":1}\n\ndata: [DONE]\n\n",
            "data: {\"a\":1}\r\n\r\ndata: [DONE]\r\n\r\n",
            "data: {\"a\":1}\r\rdata: [DONE]\r\r",
            ": keep-alive\n\nevent: x\ndata: {\ndata:  \"ä\"}\nid: 7\n\ndata\n\n",
        ] {
            let bytes = text.as_bytes();
            // A line feed that belongs to the last carriage return may come later than the event.
            let words = |pieces: &[&[u8]]| {
                let (data, joined) = frames(pieces);
                assert_eq!(joined, bytes);
                data.into_iter().filter(|data| !data.is_empty()).collect::<Vec<_>>()
            };
            let whole = words(&[bytes]);
            for at in 0..=bytes.len() {
                assert_eq!(words(&[&bytes[..at], &bytes[at..]]), whole, "{text:?} at {at}");
            }
            let single: Vec<&[u8]> = bytes.chunks(1).collect();
            assert_eq!(words(&single), whole);
        }
    }

    #[test]
    fn data_is_joined_by_line_feeds() {
        let (data, _) = frames(&[b"data: a\ndata:b\ndata\ndatax: no\n\n"]);
        assert_eq!(data, [b"a\nb\n"]);
    }

    proptest! {
        #[test]
        fn no_byte_is_lost(pieces in prop::collection::vec(prop::collection::vec(prop::sample::select(b"a:d\r\n ".to_vec()), 0..9), 0..9)) {
            let pieces: Vec<&[u8]> = pieces.iter().map(Vec::as_slice).collect();
            let (_, joined) = frames(&pieces);
            prop_assert_eq!(joined, pieces.concat());
        }
    }
}
