//! Wake: a resting session is to run again; its node then re-claims.

use handoff_protocol::{SessionId, Status};

use crate::fact::Fact;
use crate::grid::CommandKind;
use crate::refusal::Refusal;

use super::{Case, Decision};

pub(super) fn decide(case: &Case<'_>, session: SessionId) -> Result<Decision, Refusal> {
    let session = case.session(session)?;
    let busy = |why| Refusal::SessionBusy { session: session.id, why };
    let live = session.live.ok_or(busy("it has no live transfer"))?;
    let (_, found) = case.transfer(live)?;
    if found.status != Status::Active {
        return Err(Refusal::WrongStatus { transfer: live, found: found.status, command: CommandKind::Wake });
    }
    if !found.resting {
        return Ok(Decision::done([]));
    }
    if case.final_is_pending(session) {
        return Err(busy("it stopped for a transfer that is pending"));
    }
    Ok(Decision::done([Fact::Woken { transfer: live }]))
}
