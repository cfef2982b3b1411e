//! Checkpoint: a live destination stored a snapshot; the last one is what a re-claim or a resume starts from.
//!
//! After `terminated` the final one is still taken while its epoch is the session's and unclosed, unless a
//! successor is pending, which may already carry an earlier one as its final.

use handoff_protocol::{Digest, Status, TransferId};

use crate::fact::Fact;
use crate::grid::CommandKind;
use crate::refusal::Refusal;

use super::{Case, Decision, Holding};

pub(super) fn decide(
    case: &Case<'_>,
    transfer: TransferId,
    holding: Holding,
    digest: Digest,
) -> Result<Decision, Refusal> {
    let (session, found) = case.legal(CommandKind::Checkpoint, transfer)?;
    super::check_holder(case, session, found, holding)?;
    let busy = |why| Refusal::SessionBusy { session: session.id, why };
    if case.final_is_pending(session) {
        return Err(busy("it stopped for a transfer that is pending"));
    }
    if found.status == Status::Terminated {
        let open = found.epochs.get(&holding.epoch).is_some_and(|account| account.closed.is_none());
        if !open {
            return Err(Refusal::LeaseOver);
        }
        if session.pending.is_some() || session.live.is_some() {
            return Err(busy("it has a successor"));
        }
    }
    let known =
        session.last_snapshot.is_some_and(|last| last.digest == digest && last.epoch == session.epoch);
    let facts =
        if known { Vec::new() } else { vec![Fact::Checkpointed { transfer, epoch: session.epoch, digest }] };
    Ok(Decision::done(facts))
}
