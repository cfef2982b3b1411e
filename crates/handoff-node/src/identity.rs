//! Who this node is: an id for life and the key that signs its receipts, in one file that only its owner reads.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use ed25519_dalek::{Signer as _, SigningKey};
use handoff_protocol::node::receipt_message;
use handoff_protocol::{Digest, NodeId, TransferId};
use serde::{Deserialize, Serialize};
use zeroize::{Zeroize as _, Zeroizing};

/// The file's name in the node's home.
const FILE: &str = "identity.toml";

/// A node's id and signing key. It cannot be printed.
pub struct Identity {
    id: NodeId,
    key: SigningKey,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    node_id: NodeId,
    /// 32 bytes as lower-case hexadecimal.
    secret_key: String,
}

/// Why a node does not know who it is.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// The file cannot be read or made.
    #[error("{FILE} in the node's home cannot be read or made")]
    File(#[source] io::Error),
    /// The file is not what this program wrote.
    #[error("{FILE} in the node's home is damaged: move it away, and the node registers as a new one")]
    Damaged,
    /// The system gives no randomness.
    #[error("the system gives no randomness")]
    Randomness,
}

impl Drop for Stored {
    fn drop(&mut self) {
        self.secret_key.zeroize();
    }
}

impl Identity {
    /// Reads the identity, or makes one at the first start.
    ///
    /// # Errors
    /// When the file cannot be read or made, or is damaged. A damaged file is never replaced: receipts under
    /// another key would be refused.
    pub fn load_or_make(home: &Path) -> Result<Self, IdentityError> {
        match fs::read_to_string(home.join(FILE)) {
            Ok(text) => Self::parse(&Zeroizing::new(text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Self::make(home),
            Err(error) => Err(IdentityError::File(error)),
        }
    }

    /// The node's id.
    pub fn id(&self) -> NodeId {
        self.id
    }

    /// The key that receipts are verified with: 32 bytes as lower-case hexadecimal.
    pub fn public_key(&self) -> String {
        hex(self.key.verifying_key().as_bytes())
    }

    /// The signature of a receipt: 64 bytes as lower-case hexadecimal.
    pub fn sign_receipt(&self, transfer: TransferId, generation: u64, digest: Digest) -> String {
        hex(&self.key.sign(&receipt_message(transfer, generation, self.id, digest)).to_bytes())
    }

    fn parse(text: &str) -> Result<Self, IdentityError> {
        let stored: Stored = toml::from_str(text).map_err(|_| IdentityError::Damaged)?;
        let bytes = Zeroizing::new(unhex(&stored.secret_key).ok_or(IdentityError::Damaged)?);
        Ok(Self { id: stored.node_id, key: SigningKey::from_bytes(&bytes) })
    }

    fn make(home: &Path) -> Result<Self, IdentityError> {
        let mut secret = Zeroizing::new([0u8; 32]);
        getrandom::fill(secret.as_mut_slice()).map_err(|_| IdentityError::Randomness)?;
        let id = NodeId::from(uuid::Uuid::now_v7());
        let stored = Stored { node_id: id, secret_key: hex(secret.as_slice()) };
        let text = Zeroizing::new(toml::to_string(&stored).expect("two strings always print"));
        let temporary = home.join(format!("{FILE}.{}", std::process::id()));
        let write = || -> io::Result<()> {
            let mut file =
                fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            fs::rename(&temporary, home.join(FILE))
        };
        write().map_err(IdentityError::File)?;
        Ok(Self { id, key: SigningKey::from_bytes(&secret) })
    }
}

/// Into one piece of memory that does not grow, so that no copy of a key's text stays behind.
fn hex(bytes: &[u8]) -> String {
    let digit = |value: u8| char::from(b"0123456789abcdef"[usize::from(value)]);
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        text.push(digit(byte >> 4));
        text.push(digit(byte & 15));
    }
    text
}

fn unhex(text: &str) -> Option<[u8; 32]> {
    if text.len() != 64 || !text.is_ascii() {
        return None;
    }
    let mut bytes = [0; 32];
    for (slot, place) in bytes.iter_mut().zip((0..64).step_by(2)) {
        *slot = u8::from_str_radix(&text[place..place + 2], 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use ed25519_dalek::{Signature, Verifier as _, VerifyingKey};

    use super::*;

    #[test]
    fn an_identity_is_made_once_and_kept_private() {
        let home = tempfile::tempdir().expect("a directory");
        let made = Identity::load_or_make(home.path()).expect("made");
        let read = Identity::load_or_make(home.path()).expect("read");
        assert_eq!((made.id(), made.public_key()), (read.id(), read.public_key()));
        let mode = fs::metadata(home.path().join(FILE)).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn a_damaged_file_is_refused_and_left_alone() {
        let home = tempfile::tempdir().expect("a directory");
        fs::write(home.path().join(FILE), "node_id = 1").expect("written");
        assert!(matches!(Identity::load_or_make(home.path()), Err(IdentityError::Damaged)));
        assert_eq!(fs::read(home.path().join(FILE)).expect("there"), b"node_id = 1");
    }

    #[test]
    fn a_receipt_verifies_with_the_public_key_over_the_contract_s_bytes() {
        let home = tempfile::tempdir().expect("a directory");
        let identity = Identity::load_or_make(home.path()).expect("made");
        let (transfer, digest) = (TransferId::from_u128(7), Digest::of(b"manifest"));
        let signature = identity.sign_receipt(transfer, 3, digest);
        let bytes: Vec<u8> = (0..128)
            .step_by(2)
            .map(|place| u8::from_str_radix(&signature[place..place + 2], 16).expect("hexadecimal"))
            .collect();
        let signature = Signature::from_slice(&bytes).expect("64 bytes");
        let key = unhex(&identity.public_key()).expect("32 bytes");
        let key = VerifyingKey::from_bytes(&key).expect("a point");
        let message = format!("handoff-receipt-v1\n{transfer}\n3\n{}\n{digest}", identity.id());
        assert!(key.verify(message.as_bytes(), &signature).is_ok());
    }
}
