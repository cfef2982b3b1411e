//! A streamed answer on its way through: bytes go on as they come, usage is read beside them, and the one
//! event that the caller did not ask for is taken out.

use bytes::{Bytes, BytesMut};
use handoff_protocol::totals::Tokens;

use crate::sse::Frames;
use crate::wire::{ChatStream, Wire};

/// What a stream has shown so far.
#[derive(Debug)]
pub(crate) struct StreamMeter {
    frames: Frames,
    reader: ChatStream,
    /// Events are passed on whole, without the one that only says what was used.
    strips: bool,
    /// An unfinished event of more bytes than this is no event.
    event_bytes: usize,
    done: bool,
}

/// The stream is not one of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Endless;

impl StreamMeter {
    pub(crate) fn new(wire: Wire, strips: bool, event_bytes: usize) -> Self {
        Self { frames: Frames::new(), reader: wire.stream(), strips, event_bytes, done: false }
    }

    /// Reads the next bytes and says which go on now.
    pub(crate) fn pass(&mut self, bytes: Bytes) -> Result<Bytes, Endless> {
        self.frames.push(&bytes);
        let mut whole = BytesMut::new();
        while let Some(frame) = self.frames.next_frame() {
            let data = frame.data();
            self.done |= data == b"[DONE]";
            let event = self.reader.event(&data);
            if self.strips && !event.only_usage {
                whole.extend_from_slice(&frame.raw);
            }
        }
        if self.frames.pending() > self.event_bytes {
            return Err(Endless);
        }
        Ok(if self.strips { whole.freeze() } else { bytes })
    }

    /// What is left of the stream when it ends within an event.
    pub(crate) fn finish(&mut self) -> Bytes {
        let rest = self.frames.rest();
        if self.strips { rest } else { Bytes::new() }
    }

    /// The stream has said that it is complete.
    pub(crate) fn is_done(&self) -> bool {
        self.done
    }

    /// What the stream has said was used.
    pub(crate) fn usage(&self) -> Option<Tokens> {
        self.reader.usage()
    }

    /// Bytes of output so far: no fewer than tokens.
    pub(crate) fn output_bytes(&self) -> u64 {
        self.reader.output_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"Hé\"}}],\"usage\":null}\n\n\
         : note\n\n\
         data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":3}}\n\n\
         data: [DONE]\n\n";

    fn passed(pieces: &[&[u8]], strips: bool) -> (Vec<u8>, Option<Tokens>) {
        let mut meter = StreamMeter::new(Wire::OpenAiChat, strips, 1 << 20);
        let mut out = Vec::new();
        for piece in pieces {
            out.extend_from_slice(&meter.pass(Bytes::copy_from_slice(piece)).expect("events"));
        }
        out.extend_from_slice(&meter.finish());
        assert!(meter.is_done());
        (out, meter.usage())
    }

    #[test]
    fn case_m15_a_frame_split_at_every_byte_gives_the_same_usage() {
        let used = Some(Tokens { input: 9, output: 3, ..Tokens::default() });
        let stripped: String =
            STREAM.split_inclusive("\n\n").filter(|event| !event.contains("prompt")).collect();
        for strips in [false, true] {
            let expected = if strips { stripped.as_bytes() } else { STREAM.as_bytes() };
            for at in 0..=STREAM.len() {
                let (head, tail) = STREAM.as_bytes().split_at(at);
                assert_eq!(passed(&[head, tail], strips), (expected.to_vec(), used), "{at}");
            }
            let single: Vec<&[u8]> = STREAM.as_bytes().chunks(1).collect();
            assert_eq!(passed(&single, strips), (expected.to_vec(), used));
        }
    }

    #[test]
    fn case_m12_the_extra_chunk_is_stripped_with_any_line_ending() {
        for ending in ["\n", "\r\n", "\r"] {
            let stream = STREAM.replace('\n', ending);
            let event = format!("{ending}{ending}");
            let events = stream.split_inclusive(event.as_str());
            let expected: String = events.filter(|event| !event.contains("prompt")).collect();
            let (out, used) = passed(&[stream.as_bytes()], true);
            assert_eq!(String::from_utf8(out).expect("text"), expected);
            assert!(used.is_some());
        }
    }

    #[test]
    fn what_never_becomes_an_event_is_not_kept() {
        let mut meter = StreamMeter::new(Wire::OpenAiChat, true, 16);
        assert_eq!(meter.pass(Bytes::from_static(b"data: 0123456789abcdef")), Err(Endless));
    }

    #[test]
    fn output_is_counted_in_bytes_until_usage_is_known() {
        let mut meter = StreamMeter::new(Wire::OpenAiChat, false, 1 << 20);
        meter.pass(Bytes::from_static(STREAM.as_bytes())).expect("events");
        assert_eq!(meter.output_bytes(), "{\"content\":\"Hé\"}".len() as u64);
    }
}
