//! Takes an injected credential out of whatever an upstream sends back. Its length stays, so that no frame or
//! length around it has to change.

use bytes::{Bytes, BytesMut};
use zeroize::Zeroizing;

/// Below this a value is too ordinary to be looked for: it would blank half the text.
const SHORTEST: usize = 6;

/// Looks for one value in a byte stream that may be split anywhere.
pub(crate) struct Scrub {
    secret: Zeroizing<Vec<u8>>,
    /// Bytes at the end of the stream so far that may be the beginning of the value.
    held_back: BytesMut,
}

impl Scrub {
    /// A scrub that looks for `secret`; for none it lets everything through.
    pub(crate) fn new(secret: Option<&[u8]>) -> Self {
        let secret = secret.filter(|secret| secret.len() >= SHORTEST).unwrap_or_default();
        Self { secret: Zeroizing::new(secret.to_vec()), held_back: BytesMut::new() }
    }

    /// What may go on of the stream so far. Only what may become the value is held back.
    pub(crate) fn pass(&mut self, bytes: Bytes) -> Bytes {
        if self.secret.is_empty() || (bytes.is_empty() && self.held_back.is_empty()) {
            return bytes;
        }
        self.held_back.extend_from_slice(&bytes);
        blank(&mut self.held_back, &self.secret);
        let begun = begun(&self.held_back, &self.secret);
        let ready = self.held_back.len() - begun;
        self.held_back.split_to(ready).freeze()
    }

    /// The end of the stream.
    pub(crate) fn finish(&mut self) -> Bytes {
        self.held_back.split().freeze()
    }

    /// A whole text at once.
    pub(crate) fn whole(&self, bytes: Bytes) -> Bytes {
        if self.secret.is_empty() || find(&bytes, &self.secret).is_none() {
            return bytes;
        }
        let mut owned = BytesMut::from(bytes.as_ref());
        blank(&mut owned, &self.secret);
        owned.freeze()
    }
}

fn find(text: &[u8], secret: &[u8]) -> Option<usize> {
    text.windows(secret.len()).position(|window| window == secret)
}

fn blank(text: &mut [u8], secret: &[u8]) {
    let mut from = 0;
    while let Some(at) = find(&text[from..], secret) {
        text[from + at..from + at + secret.len()].fill(b'*');
        from += at + secret.len();
    }
}

/// How many bytes at the end of the text are a beginning of the secret.
fn begun(text: &[u8], secret: &[u8]) -> usize {
    let longest = text.len().min(secret.len() - 1);
    (1..=longest).rev().find(|length| text.ends_with(&secret[..*length])).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &[u8] = b"sk-sk-canary";

    fn passed(pieces: &[&[u8]]) -> Vec<u8> {
        let mut scrub = Scrub::new(Some(SECRET));
        let mut out = Vec::new();
        for piece in pieces {
            out.extend_from_slice(&scrub.pass(Bytes::copy_from_slice(piece)));
        }
        out.extend_from_slice(&scrub.finish());
        out
    }

    #[test]
    fn a_value_split_anywhere_is_found_and_its_length_stays() {
        let text = b"a sk-sk-sk-canary, sk-sk-canarysk-sk-canary and sk-sk";
        let clean = b"a sk-************, ************************ and sk-sk";
        for at in 0..=text.len() {
            assert_eq!(passed(&[&text[..at], &text[at..]]), clean, "{at}");
        }
        assert_eq!(passed(&text.chunks(1).collect::<Vec<_>>()), clean);
        assert_eq!(Scrub::new(Some(SECRET)).whole(Bytes::from_static(text)).as_ref(), clean);
    }

    #[test]
    fn an_event_is_not_held_back() {
        let mut scrub = Scrub::new(Some(SECRET));
        let event = Bytes::from_static(b"data: {}\n\n");
        assert_eq!(scrub.pass(event.clone()), event);
        assert_eq!(Scrub::new(Some(b"a")).whole(Bytes::from_static(b"banana")).as_ref(), b"banana");
    }
}
