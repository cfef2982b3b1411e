//! Abandon source: an orchestrator gives up a source that it cannot stop. What that source still does is no
//! longer the session; its last snapshot, draft or not, is what a resume starts from.

use handoff_protocol::SessionId;

use crate::fact::Fact;
use crate::refusal::Refusal;
use crate::state::Holder;

use super::{Case, Decision};

pub(super) fn decide(case: &Case<'_>, session: SessionId) -> Result<Decision, Refusal> {
    let session = case.session(session)?;
    let busy = |why| Refusal::SessionBusy { session: session.id, why };
    if session.pending.is_some() {
        return Err(busy("it has a pending transfer: terminate it first"));
    }
    if session.live.is_some() {
        return Err(busy("it runs elsewhere: there is no source to abandon"));
    }
    match session.holder {
        Holder::Source { .. } => Ok(Decision::done([Fact::SourceAbandoned { epoch: session.epoch.next() }])),
        Holder::Incarnation { .. } | Holder::None => Err(busy("no source holds it")),
    }
}
