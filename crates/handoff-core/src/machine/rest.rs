//! Rest: still active, without a sandbox, a lease or a charge, until somebody wakes it.

use handoff_protocol::TransferId;

use crate::fact::Fact;
use crate::grid::CommandKind;
use crate::refusal::Refusal;
use crate::state::Standing;

use super::{Case, Decision, Holding};

pub(super) fn decide(case: &Case<'_>, transfer: TransferId, holding: Holding) -> Result<Decision, Refusal> {
    let (session, found) = case.legal(CommandKind::Rest, transfer)?;
    super::check_holder(case, session, found, holding)?;
    if found.resting {
        return Ok(Decision::done([]));
    }
    if session.pending.is_some() {
        return Err(Refusal::SessionBusy { session: session.id, why: "it has a pending transfer" });
    }
    let epoch = holding.epoch;
    let closed = found.epochs.get(&epoch).is_some_and(|account| account.closed.is_some());
    let checkpoint = session
        .last_snapshot
        .is_some_and(|last| last.standing == Standing::Checkpoint && last.epoch == epoch);
    if !closed || !checkpoint {
        return Err(Refusal::EpochOpen { transfer, epoch });
    }
    Ok(Decision::done([Fact::Rested { transfer, at: case.now }]))
}
