//! The secret that transfer tokens are signed with. Only `serve` reads it: whoever can verify such a token can
//! also mint one.

use std::fmt::Display;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};

use anyhow::Result;
use handoff_protocol::ErrorCode;
use handoff_protocol::limits::TOKEN_SECRET_BYTES;
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;

use super::Home;
use crate::refusal::refuse;

const VARIABLE: &str = "TRANSFER_TOKEN_SECRET";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    transfer_token_secret: SecretString,
}

/// The secret from the environment, or from `secrets.toml`, which is made at the first start of the embedded
/// mode.
pub fn token_secret(home: &Home) -> Result<SecretString> {
    let secret = match std::env::var(VARIABLE) {
        Ok(secret) => SecretString::from(secret),
        Err(std::env::VarError::NotPresent) => stored(home)?,
        Err(std::env::VarError::NotUnicode(_)) => {
            return Err(misconfigured(format_args!("{VARIABLE} is not text"), "use 32 random bytes as hex"));
        }
    };
    if secret.expose_secret().len() < TOKEN_SECRET_BYTES {
        let message = format!("{VARIABLE} has fewer than {TOKEN_SECRET_BYTES} bytes");
        return Err(misconfigured(message, "use 32 random bytes as hex"));
    }
    Ok(secret)
}

fn stored(home: &Home) -> Result<SecretString> {
    let path = home.secrets();
    if !path.exists() {
        make(home)?;
    }
    let mode = fs::metadata(&path)?.permissions().mode();
    if mode & 0o077 != 0 {
        let message = format!("{} can be read by others", path.display());
        return Err(misconfigured(message, format_args!("`chmod 600 {}`", path.display())));
    }
    let text = SecretString::from(fs::read_to_string(&path)?);
    // The parser's own message would show the line, and with it the secret.
    let stored: Option<Stored> = toml::from_str(text.expose_secret()).ok();
    let stored = stored.ok_or_else(|| {
        let message = format!("{} cannot be read as written", path.display());
        misconfigured(message, "move it away: a new secret is made, and open tokens are void")
    })?;
    Ok(stored.transfer_token_secret)
}

fn misconfigured(message: impl Display, hint: impl Display) -> anyhow::Error {
    refuse(ErrorCode::Misconfigured, message, hint)
}

fn make(home: &Home) -> Result<()> {
    let mut bytes = zeroed();
    getrandom::fill(bytes.as_mut_slice()).map_err(|_| anyhow::anyhow!("the system gives no randomness"))?;
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let text = SecretString::from(format!("transfer_token_secret = \"{hex}\"\n"));
    let temporary = home.path().join(format!("secrets.toml.{}", std::process::id()));
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
    file.write_all(text.expose_secret().as_bytes())?;
    file.sync_all()?;
    fs::rename(&temporary, home.secrets())?;
    Ok(())
}

fn zeroed() -> [u8; TOKEN_SECRET_BYTES] {
    [0; TOKEN_SECRET_BYTES]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn home() -> (tempfile::TempDir, Home) {
        let directory = tempfile::tempdir().expect("a directory");
        let home = Home::find(Some(directory.path().to_owned())).expect("named");
        (directory, home)
    }

    #[test]
    fn the_secret_is_made_once_and_kept_private() {
        let (_directory, home) = home();
        let first = stored(&home).expect("made");
        let second = stored(&home).expect("read");
        assert_eq!(first.expose_secret(), second.expose_secret());
        assert!(first.expose_secret().len() >= TOKEN_SECRET_BYTES);
        fs::set_permissions(home.secrets(), fs::Permissions::from_mode(0o644)).expect("ours");
        let problem = crate::refusal::problem(&stored(&home).expect_err("open"));
        assert!(problem.hint.contains("chmod 600"), "{problem:?}");
    }

    #[test]
    fn a_damaged_file_is_refused_without_showing_it() {
        let (_directory, home) = home();
        fs::write(home.secrets(), "transfer_token_secret = canary").expect("written");
        fs::set_permissions(home.secrets(), fs::Permissions::from_mode(0o600)).expect("ours");
        let error = format!("{:?}", stored(&home).expect_err("not TOML"));
        assert!(error.contains("misconfigured") && !error.contains("canary"), "{error}");
    }
}
