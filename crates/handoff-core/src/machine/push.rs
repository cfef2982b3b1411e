//! Push: records that the destination is to verify and restore the snapshot. Its receipt completes it.

use handoff_protocol::{Digest, TransferId};

use crate::fact::Fact;
use crate::grid::CommandKind;
use crate::refusal::Refusal;
use crate::transfer::Push;

use super::{Case, Decision};

pub(super) fn decide(
    case: &Case<'_>,
    transfer: TransferId,
    checksum: Option<Digest>,
) -> Result<Decision, Refusal> {
    let (session, found) = case.legal(CommandKind::Push, transfer)?;
    if let Some(named) = checksum {
        super::check_digest(found, named)?;
    }
    super::check_final(session, found)?;
    let digest = found.snapshot;
    if found.push == Some(Push::Requested { digest }) {
        return Ok(Decision::done([]));
    }
    Ok(Decision::done([Fact::PushRequested { transfer, digest }]))
}
