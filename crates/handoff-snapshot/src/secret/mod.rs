//! Finding what looks like a credential.
//!
//! In `mcp_config` it is refused, because a reference belongs there ([`in_servers`]). Elsewhere it is reported by
//! kind and place, and only our own transfer tokens are taken out. A value never appears in an error or a report.
//! Sources of the prefixes: the providers' published token formats.

mod servers;

use std::ops::Range;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

pub(crate) use servers::in_servers;

/// What stands in the place of a transfer token.
pub(crate) const REDACTED: &[u8] = b"[redacted transfer token]";

/// What something looks like.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SecretKind {
    /// A model provider's key.
    ApiKey,
    /// A token of a code host.
    CodeHostToken,
    /// A cloud provider's key id.
    CloudKey,
    /// A token of a chat service.
    ChatToken,
    /// A private key.
    PrivateKey,
    /// A signed token of somebody else.
    SignedToken,
    /// A transfer token of this product.
    TransferToken,
    /// A password in an address.
    Password,
    /// A value under a name that says that it is secret.
    NamedValue,
    /// A value that looks random.
    RandomValue,
}

impl SecretKind {
    /// The kind in words.
    pub const fn words(self) -> &'static str {
        match self {
            Self::ApiKey => "a provider's API key",
            Self::CodeHostToken => "a code host's token",
            Self::CloudKey => "a cloud provider's key",
            Self::ChatToken => "a chat service's token",
            Self::PrivateKey => "a private key",
            Self::SignedToken => "a signed token",
            Self::TransferToken => "a transfer token",
            Self::Password => "a password in an address",
            Self::NamedValue => "a literal under a secret's name",
            Self::RandomValue => "a random-looking literal",
        }
    }
}

/// A prefix that a kind of credential has, and how many characters follow at the least.
struct Known {
    prefix: &'static [u8],
    follow: usize,
    kind: SecretKind,
}

const fn known(prefix: &'static str, follow: usize, kind: SecretKind) -> Known {
    Known { prefix: prefix.as_bytes(), follow, kind }
}

const KNOWN: [Known; 18] = [
    known("sk-", 20, SecretKind::ApiKey),
    known("sk_live_", 16, SecretKind::ApiKey),
    known("rk_live_", 16, SecretKind::ApiKey),
    known("AIza", 35, SecretKind::ApiKey),
    known("hf_", 30, SecretKind::ApiKey),
    known("gsk_", 40, SecretKind::ApiKey),
    known("ghp_", 20, SecretKind::CodeHostToken),
    known("gho_", 20, SecretKind::CodeHostToken),
    known("ghs_", 20, SecretKind::CodeHostToken),
    known("ghu_", 20, SecretKind::CodeHostToken),
    known("ghr_", 20, SecretKind::CodeHostToken),
    known("github_pat_", 20, SecretKind::CodeHostToken),
    known("glpat-", 16, SecretKind::CodeHostToken),
    known("AKIA", 16, SecretKind::CloudKey),
    known("ASIA", 16, SecretKind::CloudKey),
    known("xoxb-", 10, SecretKind::ChatToken),
    known("xoxp-", 10, SecretKind::ChatToken),
    known("xoxa-", 10, SecretKind::ChatToken),
];

/// The bytes that a credential can start with: every byte of every conversation is looked up here.
const STARTS: [bool; 256] = {
    let mut starts = [false; 256];
    starts[b'-' as usize] = true;
    starts[b'e' as usize] = true;
    let mut at = 0;
    while at < KNOWN.len() {
        starts[KNOWN[at].prefix[0] as usize] = true;
        at += 1;
    }
    starts
};

/// A credential-like place in some bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) range: Range<usize>,
    pub(crate) kind: SecretKind,
}

/// All places in these bytes that look like a credential by their form.
pub(crate) fn scan(bytes: &[u8]) -> Vec<Found> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        if !STARTS[usize::from(bytes[at])] {
            at += 1;
            continue;
        }
        let word_start = at == 0 || !is_word(bytes[at - 1]) || escaped_before(bytes, at);
        match word_start.then(|| recognize(&bytes[at..])).flatten() {
            Some((length, kind)) => {
                found.push(Found { range: at..at + length, kind });
                at += length;
            }
            None => at += 1,
        }
    }
    found
}

/// After an escape such as `\n` in a JSON string, a new word begins although a letter stands before it.
fn escaped_before(bytes: &[u8], at: usize) -> bool {
    at >= 2 && bytes[at - 2] == b'\\' && matches!(bytes[at - 1], b'n' | b't' | b'r')
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-')
}

fn recognize(rest: &[u8]) -> Option<(usize, SecretKind)> {
    match rest.first()? {
        b'-' => private_key(rest),
        b'e' => signed_token(rest),
        _ => prefixed(rest),
    }
}

fn prefixed(rest: &[u8]) -> Option<(usize, SecretKind)> {
    let known = KNOWN.iter().find(|known| rest.starts_with(known.prefix))?;
    let body = &rest[known.prefix.len()..];
    let length = body.iter().take_while(|byte| is_word(**byte)).count();
    let body = &body[..length];
    // Words joined by hyphens ("sk-learn-something-longer") have no digits.
    let mixed = body.iter().any(u8::is_ascii_digit) && body.iter().any(u8::is_ascii_alphabetic);
    (length >= known.follow && mixed).then_some((known.prefix.len() + length, known.kind))
}

