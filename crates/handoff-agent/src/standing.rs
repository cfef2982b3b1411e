//! Whether a source may run: its `standing.json`, read before anything else and written before anything relies
//! on it.

use std::path::Path;

use handoff_protocol::session_dir::{STANDING, Standing};

use crate::durable;
use crate::error::AgentError;

/// The standing in a session directory; `None` where none was ever written, as at a destination.
///
/// # Errors
/// The file cannot be read, or is no standing.
pub fn read(session_dir: &Path) -> Result<Option<Standing>, AgentError> {
    let path = session_dir.join(STANDING);
    let Some(bytes) = durable::read(&path).map_err(|error| AgentError::file(&path, error))? else {
        return Ok(None);
    };
    let standing = serde_json::from_slice(&bytes)
        .map_err(|error| AgentError::corrupt(STANDING, format!("not a standing: {error}")))?;
    Ok(Some(standing))
}

/// Replaces the standing, durably. While an agent runs it is the one that writes; where it has died, whoever moves
/// the session or takes it back.
///
/// # Errors
/// The file cannot be written.
pub fn write(session_dir: &Path, standing: &Standing) -> Result<(), AgentError> {
    let mut bytes = serde_json::to_vec(standing).expect("plain data");
    bytes.push(b'\n');
    durable::replace(session_dir, STANDING, &bytes)
        .map_err(|error| AgentError::file(&session_dir.join(STANDING), error))
}

/// The epoch in which a source may run.
pub(crate) fn may_run(session_dir: &Path) -> Result<u64, AgentError> {
    match read(session_dir)? {
        Some(Standing::Holder { epoch, .. }) => Ok(epoch),
        Some(Standing::Frozen { session_id, transfer_id, epoch, .. }) => {
            Err(AgentError::Frozen { session_id, transfer_id, epoch })
        }
        Some(Standing::Retired { session_id, transfer_id }) => {
            Err(AgentError::Retired { session_id, transfer_id })
        }
        None => Err(AgentError::corrupt(STANDING, "missing: this directory is not a source's".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use handoff_protocol::{SessionId, TransferId};

    use super::*;

    #[test]
    fn only_a_holder_may_run() {
        let dir = tempfile::tempdir().expect("a directory");
        let (session_id, transfer_id) = (SessionId::from_u128(1), TransferId::from_u128(2));
        assert!(matches!(may_run(dir.path()), Err(AgentError::Corrupt { .. })));
        write(dir.path(), &Standing::Holder { session_id, epoch: 1 }).expect("written");
        assert_eq!(may_run(dir.path()).expect("a holder"), 1);
        let frozen = Standing::Frozen { session_id, transfer_id, epoch: 1 };
        write(dir.path(), &frozen).expect("written");
        assert!(matches!(may_run(dir.path()), Err(AgentError::Frozen { epoch: 1, .. })));
        write(dir.path(), &Standing::Retired { session_id, transfer_id }).expect("written");
        assert!(matches!(may_run(dir.path()), Err(AgentError::Retired { .. })));
        std::fs::write(dir.path().join(STANDING), "{").expect("written");
        assert!(matches!(may_run(dir.path()), Err(AgentError::Corrupt { .. })));
    }
}
