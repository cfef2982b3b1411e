//! Lines over a byte stream: cutting what arrives into lines of a bounded length, and keeping what could not
//! be written yet.

use std::collections::VecDeque;
use std::io::{self, Read, Write};

use crate::control::LINE_BYTES;

/// Bytes taken from a stream in one go.
const CHUNK: usize = 64 << 10;

/// Cuts a stream into lines.
#[derive(Debug, Default)]
pub(crate) struct Splitter {
    partial: Vec<u8>,
    /// The present line is too long: the rest of it is thrown away.
    skipping: bool,
}

/// What a [`Splitter`] made of some bytes.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Cut {
    pub(crate) lines: Vec<String>,
    /// Lines that were too long or no UTF-8 text.
    pub(crate) dropped: u64,
}

impl Splitter {
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Cut {
        let mut cut = Cut::default();
        let mut rest = bytes;
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            self.extend(&rest[..end], &mut cut);
            rest = &rest[end + 1..];
            let line = std::mem::take(&mut self.partial);
            if std::mem::take(&mut self.skipping) {
                continue;
            }
            match String::from_utf8(line) {
                Ok(line) => cut.lines.push(line),
                Err(_) => cut.dropped += 1,
            }
        }
        self.extend(rest, &mut cut);
        cut
    }

    fn extend(&mut self, bytes: &[u8], cut: &mut Cut) {
        if self.skipping {
            return;
        }
        if self.partial.len() + bytes.len() > LINE_BYTES {
            self.partial = Vec::new();
            self.skipping = true;
            cut.dropped += 1;
            return;
        }
        self.partial.extend_from_slice(bytes);
    }

    /// Takes what a stream has now, at most one chunk. `None` when the stream has ended.
    pub(crate) fn read(&mut self, mut from: impl Read) -> io::Result<Option<Cut>> {
        let mut chunk = vec![0; CHUNK];
        match from.read(&mut chunk) {
            Ok(0) => Ok(None),
            Ok(length) => Ok(Some(self.push(&chunk[..length]))),
            Err(error) if later(&error) => Ok(Some(Cut::default())),
            Err(error) => Err(error),
        }
    }
}

/// Lines that wait to be written.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    bytes: VecDeque<u8>,
}

impl Outbox {
    pub(crate) fn push(&mut self, line: &[u8]) {
        self.bytes.extend(line);
        self.bytes.push_back(b'\n');
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Writes what the stream takes now.
    pub(crate) fn flush(&mut self, mut to: impl Write) -> io::Result<()> {
        while !self.bytes.is_empty() {
            let (front, _) = self.bytes.as_slices();
            match to.write(front) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(length) => drop(self.bytes.drain(..length)),
                Err(error) if later(&error) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Nothing is wrong; the stream has or takes nothing just now.
pub(crate) fn later(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_whole_however_they_arrive() {
        let mut splitter = Splitter::default();
        assert_eq!(splitter.push(b"one\ntw").lines, ["one"]);
        assert_eq!(splitter.push(b"o\n\nthree").lines, ["two", ""]);
        assert_eq!(splitter.push(b"\n").lines, ["three"]);
    }

    #[test]
    fn a_line_that_is_too_long_or_no_text_costs_itself_only() {
        let mut splitter = Splitter::default();
        let long = vec![b'x'; LINE_BYTES];
        assert_eq!(splitter.push(&long), Cut::default());
        assert_eq!(splitter.push(b"y").dropped, 1);
        assert_eq!(splitter.push(&long), Cut::default());
        assert_eq!(splitter.push(b"\nnext\n").lines, ["next"]);
        let cut = splitter.push(b"\xff\xfe\ngood\n");
        assert_eq!((cut.lines, cut.dropped), (vec!["good".to_owned()], 1));
        let longest = [&long[..], b"\n"].concat();
        assert_eq!(splitter.push(&longest).lines[0].len(), LINE_BYTES);
    }

    #[test]
    fn what_is_not_taken_waits() {
        struct Narrow(Vec<u8>);
        impl Write for Narrow {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                if self.0.len() >= 4 {
                    return Err(io::ErrorKind::WouldBlock.into());
                }
                self.0.push(bytes[0]);
                Ok(1)
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let mut outbox = Outbox::default();
        outbox.push(b"ab");
        outbox.push(b"cd");
        let mut narrow = Narrow(Vec::new());
        outbox.flush(&mut narrow).expect("would block is no error");
        assert_eq!((narrow.0.as_slice(), outbox.len()), (&b"ab\nc"[..], 2));
    }
}
