//! The key cabinet: resolves references into memory, and nowhere else. Values cannot be printed and are wiped
//! when they are dropped.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::io::Read;
use std::path::Path;

use handoff_protocol::reference::{CredentialRef, Scheme};
use http::{HeaderName, HeaderValue};
use reqwest::Url;
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use secrecy::{ExposeSecret, SecretString};
use zeroize::Zeroizing;

use crate::policy::{CredentialRule, Policy, StorePolicy, Upstream};

/// Bytes of a secret's file at the most.
const SECRET_FILE_BYTES: u64 = 64 << 10;
/// Room to read it, and to see that there is no more.
const SECRET_FILE_ROOM: usize = (64 << 10) + 64;

/// Why a reference does not resolve. Never says what was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unresolved {
    /// The operator maps no store of this name, or one of another kind.
    #[error("the operator's policy has no such store")]
    NoStore,
    /// The operator's policy does not allow it.
    #[error("the operator's policy does not allow it")]
    NotAllowed,
    /// It is not there, or empty.
    #[error("it is not there")]
    Absent,
    /// What is there cannot be a credential.
    #[error("what is there is not a text")]
    NotText,
}

/// Reads an environment variable.
pub type ReadEnv = fn(&str) -> Option<OsString>;

/// Resolves references by the operator's policy.
#[derive(Clone)]
pub(crate) struct Resolver {
    env: ReadEnv,
}

impl fmt::Debug for Resolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Resolver")
    }
}

impl Resolver {
    pub(crate) fn new(env: ReadEnv) -> Self {
        Self { env }
    }

    /// The value behind a reference. Blocks while a file is read.
    pub(crate) fn resolve(
        &self,
        policy: &Policy,
        reference: &CredentialRef,
    ) -> Result<SecretString, Unresolved> {
        let store = policy.store(reference.store()).ok_or(Unresolved::NoStore)?;
        let value = match (reference.scheme(), store) {
            (Scheme::Env, StorePolicy::Env { allow }) => self.variable(reference, allow)?,
            (Scheme::File, StorePolicy::File { root }) => beneath_root(reference, root)?,
            (Scheme::Vault | Scheme::Env, StorePolicy::File { .. })
            | (Scheme::Vault | Scheme::File, StorePolicy::Env { .. }) => return Err(Unresolved::NoStore),
        };
        if value.expose_secret().is_empty() { Err(Unresolved::Absent) } else { Ok(value) }
    }

    fn variable(&self, reference: &CredentialRef, allow: &[String]) -> Result<SecretString, Unresolved> {
        if !allow.iter().any(|name| name == reference.path()) || reference.field().is_some() {
            return Err(Unresolved::NotAllowed);
        }
        let value = (self.env)(reference.path()).ok_or(Unresolved::Absent)?;
        value.into_string().map(SecretString::from).map_err(|_| Unresolved::NotText)
    }
}

