//! Server-sent events, put together from bytes that may be split anywhere. Source of the rules: the HTML
//! standard, "parsing an event stream"; ids and retry times mean nothing here.

/// The most bytes of one event.
const EVENT_BYTES: usize = 32 << 20;

/// An event that is larger than any real one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an event of the stream is larger than {EVENT_BYTES} bytes")]
pub(crate) struct TooLarge;

/// Collects bytes and gives out the data of whole events.
#[derive(Debug, Default)]
pub(crate) struct Events {
    line: Vec<u8>,
    data: Option<Vec<u8>>,
    /// The last byte was a carriage return, which ends a line alone or with the line feed after it.
    returned: bool,
    begun: bool,
}

impl Events {
    /// Takes in bytes; gives the data of every event that they complete.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Result<Vec<Vec<u8>>, TooLarge> {
        let mut complete = Vec::new();
        for &byte in bytes {
            let after_return = std::mem::replace(&mut self.returned, byte == b'\r');
            match byte {
                b'\n' if after_return => {}
                b'\n' | b'\r' => complete.extend(self.end_line()),
                _ => self.line.push(byte),
            }
        }
        let held = self.line.len() + self.data.as_ref().map_or(0, Vec::len);
        if held > EVENT_BYTES { Err(TooLarge) } else { Ok(complete) }
    }

    /// The data of an event that the end of the stream completes: not every provider ends the last one.
    pub(crate) fn end(&mut self) -> Option<Vec<u8>> {
        if !self.line.is_empty() {
            let _ = self.end_line();
        }
        self.data.take()
    }

    fn end_line(&mut self) -> Option<Vec<u8>> {
        let line = std::mem::take(&mut self.line);
        let mut line = line.as_slice();
        if !std::mem::replace(&mut self.begun, true) {
            line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
        }
        if line.is_empty() {
            return self.data.take();
        }
        let value = match line.strip_prefix(b"data") {
            Some([]) => &[],
            Some([b':', b' ', value @ ..] | [b':', value @ ..]) => value,
            Some(_) | None => return None,
        };
        match &mut self.data {
            Some(data) => {
                data.push(b'\n');
                data.extend_from_slice(value);
            }
            none => *none = Some(value.to_vec()),
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: &str = "\u{feff}: hello\r\nevent: x\r\ndata: {\"a\":\ndata:\"é\"}\n\ndata: 2\r\rdata\n\nid: 7\n\ndata:  😀\r\n\r\ndata: [DONE]";

    fn whole() -> Vec<Vec<u8>> {
        ["{\"a\":\n\"é\"}", "2", "", " 😀", "[DONE]"].map(|data| data.as_bytes().to_vec()).to_vec()
    }

    #[test]
    fn a_stream_split_at_every_byte_gives_the_same_events() {
        let bytes = STREAM.as_bytes();
        for first in 0..=bytes.len() {
            for second in [first, (first + 1).min(bytes.len()), bytes.len()] {
                let mut events = Events::default();
                let mut all = Vec::new();
                for piece in [&bytes[..first], &bytes[first..second], &bytes[second..]] {
                    all.extend(events.push(piece).expect("small"));
                }
                all.extend(events.end());
                assert_eq!(all, whole(), "split at {first} and {second}");
            }
        }
    }

    #[test]
    fn byte_by_byte_too() {
        let mut events = Events::default();
        let mut all: Vec<_> = STREAM.bytes().flat_map(|byte| events.push(&[byte]).expect("small")).collect();
        all.extend(events.end());
        assert_eq!(all, whole());
        assert_eq!(events.end(), None);
    }

    #[test]
    fn an_endless_event_is_refused() {
        let mut events = Events::default();
        let piece = vec![b'x'; EVENT_BYTES / 4];
        let pushed: Vec<_> = (0..5).map(|_| events.push(&piece)).collect();
        assert_eq!(pushed.last(), Some(&Err(TooLarge)));
    }
}
