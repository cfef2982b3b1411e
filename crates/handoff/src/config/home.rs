//! The state directory, `$HANDOFF_HOME`, and every path below it.

use std::fs;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::Result;
use handoff_protocol::ErrorCode;

use crate::refusal::{OrRefuse as _, refuse};

/// The state directory.
#[derive(Debug, Clone)]
pub struct Home(PathBuf);

impl Home {
    /// The directory that was named, or `$HANDOFF_HOME`, or for root `/var/lib/handoff`, or
    /// `$XDG_DATA_HOME/handoff`.
    pub fn find(named: Option<PathBuf>) -> Result<Self> {
        let from = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        if let Some(path) = named.or_else(|| from("HANDOFF_HOME")) {
            return Ok(Self(std::path::absolute(path)?));
        }
        if rustix::process::geteuid().is_root() {
            return Ok(Self("/var/lib/handoff".into()));
        }
        let data = from("XDG_DATA_HOME").or_else(|| from("HOME").map(|home| home.join(".local/share")));
        match data {
            Some(data) => Ok(Self(data.join("handoff"))),
            None => {
                let hint = "set HANDOFF_HOME to a directory for Handoff's state";
                Err(refuse(ErrorCode::Misconfigured, "there is neither HOME nor HANDOFF_HOME", hint))
            }
        }
    }

    /// Makes the directory, for its owner alone. One that others may write to is refused.
    pub fn prepare(&self) -> Result<()> {
        make_private(&self.0)?;
        let mode = fs::metadata(&self.0)?.permissions().mode();
        if mode & 0o022 != 0 {
            let at = self.0.display();
            let message = format!("the state directory {at} can be written by others");
            let hint = format!("`chmod go-w {at}`, or choose another HANDOFF_HOME");
            return Err(refuse(ErrorCode::Misconfigured, message, hint));
        }
        make_private(&self.log())
    }

    /// The directory itself.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Where the control plane listens.
    pub fn socket(&self) -> PathBuf {
        self.0.join("handoff.sock")
    }

    /// The embedded store.
    pub fn database(&self) -> PathBuf {
        self.0.join("handoff.db")
    }

    /// The secrets that only `serve` reads.
    pub fn secrets(&self) -> PathBuf {
        self.0.join("secrets.toml")
    }

    /// The operator's settings of this state directory, which take the place of the user's.
    pub fn settings(&self) -> PathBuf {
        self.0.join("config.toml")
    }

    /// The node's directory: identity, blobs, destinations.
    pub fn node(&self) -> PathBuf {
        self.0.join("node")
    }

    /// The gateway's directory: journals and its control socket.
    pub fn gateway(&self) -> PathBuf {
        self.0.join("gateway")
    }

    /// The operator's policy for upstreams, prices and credentials.
    pub fn gateway_policy(&self) -> PathBuf {
        self.0.join("gateway.toml")
    }

    /// Logs of the processes that run in the background.
    pub fn log(&self) -> PathBuf {
        self.0.join("log")
    }

    /// The lock that a process of this role holds while it lives.
    pub fn lock(&self, role: &str) -> PathBuf {
        self.0.join(format!("{role}.lock"))
    }
}

/// Makes a directory that only its owner may enter.
pub fn make_private(path: &Path) -> Result<()> {
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
    let message = format!("the directory {} cannot be made", path.display());
    made.or_refuse(ErrorCode::Misconfigured, message, "check its parent, or choose another HANDOFF_HOME")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_home_that_others_may_write_to_is_refused() {
        let directory = tempfile::tempdir().expect("a directory");
        let home = Home::find(Some(directory.path().join("state"))).expect("named");
        home.prepare().expect("made");
        let mode = fs::metadata(home.path()).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        fs::set_permissions(home.path(), fs::Permissions::from_mode(0o777)).expect("ours");
        let problem = crate::refusal::problem(&home.prepare().expect_err("open to others"));
        assert_eq!(problem.code, ErrorCode::Misconfigured);
        assert!(problem.hint.contains("chmod"), "{problem:?}");
    }
}