fn beneath_root(reference: &CredentialRef, root: &Path) -> Result<SecretString, Unresolved> {
    let absent = |_| Unresolved::Absent;
    let root =
        rustix::fs::openat(CWD, root, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
    let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    // Non-blocking, so that a pipe in the store cannot hold the gateway up.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = rustix::fs::openat2(root.map_err(absent)?, reference.path(), flags, Mode::empty(), beneath)
        .map_err(absent)?;
    let file = std::fs::File::from(file);
    if !file.metadata().is_ok_and(|found| found.is_file() && found.len() <= SECRET_FILE_BYTES) {
        return Err(Unresolved::NotText);
    }
    // With room for all of it: text that grows leaves copies behind that nobody wipes.
    let mut text = Zeroizing::new(String::with_capacity(SECRET_FILE_ROOM));
    file.take(SECRET_FILE_BYTES).read_to_string(&mut text).map_err(|_| Unresolved::NotText)?;
    match reference.field() {
        Some(pointer) => at_pointer(&text, pointer),
        // Editors end a file with a line feed that is no part of the secret.
        None => Ok(SecretString::from(text.trim_end_matches(['\n', '\r']).to_owned())),
    }
}

fn at_pointer(text: &str, pointer: &str) -> Result<SecretString, Unresolved> {
    let mut document: serde_json::Value = serde_json::from_str(text).map_err(|_| Unresolved::NotText)?;
    let found = match document.pointer(pointer) {
        Some(serde_json::Value::String(value)) => Ok(SecretString::from(value.clone())),
        Some(_) => Err(Unresolved::NotText),
        None => Err(Unresolved::Absent),
    };
    wipe(&mut document);
    found
}

fn wipe(value: &mut serde_json::Value) {
    use zeroize::Zeroize;
    match value {
        serde_json::Value::String(text) => text.zeroize(),
        serde_json::Value::Array(items) => items.iter_mut().for_each(wipe),
        serde_json::Value::Object(fields) => fields.values_mut().for_each(wipe),
        serde_json::Value::Null | serde_json::Value::Bool(_) | serde_json::Value::Number(_) => {}
    }
}

/// What is put into the calls to one upstream.
pub(crate) struct Injection {
    /// The one address that it may go to.
    base_url: Url,
    rule: CredentialRule,
    value: SecretString,
}

impl fmt::Debug for Injection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Injection({})", self.rule.header)
    }
}

impl Injection {
    fn new(base_url: &Url, rule: &CredentialRule, value: SecretString) -> Result<Self, Unresolved> {
        let injection = Self { base_url: base_url.clone(), rule: rule.clone(), value };
        injection.header().map(|_| injection)
    }

    /// The header as it is sent; marked sensitive, so that it is never printed or indexed.
    pub(crate) fn header(&self) -> Result<(HeaderName, HeaderValue), Unresolved> {
        let secret = self.value.expose_secret();
        let text = Zeroizing::new(match &self.rule.scheme {
            Some(scheme) => format!("{scheme} {secret}"),
            None => secret.to_owned(),
        });
        let mut value = HeaderValue::from_str(&text).map_err(|_| Unresolved::NotText)?;
        value.set_sensitive(true);
        Ok((self.rule.header.clone(), value))
    }

    /// What must not come back in an answer.
    pub(crate) fn secret(&self) -> &[u8] {
        self.value.expose_secret().as_bytes()
    }
}

/// The credentials of one destination, by upstream.
#[derive(Debug, Default)]
pub(crate) struct Cabinet {
    injections: BTreeMap<String, Injection>,
}

impl Cabinet {
    /// Resolves what the destination may use, as far as it resolves, and names what must and does not: references,
    /// and the credentials of upstreams that are named.
    pub(crate) fn fill(
        resolver: &Resolver,
        policy: &Policy,
        references: &[CredentialRef],
        named: &[String],
    ) -> (Self, Vec<CredentialRef>) {
        let mut missing: Vec<CredentialRef> = missing(resolver, policy, references);
        let mut injections = BTreeMap::new();
        for upstream in policy.upstreams() {
            let Some(rule) = &upstream.credential else { continue };
            let is_named = named.contains(&upstream.name);
            if !named.is_empty() && !is_named {
                continue;
            }
            let injection = |value| Injection::new(&upstream.base_url, rule, value);
            match resolver.resolve(policy, &rule.reference).and_then(injection) {
                Ok(injection) => {
                    injections.insert(upstream.name.clone(), injection);
                }
                Err(_) if !is_named || missing.contains(&rule.reference) => {}
                Err(_) => missing.push(rule.reference.clone()),
            }
        }
        (Self { injections }, missing)
    }

    /// What goes to an upstream. Never what was resolved for another address or by another rule of its name: the
    /// policy may have changed since.
    pub(crate) fn injection(&self, upstream: &Upstream) -> Option<&Injection> {
        self.injections.get(&upstream.name).filter(|injection| {
            injection.base_url == upstream.base_url && Some(&injection.rule) == upstream.credential.as_ref()
        })
    }
}

