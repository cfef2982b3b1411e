//! Write off: an orchestrator closes an epoch whose node will never report again, at its full limit. Money that
//! may have been spent stays spent.

use handoff_protocol::TransferId;

use crate::fact::Fact;
use crate::grid::CommandKind;
use crate::lease;
use crate::refusal::Refusal;
use crate::state::Epoch;

use super::{Case, Decision};

pub(super) fn decide(case: &Case<'_>, transfer: TransferId, epoch: Epoch) -> Result<Decision, Refusal> {
    let (session, found) = case.legal(CommandKind::WriteOff, transfer)?;
    let account = found.epochs.get(&epoch).ok_or(Refusal::NoEpoch { transfer, epoch })?;
    if account.closed.is_some() {
        return Ok(Decision::done([]));
    }
    let running = session.epoch == epoch && !lease::is_over(session, case.now);
    if running {
        return Err(Refusal::SessionBusy { session: session.id, why: "that epoch may still be running" });
    }
    Ok(Decision::done(super::with_ledger(case, vec![Fact::WrittenOff { transfer, epoch }], transfer)))
}