fn private_key(rest: &[u8]) -> Option<(usize, SecretKind)> {
    let label = rest.strip_prefix(b"-----BEGIN ")?;
    let line = &label[..label.len().min(64)];
    let end = line.windows(16).position(|window| window == b"PRIVATE KEY-----")?;
    Some((11 + end + 16, SecretKind::PrivateKey))
}

fn signed_token(rest: &[u8]) -> Option<(usize, SecretKind)> {
    if !rest.starts_with(b"eyJ") {
        return None;
    }
    let segment = |from: usize| rest[from..].iter().take_while(|byte| is_word(**byte)).count();
    let header = segment(0);
    let payload_at = header + 1;
    if rest.get(header) != Some(&b'.') || !rest[payload_at..].starts_with(b"eyJ") {
        return None;
    }
    let payload = segment(payload_at);
    let signature_at = payload_at + payload + 1;
    if rest.get(signature_at - 1) != Some(&b'.') {
        return None;
    }
    let signature = segment(signature_at);
    if header < 10 || payload < 10 || signature < 10 {
        return None;
    }
    // A transfer token names its transfer, whatever its other claims are.
    let claims = URL_SAFE_NO_PAD.decode(&rest[payload_at..payload_at + payload]).unwrap_or_default();
    let ours = claims.windows(4).any(|window| window == b"xfr_");
    let kind = if ours { SecretKind::TransferToken } else { SecretKind::SignedToken };
    Some((signature_at + signature, kind))
}

/// Takes our own tokens out of the text and says what else was found in it.
pub(crate) fn redact(text: &[u8]) -> (Option<Vec<u8>>, Vec<SecretKind>) {
    let found = scan(text);
    let mut kinds: Vec<_> = found.iter().map(|found| found.kind).collect();
    kinds.sort_unstable();
    kinds.dedup();
    let mut clean: Option<Vec<u8>> = None;
    let mut copied = 0;
    for token in found.iter().filter(|found| found.kind == SecretKind::TransferToken) {
        let clean = clean.get_or_insert_default();
        clean.extend_from_slice(&text[copied..token.range.start]);
        clean.extend_from_slice(REDACTED);
        copied = token.range.end;
    }
    if let Some(clean) = &mut clean {
        clean.extend_from_slice(&text[copied..]);
    }
    (clean, kinds)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Put together here, so that no scanner takes this file for a leak.
    fn key(prefix: &str, body: &str) -> String {
        format!("{prefix}{body}")
    }

    fn token(claims: &str) -> String {
        let part = |text: &str| URL_SAFE_NO_PAD.encode(text);
        format!("{}.{}.{}", part(r#"{"alg":"HS256"}"#), part(claims), part("0123456789abcdef"))
    }

    #[test]
    fn known_forms_are_found_with_their_place() {
        let body = "a1B2c3D4e5F6g7H8i9J0k1L2";
        for (text, kind) in [
            (key("sk-", body), SecretKind::ApiKey),
            (key("sk-", &format!("proj-{body}")), SecretKind::ApiKey),
            (key("ghp_", body), SecretKind::CodeHostToken),
            (key("github_pat_", body), SecretKind::CodeHostToken),
            (key("AKIA", "ABCDEFGH12345678"), SecretKind::CloudKey),
            (key("xoxb-", "12345678-abcdef"), SecretKind::ChatToken),
            (key("-----BEGIN ", "RSA PRIVATE KEY-----"), SecretKind::PrivateKey),
            (token(r#"{"sub":"x","n":12}"#), SecretKind::SignedToken),
            (token(r#"{"sub":"xfr_0","n":1}"#), SecretKind::TransferToken),
        ] {
            for (before, after) in [("", ""), ("key=", " "), ("\\n", "\\n"), ("\"", "\"")] {
                let found = scan(format!("{before}{text}{after}").as_bytes());
                let whole = before.len()..before.len() + text.len();
                assert_eq!(found, [Found { range: whole, kind }], "{before}{text}{after}");
            }
        }
    }

    #[test]
    fn prose_paths_and_digests_are_not_credentials() {
        let digest = handoff_protocol::Digest::of(b"x").to_string();
        for text in [
            "the sk-learn-style-estimators-of-this",
            "ask-me-1234567890123456789012",
            "eyJust.eyJump.e",
            &digest,
        ] {
            assert_eq!(scan(text.as_bytes()), [], "{text}");
        }
    }

    #[test]
    fn only_our_own_tokens_are_taken_out() {
        let (theirs, ours) = (key("ghp_", "a1B2c3D4e5F6g7H8i9J0"), token(r#"{"sub":"xfr_0","x":1}"#));
        let text = format!(r#"{{"content":"{theirs} {ours}","b":"{ours}"}}"#);
        let (clean, kinds) = redact(text.as_bytes());
        let clean = String::from_utf8(clean.expect("changed")).expect("UTF-8");
        let mark = std::str::from_utf8(REDACTED).expect("ASCII");
        assert_eq!(clean, format!(r#"{{"content":"{theirs} {mark}","b":"{mark}"}}"#));
        assert_eq!(kinds, [SecretKind::CodeHostToken, SecretKind::TransferToken]);
        assert_eq!(redact(b"nothing"), (None, Vec::new()));
    }
}
