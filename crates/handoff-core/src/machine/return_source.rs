//! Return: a frozen source takes its session back. It is a claim: it raises the epoch, and the same nonce gets
//! the same answer. Once a transfer was active, even for a moment, the way back is a new transfer.

use handoff_protocol::{IncarnationId, SessionId};

use crate::fact::Fact;
use crate::policy::Rule;
use crate::refusal::Refusal;
use crate::reply::Reply;
use crate::state::{Epoch, Holder};

use super::{Case, Decision};

pub(super) fn decide(
    case: &Case<'_>,
    session: SessionId,
    principal: &str,
    nonce: IncarnationId,
    frozen_epoch: Epoch,
) -> Result<Decision, Refusal> {
    let session = case.session(session)?;
    if let Some(last) = session.last_return.filter(|last| last.nonce == nonce && last.epoch == session.epoch)
    {
        return Ok(Decision::new([], Reply::Returned { epoch: last.epoch }));
    }
    let busy = |why| Refusal::SessionBusy { session: session.id, why };
    if session.pending.is_some() {
        return Err(busy("it has a pending transfer: terminate it first"));
    }
    if session.live.is_some() {
        return Err(busy("it runs elsewhere: stage a new transfer back"));
    }
    if case.keeps(Rule::ReturnOnlyByHolder) {
        match &session.holder {
            Holder::Source { principal: holder } if holder == principal => {}
            Holder::Source { .. } => return Err(Refusal::WrongSource { session: session.id }),
            Holder::Incarnation { .. } | Holder::None => {
                return Err(busy("the source has not held it since: resume it from its last snapshot"));
            }
        }
        super::check_epoch(case, session, frozen_epoch)?;
    }
    let epoch = session.epoch.next();
    Ok(Decision::new(
        [Fact::Returned { nonce, epoch, principal: principal.to_owned() }],
        Reply::Returned { epoch },
    ))
}
