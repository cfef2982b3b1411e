//! Credential references: where a secret can be found, never the secret.
//!
//! `vault://<store>/<mount>/<path>#<field>`, `env://<store>/<NAME>`, `file://<store>/<path>#<json-pointer>`.
//! `<store>` is a logical name that the destination's operator maps to an address and an identity, so a
//! snapshot can never name an address. The grammar is strict on purpose: no userinfo, no query, no percent
//! encoding, no `..`, at most 512 bytes.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Which resolver a reference needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scheme {
    /// A KV v2 secret of a vault.
    Vault,
    /// An environment variable of the destination's gateway.
    Env,
    /// A file that the destination's operator allows.
    File,
}

/// A parsed reference; prints exactly as it was written.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CredentialRef {
    text: String,
    scheme: Scheme,
    store: usize,
    path: usize,
}

/// Why a text is not a credential reference.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidReference {
    /// Another scheme, or none. The text is not shown: it may be a secret that was put in the wrong place.
    #[error("a credential reference starts with vault://, env:// or file://")]
    Scheme,
    /// Too long, or a character that the grammar does not have.
    #[error("a credential reference has at most 512 characters of A-Z a-z 0-9 . _ ~ / # - and no '..'")]
    Alphabet,
    /// A part is missing.
    #[error("a credential reference names a store and a path: env://<store>/<NAME>")]
    Parts,
    /// A vault reference without a field.
    #[error("a vault reference names a field: vault://<store>/<mount>/<path>#<field>")]
    Field,
}

impl CredentialRef {
    /// Which resolver it needs.
    pub fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// The operator's logical name of the store.
    pub fn store(&self) -> &str {
        &self.text[self.store..self.path - 1]
    }

    /// The path within the store, without the field.
    pub fn path(&self) -> &str {
        let rest = &self.text[self.path..];
        rest.split_once('#').map_or(rest, |(path, _)| path)
    }

    /// The field or JSON pointer after `#`.
    pub fn field(&self) -> Option<&str> {
        self.text[self.path..].split_once('#').map(|(_, field)| field)
    }

    /// The reference as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl FromStr for CredentialRef {
    type Err = InvalidReference;

    fn from_str(text: &str) -> Result<Self, InvalidReference> {
        let schemes = [("vault://", Scheme::Vault), ("env://", Scheme::Env), ("file://", Scheme::File)];
        let found = schemes.into_iter().find(|(start, _)| text.starts_with(start));
        let (start, scheme) = found.ok_or(InvalidReference::Scheme)?;
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._~/#-:".contains(&byte);
        let traverses = text[start.len()..].split(['/', '#']).any(|part| part == ".." || part == ".");
        if text.len() > 512 || !text.bytes().all(allowed) || traverses || text[start.len()..].contains(':') {
            return Err(InvalidReference::Alphabet);
        }
        let (store, rest) = text[start.len()..].split_once('/').ok_or(InvalidReference::Parts)?;
        let (path, field) = rest.split_once('#').map_or((rest, None), |(path, field)| (path, Some(field)));
        if store.is_empty() || store.contains('#') || path.is_empty() || path.split('/').any(str::is_empty) {
            return Err(InvalidReference::Parts);
        }
        if scheme == Scheme::Vault && field.is_none_or(str::is_empty) {
            return Err(InvalidReference::Field);
        }
        Ok(Self { text: text.to_owned(), scheme, store: start.len(), path: start.len() + store.len() + 1 })
    }
}

impl fmt::Display for CredentialRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for CredentialRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Serialize for CredentialRef {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&self.text)
    }
}

impl<'de> Deserialize<'de> for CredentialRef {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
    }
}

impl schemars::JsonSchema for CredentialRef {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "CredentialRef".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "type": "string",
            "pattern": "^(vault|env|file)://[A-Za-z0-9._~-]+/[A-Za-z0-9._~/#-]+$",
            "maxLength": 512
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// H-44
    #[test]
    fn the_three_forms_come_apart() {
        let parts = |text: &str| {
            let reference: CredentialRef = text.parse().expect(text);
            let field = reference.field().map(str::to_owned);
            (reference.scheme(), reference.store().to_owned(), reference.path().to_owned(), field)
        };
        let own = |a: &str, b: &str| (a.to_owned(), b.to_owned());
        let ((store, path), field) = (own("prod", "secret/openai"), Some("key".to_owned()));
        assert_eq!(parts("vault://prod/secret/openai#key"), (Scheme::Vault, store, path, field));
        let (store, path) = own("local", "OPENAI_API_KEY");
        assert_eq!(parts("env://local/OPENAI_API_KEY"), (Scheme::Env, store, path, None));
        let ((store, path), field) = (own("keys", "a/b.json"), Some("/openai/0".to_owned()));
        assert_eq!(parts("file://keys/a/b.json#/openai/0"), (Scheme::File, store, path, field));
    }

    /// H-44
    #[test]
    fn addresses_traversal_and_literals_are_refused() {
        for bad in [
            "sk-live-abcdef",
            "https://vault.example/secret",
            "env://",
            "env://local",
            "env://local/",
            "env:///X",
            "env://user@local/X",
            "env://local/a%2fb",
            "file://keys/../x",
            "file://keys/a/..#/x",
            "file://keys/a//b",
            "vault://prod/secret/x",
            "vault://prod/secret/x#",
            "env://local:8200/X",
            "env://local/X?y=1",
            "ENV://local/X",
        ] {
            assert!(bad.parse::<CredentialRef>().is_err(), "{bad}");
        }
        assert!(format!("env://local/{}", "x".repeat(600)).parse::<CredentialRef>().is_err());
    }

    #[test]
    fn an_error_never_repeats_the_text() {
        let error = "sk-live-secret".parse::<CredentialRef>().expect_err("a literal");
        assert!(!error.to_string().contains("sk-live"));
    }
}
