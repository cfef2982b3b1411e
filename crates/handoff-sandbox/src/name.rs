//! The name of one start of a sandbox, and the marks by which everything of it is found again: the kernel
//! keeps them, so a node that has just started needs no memory of its own.
//!
//! | what | mark |
//! |---|---|
//! | cgroups | the directory `handoff.<name>.<nonce>` |
//! | launcher and init | the command line `… sandbox-init <stage> <name>` |
//! | every process inside | the root mount's source, `handoff.<name>` |

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize};

/// What every mark begins with.
const TAG: &str = "handoff.";
/// Bytes of a name: a cgroup directory may have 255.
const LONGEST: usize = 96;

/// The name of one start of a sandbox: 1 to 96 characters of `a-z 0-9 _ -`. A node makes a new one for every
/// start, for example `<transfer>-<generation>-<a counter or an incarnation>`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct Name(String);

/// Why a text is not a name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a sandbox's name has 1 to {LONGEST} characters of a-z 0-9 _ -")]
pub struct InvalidName;

impl Name {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The source of the root mount.
    pub(crate) fn mount_source(&self) -> String {
        format!("{TAG}{self}")
    }

    /// A directory name for the cgroups of this start that no earlier one has had.
    pub(crate) fn fresh_cgroup(&self) -> String {
        let nonce = uuid::Uuid::new_v4().simple().to_string();
        format!("{TAG}{self}.{}", &nonce[..8])
    }

    /// Whose cgroup a directory is, if it is one of ours.
    pub(crate) fn of_cgroup(directory: &str) -> Option<Self> {
        let (name, nonce) = directory.strip_prefix(TAG)?.rsplit_once('.')?;
        let ours = nonce.len() == 8 && nonce.bytes().all(|byte| byte.is_ascii_hexdigit());
        ours.then(|| name.parse().ok())?
    }

    /// Whose root a mount is, if it is one of ours.
    pub(crate) fn of_mount_source(source: &str) -> Option<Self> {
        source.strip_prefix(TAG)?.parse().ok()
    }
}

impl FromStr for Name {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, InvalidName> {
        let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_-".contains(&byte);
        let fits = (1..=LONGEST).contains(&text.len()) && text.bytes().all(allowed);
        fits.then(|| Self(text.to_owned())).ok_or(InvalidName)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_name_their_sandbox_and_no_other() {
        let name: Name = "xfr_01-3".parse().expect("a name");
        assert_eq!(Name::of_cgroup(&name.fresh_cgroup()), Some(name.clone()));
        assert_ne!(name.fresh_cgroup(), name.fresh_cgroup());
        assert_eq!(Name::of_mount_source(&name.mount_source()), Some(name));
        for other in ["handoff.slice", "handoff.a.b", "handoff.a.0123456g", "a.01234567", "handoff..01234567"]
        {
            assert_eq!(Name::of_cgroup(other), None, "{other}");
        }
    }

    #[test]
    fn a_name_is_safe_as_a_path_and_as_an_argument() {
        for bad in ["", "a/b", "a.b", "A", "é", "a b", &"a".repeat(97)] {
            assert!(bad.parse::<Name>().is_err(), "{bad}");
        }
    }
}
