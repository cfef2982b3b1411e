//! Seeing that the policy file has changed.

use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

use super::{Policy, PolicyError};

/// Which file it is, and when it was written: device, inode, size, and both times in nanoseconds.
type Stamp = (u64, u64, u64, i128, i128);

/// Looks at a policy file again and again. Whoever looks decides how often.
#[derive(Debug)]
pub struct PolicyWatch {
    path: PathBuf,
    /// Of what was read last; none where there was no file.
    read: Option<Stamp>,
    /// Of the look before.
    seen: Option<Stamp>,
}

impl PolicyWatch {
    /// Reads the file for the first time. Without one there is no upstream, so nothing can be called.
    ///
    /// # Errors
    /// See [`PolicyError`].
    pub fn start(path: PathBuf) -> Result<(Self, Policy), PolicyError> {
        let read = stamp(&path);
        let policy = if read.is_some() { Policy::load(&path)? } else { Policy::parse("")? };
        Ok((Self { path, read, seen: read }, policy))
    }

    /// The policy, if the file has changed since it was read and was the same at the look before: one that is
    /// being written is left alone. A change is told once, also where it is refused. A file that is gone changes
    /// nothing: editors take it away before they put the next one there.
    pub fn look(&mut self) -> Option<Result<Policy, PolicyError>> {
        let now = stamp(&self.path)?;
        let rests = self.seen == Some(now);
        self.seen = Some(now);
        if self.read == Some(now) || !rests {
            return None;
        }
        self.read = Some(now);
        Some(Policy::load(&self.path))
    }
}

fn stamp(path: &std::path::Path) -> Option<Stamp> {
    let found = std::fs::metadata(path).ok()?;
    let ns = |seconds: i64, rest: i64| i128::from(seconds) * 1_000_000_000 + i128::from(rest);
    let (modified, changed) = (ns(found.mtime(), found.mtime_nsec()), ns(found.ctime(), found.ctime_nsec()));
    Some((found.dev(), found.ino(), found.size(), modified, changed))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str =
        "[[upstream]]\nname = \"one\"\nbase_url = \"https://one.example\"\nwire = \"openai-chat\"\n";

    fn names(policy: &Policy) -> Vec<&str> {
        policy.upstreams().map(|upstream| upstream.name.as_str()).collect()
    }

    #[test]
    fn a_file_that_rests_is_read_once_whatever_it_says() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("gateway.toml");
        let (mut watch, policy) = PolicyWatch::start(path.clone()).expect("no file is no upstream");
        assert!(names(&policy).is_empty());
        assert!(watch.look().is_none());
        std::fs::write(&path, ONE).expect("room");
        assert!(watch.look().is_none(), "it may be half written");
        let policy = watch.look().expect("it rests").expect("a policy");
        assert_eq!(names(&policy), ["one"]);
        assert!(watch.look().is_none());
        std::fs::write(&path, "colour = 1").expect("room");
        assert!(watch.look().is_none());
        assert!(watch.look().expect("it rests").is_err());
        assert!(watch.look().is_none(), "told once");
        std::fs::remove_file(&path).expect("removed");
        assert!(watch.look().is_none() && watch.look().is_none(), "what is gone changes nothing");
        // An editor's way: another file under the same name.
        std::fs::write(folder.path().join("new"), ONE.replace("one", "two")).expect("room");
        std::fs::rename(folder.path().join("new"), &path).expect("renamed");
        assert!(watch.look().is_none());
        assert_eq!(names(&watch.look().expect("it rests").expect("a policy")), ["two"]);
    }
}
