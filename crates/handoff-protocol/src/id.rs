//! Identifiers: a prefix that says what is named, and 26 characters of lower-case Crockford base32 that hold
//! a UUIDv7, so that ids sort by the time they were made.
//!
//! Minting needs a clock and randomness, which this crate has not: edges write
//! `TransferId::from(uuid::Uuid::now_v7())`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
const BODY: usize = 26;

/// Why a text is not an id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{text}' is not an id of the form {prefix}_ + 26 characters of 0-9 a-z without i, l, o, u")]
pub struct InvalidId {
    text: String,
    prefix: &'static str,
}

fn encode(value: u128) -> String {
    let digit = |place: usize| {
        let shift = (BODY - 1 - place) * 5;
        char::from(ALPHABET[((value >> shift) & 31) as usize])
    };
    (0..BODY).map(digit).collect()
}

fn decode(body: &str) -> Option<u128> {
    if body.len() != BODY || body.as_bytes()[0] > b'7' {
        return None;
    }
    body.bytes().try_fold(0u128, |value, byte| {
        let digit = ALPHABET.iter().position(|known| *known == byte)?;
        Some(value << 5 | digit as u128)
    })
}

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident = $prefix:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(u128);

        impl $name {
            /// The prefix that all ids of this kind carry, without the underscore.
            pub const PREFIX: &'static str = $prefix;

            /// The id that holds exactly these 128 bits.
            pub const fn from_u128(bits: u128) -> Self {
                Self(bits)
            }

            /// The 128 bits behind the id.
            pub const fn as_u128(self) -> u128 {
                self.0
            }
        }

        impl From<uuid::Uuid> for $name {
            fn from(uuid: uuid::Uuid) -> Self {
                Self(uuid.as_u128())
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}_{}", $prefix, encode(self.0))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl FromStr for $name {
            type Err = InvalidId;

            fn from_str(text: &str) -> Result<Self, InvalidId> {
                text.strip_prefix(concat!($prefix, "_"))
                    .and_then(decode)
                    .map(Self)
                    .ok_or_else(|| InvalidId { text: text.chars().take(64).collect(), prefix: $prefix })
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                let text = std::borrow::Cow::<'de, str>::deserialize(from)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }

        impl schemars::JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({
                    "type": "string",
                    "pattern": concat!("^", $prefix, "_[0-7][0-9a-hjkmnp-tv-z]{25}$")
                })
            }
        }
    )*};
}

ids! {
    /// A session: the durable identity of one agent loop.
    SessionId = "ses";
    /// A transfer: one attempt to move a session.
    TransferId = "xfr";
    /// A node: a daemon that offers destinations.
    NodeId = "nod";
    /// One start of a destination's agent, or of a source's loop.
    IncarnationId = "inc";
    /// One metered call.
    CallId = "cal";
    /// One usage event.
    EventId = "evt";
    /// An API key.
    KeyId = "key";
    /// A project: the tenant.
    ProjectId = "prj";
    /// An upload of snapshot bytes.
    UploadId = "upl";
    /// A request for approval.
    ApprovalId = "apr";
    /// A transfer token, and the authorisation that spending one leaves behind.
    TokenId = "tok";
}

/// An authorisation carries the id of the token that was spent for it.
pub type AuthorizationId = TokenId;

/// A caller-chosen id of one mutating request: 1 to 128 characters of `[A-Za-z0-9._:-]`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, schemars::JsonSchema)]
#[serde(transparent)]
pub struct RequestId(String);

/// Why a text is not a request id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a request_id has 1 to 128 characters of A-Z a-z 0-9 . _ : -")]
pub struct InvalidRequestId;

impl RequestId {
    /// The id as it was given.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for RequestId {
    type Err = InvalidRequestId;

    fn from_str(text: &str) -> Result<Self, InvalidRequestId> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._:-".contains(&byte);
        let fits = (1..=128).contains(&text.len()) && text.bytes().all(allowed);
        fits.then(|| Self(text.to_owned())).ok_or(InvalidRequestId)
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for RequestId {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn an_id_reads_back_as_itself(bits: u128) {
            let id = TransferId::from_u128(bits);
            prop_assert_eq!(id.to_string().parse::<TransferId>(), Ok(id));
        }

        /// H-107
        #[test]
        fn ids_sort_like_their_bits(a: u128, b: u128) {
            let text = |bits| TransferId::from_u128(bits).to_string();
            prop_assert_eq!(a.cmp(&b), text(a).cmp(&text(b)));
        }
    }

    /// H-107
    #[test]
    fn another_prefix_case_or_length_is_refused() {
        let good = SessionId::from_u128(7).to_string();
        for bad in [
            good.replace("ses_", "xfr_"),
            good.to_uppercase(),
            format!("{good}0"),
            good[..good.len() - 1].to_owned(),
            good.replace("ses_0", "ses_8"),
            String::new(),
        ] {
            assert!(bad.parse::<SessionId>().is_err(), "{bad}");
        }
    }

    /// H-16
    #[test]
    fn a_request_id_has_an_alphabet_and_a_length() {
        assert!("move-1.A:b_c".parse::<RequestId>().is_ok());
        for bad in ["", "a b", "é", "a/b", &"x".repeat(129)] {
            assert!(bad.parse::<RequestId>().is_err(), "{bad}");
        }
    }
}
