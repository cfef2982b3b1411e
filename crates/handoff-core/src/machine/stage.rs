//! Stage: a snapshot starts a transfer. The source goes on working unless it says that it stopped.

use crate::command::Stage;
use crate::fact::Fact;
use crate::policy::Rule;
use crate::refusal::Refusal;
use crate::reply::Reply;
use crate::state::{Accepted, Epoch, Holder, Session, Standing};
use crate::transfer::{FinalMark, Ground};

use super::{Case, Decision};

pub(super) fn decide(case: &Case<'_>, stage: &Stage) -> Result<Decision, Refusal> {
    match &case.state.session {
        Some(session) if session.id == stage.session => known(case, stage, session),
        Some(_) | None => new(case, stage),
    }
}

/// A session that nobody has staged before: whoever stages it holds it.
fn new(case: &Case<'_>, stage: &Stage) -> Result<Decision, Refusal> {
    let no_session = Refusal::NoSession { session: stage.session };
    if stage.expected_epoch.is_some_and(|epoch| epoch != Epoch::FIRST) {
        return Err(no_session);
    }
    let snapshot = stage.snapshot.ok_or(no_session)?;
    let mark = stage.is_final.then_some(FinalMark { epoch: Epoch::FIRST, ground: Ground::Quiesced });
    let opened = Fact::SessionOpened {
        session: stage.session,
        project: stage.project,
        principal: stage.principal.clone(),
        labels: stage.labels.clone(),
    };
    Ok(staged(case, stage, vec![opened], snapshot, mark, true))
}

fn known(case: &Case<'_>, stage: &Stage, session: &Session) -> Result<Decision, Refusal> {
    let busy = |why| Refusal::SessionBusy { session: session.id, why };
    let named =
        stage.expected_epoch.ok_or(Refusal::EpochMissing { session: session.id, present: session.epoch })?;
    super::check_epoch(case, session, named)?;
    if session.pending.is_some() {
        return Err(busy("it has a pending transfer"));
    }
    match stage.snapshot {
        Some(snapshot) => {
            let by_holder = is_holder(session, &stage.principal);
            if !by_holder && case.keeps(Rule::FinalOnlyFromHolder) {
                return Err(busy(
                    "only its holder can give a snapshot; leave it out to use the last accepted one",
                ));
            }
            let ground = Ground::Quiesced;
            let mark = stage.is_final.then_some(FinalMark { epoch: session.epoch, ground });
            Ok(staged(case, stage, Vec::new(), snapshot, mark, true))
        }
        None => {
            let accepted = session.last_snapshot.ok_or(busy("it has no snapshot yet"))?;
            let mark = resume_mark(case, session, accepted)?;
            Ok(staged(case, stage, Vec::new(), accepted.digest, mark, false))
        }
    }
}

/// What the last accepted snapshot is worth for a new transfer: a draft while its holder is live, final when the
/// holder's transfer is over or its source was abandoned, and the source's own final while a source holds it.
fn resume_mark(case: &Case<'_>, session: &Session, accepted: Accepted) -> Result<Option<FinalMark>, Refusal> {
    let mark = Some(FinalMark { epoch: session.epoch, ground: Ground::LastAccepted });
    match session.holder {
        Holder::Incarnation { .. } if session.live.is_some() => Ok(None),
        Holder::Incarnation { .. } | Holder::None => Ok(mark),
        Holder::Source { .. } => {
            let own_final = accepted.standing == Standing::Final && accepted.epoch == session.epoch;
            if !own_final && case.keeps(Rule::ResumeNeedsFinal) {
                let why = "its source may still be working: have it stop, or abandon it";
                return Err(Refusal::SessionBusy { session: session.id, why });
            }
            Ok(mark)
        }
    }
}

/// Whether this principal is the source that holds the session.
pub(super) fn is_holder(session: &Session, principal: &str) -> bool {
    matches!(&session.holder, Holder::Source { principal: holder } if holder == principal)
}

fn staged(
    case: &Case<'_>,
    stage: &Stage,
    mut facts: Vec<Fact>,
    snapshot: handoff_protocol::Digest,
    mark: Option<FinalMark>,
    by_holder: bool,
) -> Decision {
    facts.push(Fact::Staged {
        transfer: stage.transfer,
        snapshot,
        mark,
        by_holder,
        at: case.now,
        expires_at: case.now.plus_ms(case.policy.time_to_live_ms),
    });
    Decision::new(facts, Reply::Staged { transfer: stage.transfer })
}
