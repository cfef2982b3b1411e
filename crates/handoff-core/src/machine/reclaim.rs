//! Re-claim: a new incarnation of a live transfer takes the session, once the old one cannot run any more.

use crate::budget;
use crate::command::Reclaim;
use crate::fact::Fact;
use crate::grid::CommandKind;
use crate::lease;
use crate::policy::Rule;
use crate::refusal::Refusal;
use crate::reply::Reply;
use crate::state::Holder;

use super::{Case, Decision};

pub(super) fn decide(case: &Case<'_>, reclaim: &Reclaim) -> Result<Decision, Refusal> {
    let (session, found) = case.legal(CommandKind::Reclaim, reclaim.transfer)?;
    super::check_assignment(found, reclaim.node, reclaim.generation)?;
    let holds = matches!(session.holder, Holder::Incarnation { incarnation, .. } if incarnation == reclaim.incarnation);
    if let (true, Some(account)) = (holds, found.epochs.get(&session.epoch)) {
        return Ok(Decision::new([], Reply::Claimed { epoch: session.epoch, limit: account.limit }));
    }
    if found.resting {
        return Err(Refusal::SessionBusy { session: session.id, why: "it rests: wake it first" });
    }
    if case.final_is_pending(session) {
        return Err(Refusal::SessionBusy {
            session: session.id,
            why: "it stopped for a transfer that is pending",
        });
    }
    if !lease::is_over(session, case.now) && case.keeps(Rule::ReclaimWaitsForLease) {
        return Err(Refusal::FormerHolderMayRun { until: session.lease_until.unwrap_or(case.now) });
    }
    let accepted = session.last_snapshot.ok_or(Refusal::NotFinal { transfer: found.id })?;
    if accepted.digest != reclaim.digest {
        return Err(Refusal::StaleSnapshot { transfer: found.id, present: accepted.digest });
    }
    let epoch = session.epoch.next();
    let limit = budget::grant(case.policy, found, Default::default(), Default::default());
    let fact = Fact::Reclaimed {
        transfer: found.id,
        epoch,
        incarnation: reclaim.incarnation,
        node: reclaim.node,
        generation: reclaim.generation,
        lease_until: case.now.plus_ms(case.policy.lease_ms),
        limit,
    };
    Ok(Decision::new([fact], Reply::Claimed { epoch, limit }))
}
