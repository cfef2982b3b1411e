//! Receipt: the node holds and verified the snapshot. It counts only for the present assignment, the digest
//! that was pushed, and a snapshot that still carries the final mark.

use handoff_protocol::{Digest, NodeId, Status, TransferId};

use crate::fact::Fact;
use crate::grid::CommandKind;
use crate::refusal::Refusal;
use crate::state::Generation;
use crate::transfer::Push;

use super::{Case, Decision};

pub(super) fn decide(
    case: &Case<'_>,
    transfer: TransferId,
    (node, generation): (NodeId, Generation),
    digest: Digest,
    missing: &[String],
) -> Result<Decision, Refusal> {
    let (session, found) = case.legal(CommandKind::Receipt, transfer)?;
    super::check_assignment(found, node, generation)?;
    super::check_digest(found, digest)?;
    super::check_final(session, found)?;
    if found.receipt {
        return Ok(Decision::done([]));
    }
    if found.status == Status::Provisioned && found.push != Some(Push::Requested { digest }) {
        return Err(Refusal::StaleSnapshot { transfer, present: found.snapshot });
    }
    if !missing.is_empty() {
        return Ok(Decision::done([Fact::PushFailed { transfer, missing: missing.to_vec() }]));
    }
    let again = found.status == Status::Pushed;
    Ok(Decision::done([Fact::Pushed { transfer, generation, digest, again }]))
}
