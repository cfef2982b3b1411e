//! Terminate and expire: a transfer is over. A session never is.

use handoff_protocol::{Status, TransferId};

use crate::fact::Fact;
use crate::grid::CommandKind;
use crate::refusal::Refusal;
use crate::state::Session;
use crate::transfer::{EndReason, FinalMark, Ground, Transfer};

use super::{Case, Decision};

pub(super) fn terminate(
    case: &Case<'_>,
    transfer: TransferId,
    reason: &EndReason,
) -> Result<Decision, Refusal> {
    let (session, found) = case.legal(CommandKind::Terminate, transfer)?;
    if *reason == EndReason::GracePeriodExpired {
        check_grace(case, found)?;
    }
    let mut facts = vec![Fact::Terminated { transfer, reason: reason.clone(), at: case.now }];
    facts.extend(give_back(case, found));
    facts.extend(refresh_successor(case, session, found));
    Ok(Decision::done(super::with_ledger(case, facts, transfer)))
}

pub(super) fn expire(case: &Case<'_>, transfer: TransferId) -> Result<Decision, Refusal> {
    let (_, found) = case.legal(CommandKind::Expire, transfer)?;
    if let Some(open) = found.open_authorization() {
        return Err(Refusal::AlreadyAuthorized { transfer, deadline: open.deadline });
    }
    if case.now < found.expires_at {
        return Err(Refusal::TooEarly { transfer, at: found.expires_at });
    }
    let mut facts = vec![Fact::Expired { transfer, at: case.now }];
    facts.extend(give_back(case, found));
    Ok(Decision::done(super::with_ledger(case, facts, transfer)))
}

/// The reaper's reason is true only in insolvency, and only after grace: a raise in the meantime wins.
fn check_grace(case: &Case<'_>, found: &Transfer) -> Result<(), Refusal> {
    let transfer = found.id;
    if found.status != Status::Insolvent {
        return Err(Refusal::WrongStatus { transfer, found: found.status, command: CommandKind::Terminate });
    }
    match found.grace_until {
        Some(at) if case.now < at => Err(Refusal::TooEarly { transfer, at }),
        Some(_) | None => Ok(()),
    }
}

/// What was carved out of the live transfer goes back to it, since this one was never claimed.
fn give_back(case: &Case<'_>, found: &Transfer) -> Option<Fact> {
    let carved = found.budget?.carved.filter(|_| found.status.is_pending())?;
    let allocated = case.state.transfers.get(&carved.from)?.budget?.allocated;
    Some(Fact::BudgetRestored { transfer: carved.from, allocated: allocated.plus(carved.amount) })
}

/// A live transfer ends while its successor is a draft: the successor goes on from the last accepted snapshot.
fn refresh_successor(case: &Case<'_>, session: &Session, ended: &Transfer) -> Option<Fact> {
    if session.live != Some(ended.id) {
        return None;
    }
    let pending = case.pending(session).filter(|pending| !pending.is_final(session.epoch))?;
    let accepted = session.last_snapshot?;
    let mark = Some(FinalMark { epoch: session.epoch, ground: Ground::LastAccepted });
    Some(Fact::Refreshed { transfer: pending.id, snapshot: accepted.digest, mark, by_holder: false })
}