/// Those of the references that do not resolve here.
pub(crate) fn missing(
    resolver: &Resolver,
    policy: &Policy,
    references: &[CredentialRef],
) -> Vec<CredentialRef> {
    let absent = |reference: &&CredentialRef| match resolver.resolve(policy, reference) {
        Ok(_) => false,
        Err(error) => {
            tracing::info!(%reference, %error, "a credential reference does not resolve");
            true
        }
    };
    references.iter().filter(absent).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn env(name: &str) -> Option<OsString> {
        (name != "UNSET").then(|| OsString::from(format!("value-of-{name}")))
    }

    fn policy(root: &Path) -> Policy {
        let root = root.display();
        Policy::parse(&format!(
            "[stores.local]\nkind = \"env\"\nallow = [\"KEY\", \"UNSET\"]\n\
             [stores.keys]\nkind = \"file\"\nroot = \"{root}\"\n"
        ))
        .expect("a policy")
    }

    fn resolve(root: &Path, reference: &str) -> Result<String, Unresolved> {
        let reference = reference.parse().expect("a reference");
        let value = Resolver::new(env).resolve(&policy(root), &reference)?;
        Ok(value.expose_secret().to_owned())
    }

    #[test]
    fn only_names_that_the_operator_allows_are_read() {
        let root = Path::new("/nowhere");
        assert_eq!(resolve(root, "env://local/KEY").as_deref(), Ok("value-of-KEY"));
        assert_eq!(resolve(root, "env://local/UNSET"), Err(Unresolved::Absent));
        assert_eq!(resolve(root, "env://local/PATH"), Err(Unresolved::NotAllowed));
        assert_eq!(resolve(root, "env://local/KEY#/x"), Err(Unresolved::NotAllowed));
        assert_eq!(resolve(root, "env://other/KEY"), Err(Unresolved::NoStore));
        assert_eq!(resolve(root, "env://keys/KEY"), Err(Unresolved::NoStore));
        assert_eq!(resolve(root, "vault://local/a/b#c"), Err(Unresolved::NoStore));
    }

    #[test]
    fn files_are_read_beneath_the_root_and_nowhere_else() {
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path().join("root");
        std::fs::create_dir_all(root.join("deep")).expect("a folder");
        std::fs::write(folder.path().join("outside"), "secret").expect("room");
        std::fs::write(root.join("deep/key"), "abc\n").expect("room");
        std::fs::write(root.join("keys.json"), r#"{"a":[{"k":"v w"}],"n":1}"#).expect("room");
        std::fs::write(root.join("empty"), "\n").expect("room");
        std::os::unix::fs::symlink("../outside", root.join("link")).expect("a link");
        assert_eq!(resolve(&root, "file://keys/deep/key").as_deref(), Ok("abc"));
        assert_eq!(resolve(&root, "file://keys/keys.json#/a/0/k").as_deref(), Ok("v w"));
        assert_eq!(resolve(&root, "file://keys/keys.json#/n"), Err(Unresolved::NotText));
        assert_eq!(resolve(&root, "file://keys/keys.json#/b"), Err(Unresolved::Absent));
        for absent in ["link", "empty", "none"] {
            let found = resolve(&root, &format!("file://keys/{absent}"));
            assert_eq!(found, Err(Unresolved::Absent), "{absent}");
        }
        assert_eq!(resolve(&root, "file://keys/deep"), Err(Unresolved::NotText));
    }

    #[test]
    fn nothing_prints_a_value() {
        let rule = CredentialRule {
            reference: "env://local/KEY".parse().expect("a reference"),
            header: http::header::AUTHORIZATION,
            scheme: Some("Bearer".to_owned()),
        };
        let url = Url::parse("https://models.example").expect("an address");
        let injection =
            Injection::new(&url, &rule, SecretString::from("canary-7".to_owned())).expect("a header");
        let printed = format!("{injection:?} {:?}", injection.header());
        assert!(!printed.contains("canary"), "{printed}");
        assert!(Injection::new(&url, &rule, SecretString::from("two\nlines".to_owned())).is_err());
    }
}
