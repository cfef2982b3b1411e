//! What a node must remember of one destination across its own death: `destination.json`, replaced by rename.
//!
//! Written before anything that depends on it: the claim's incarnation and first sending before the claim
//! leaves, the epoch before `go`. A node that starts reads these records and adopts what still runs.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use handoff_protocol::id::RequestId;
use handoff_protocol::reference::CredentialRef;
use handoff_protocol::{AuthorizationId, Digest, IncarnationId, SessionId, TransferId};
use serde::{Deserialize, Serialize};

const FILE: &str = "destination.json";
/// What a record that cannot be read is called from then on, for people.
const DAMAGED: &str = "destination.json.damaged";

/// A destination as it was left.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// The transfer.
    pub transfer_id: TransferId,
    /// Its assignment.
    pub generation: u64,
    /// Its session.
    pub session_id: SessionId,
    /// The snapshot that stands restored in the directory.
    pub restored: Option<Digest>,
    /// The sandbox that was started last, and is not proved gone.
    pub sandbox: Option<SandboxRecord>,
    /// The snapshot that a receipt was accepted for.
    pub receipted: Option<Digest>,
    /// SHA-256 of the token that the agent shows at the gateway's door.
    pub agent_token: Option<Digest>,
    /// Credential references that the session names.
    pub references: Vec<CredentialRef>,
    /// The upstream that the session's model is reached through.
    pub upstreams: Vec<String>,
    /// A claim that was sent, or was about to be.
    pub claim: Option<ClaimRecord>,
    /// The epoch that this destination holds, by the last accepted claim.
    pub holding: Option<Holding>,
    /// The last checkpoint or final that was accepted since then.
    pub checkpoint: Option<Digest>,
    /// A checkpoint that was sent, or was about to be, and whose answer is not known.
    #[serde(default)]
    pub offered: Option<Digest>,
    /// The final that was given to a successor, or was about to be.
    #[serde(default)]
    pub given: Option<Given>,
}

/// A final that a holder stopped for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Given {
    /// The successor.
    pub successor: TransferId,
    /// What it is given.
    pub digest: Digest,
    /// By which request: sent again it is the same one.
    pub request_id: RequestId,
    /// The control plane took it.
    pub accepted: bool,
}

/// A sandbox that was started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SandboxRecord {
    /// The name by which all its processes, mounts and cgroups are found.
    pub name: String,
    /// Which start of the agent runs in it.
    pub incarnation: IncarnationId,
}

/// A claim and when it was first sent: the lease counts from there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClaimRecord {
    /// By which authorisation; none for a re-claim.
    pub authorization: Option<AuthorizationId>,
    /// Which start claims.
    pub incarnation: IncarnationId,
    /// CLOCK_BOOTTIME in milliseconds.
    pub first_sent_ms: u64,
    /// The boot that it counts from.
    pub boot_id: String,
}

/// An epoch and who holds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Holding {
    /// The epoch.
    pub epoch: u64,
    /// The incarnation.
    pub incarnation: IncarnationId,
}

impl Record {
    /// A destination that nothing has been done for.
    pub fn new(transfer_id: TransferId, generation: u64, session_id: SessionId) -> Self {
        Self {
            transfer_id,
            generation,
            session_id,
            restored: None,
            sandbox: None,
            receipted: None,
            agent_token: None,
            references: Vec::new(),
            upstreams: Vec::new(),
            claim: None,
            holding: None,
            checkpoint: None,
            offered: None,
            given: None,
        }
    }

    /// The record in a destination's directory, if there is a readable one.
    pub fn load(directory: &Path) -> io::Result<Option<Self>> {
        let bytes = match fs::read(directory.join(FILE)) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        serde_json::from_slice(&bytes)
            .map(Some)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    }

    /// Makes it durable.
    pub fn save(&self, directory: &Path) -> io::Result<()> {
        // A destination may end before anything was unpacked for it.
        fs::create_dir_all(directory)?;
        let temporary = directory.join(format!("{FILE}.new"));
        let mut file = fs::File::create(&temporary)?;
        file.write_all(&serde_json::to_vec(self).expect("plain data"))?;
        file.sync_all()?;
        fs::rename(&temporary, directory.join(FILE))?;
        sync(directory)?;
        // The directory itself may be new.
        directory.parent().map_or(Ok(()), sync)
    }
}

fn sync(directory: &Path) -> io::Result<()> {
    fs::File::open(directory)?.sync_all()
}

/// Whether reading a record failed for what it says. Everything else may pass.
pub fn is_damage(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::IsADirectory)
}

/// Takes a record that cannot be read out of the way and keeps it.
pub fn put_aside(directory: &Path) -> io::Result<()> {
    let aside = directory.join(DAMAGED);
    // A file cannot take the place of a directory.
    if fs::symlink_metadata(&aside).is_ok_and(|found| found.is_dir()) {
        fs::remove_dir_all(&aside)?;
    }
    match fs::rename(directory.join(FILE), aside) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Err(_) | Ok(()) => sync(directory),
    }
}

/// The directory of one assignment.
pub fn directory(home: &Path, transfer: TransferId, generation: u64) -> PathBuf {
    home.join("destinations").join(format!("{transfer}-{generation}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_reads_back_and_a_damaged_one_is_an_error() {
        let home = tempfile::tempdir().expect("a directory");
        assert_eq!(Record::load(home.path()).expect("readable"), None);
        let mut record = Record::new(TransferId::from_u128(1), 2, SessionId::from_u128(3));
        record.holding = Some(Holding { epoch: 4, incarnation: IncarnationId::from_u128(5) });
        record.save(home.path()).expect("saved");
        assert_eq!(Record::load(home.path()).expect("readable"), Some(record));
        for damaged in ["{", "", "\0\0\0\0"] {
            fs::write(home.path().join(FILE), damaged).expect("written");
            assert!(is_damage(&Record::load(home.path()).expect_err("unreadable")), "{damaged:?}");
            put_aside(home.path()).expect("renamed");
            assert_eq!(Record::load(home.path()).expect("nothing to read"), None);
            assert_eq!(fs::read_to_string(home.path().join(DAMAGED)).expect("kept"), damaged);
        }
    }
}
