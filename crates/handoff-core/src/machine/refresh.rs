//! Refresh: a pending transfer gets another snapshot, or its live holder is asked for the final one.
//!
//! A draft refresh after a final takes the mark away again: that is how a source goes on without returning.

use crate::command::{Refresh, RefreshBy};
use crate::fact::Fact;
use crate::grid::CommandKind;
use crate::policy::Rule;
use crate::refusal::Refusal;
use crate::reply::Reply;
use crate::state::{Holder, Session};
use crate::transfer::{FinalMark, Ground, Transfer};

use super::stage::is_holder;
use super::{Case, Decision, Holding};

pub(super) fn decide(case: &Case<'_>, refresh: &Refresh) -> Result<Decision, Refusal> {
    let (session, transfer) = case.legal(CommandKind::Refresh, refresh.transfer)?;
    let named = refresh
        .expected_epoch
        .ok_or(Refusal::EpochMissing { session: session.id, present: session.epoch })?;
    super::check_epoch(case, session, named)?;
    match refresh.snapshot {
        Some(snapshot) => {
            check_giver(case, session, refresh, named)?;
            let mark =
                refresh.is_final.then_some(FinalMark { epoch: session.epoch, ground: Ground::Quiesced });
            let fact = Fact::Refreshed { transfer: transfer.id, snapshot, mark, by_holder: true };
            Ok(Decision::new([fact], Reply::Staged { transfer: transfer.id }))
        }
        None => request_final(session, transfer),
    }
}

/// Only the holder may give a snapshot: the source itself, or the live incarnation through its node.
fn check_giver(
    case: &Case<'_>,
    session: &Session,
    refresh: &Refresh,
    epoch: crate::state::Epoch,
) -> Result<(), Refusal> {
    if !case.keeps(Rule::FinalOnlyFromHolder) {
        return Ok(());
    }
    let why = "only its holder can give a snapshot";
    match &refresh.by {
        RefreshBy::Principal(principal) if is_holder(session, principal) => Ok(()),
        RefreshBy::Principal(_) => Err(Refusal::SessionBusy { session: session.id, why }),
        RefreshBy::Incarnation(node, incarnation) => {
            let live = session.live.and_then(|live| case.state.transfers.get(&live));
            let live = live.ok_or(Refusal::SessionBusy { session: session.id, why })?;
            let holding = Holding { node: *node, epoch, incarnation: Some(*incarnation) };
            super::check_holder(case, session, live, holding)
        }
    }
}

/// The live holder's next renewal will answer `quiesce`; its node then refreshes with the final.
fn request_final(session: &Session, transfer: &Transfer) -> Result<Decision, Refusal> {
    let reply = Reply::Staged { transfer: transfer.id };
    match session.holder {
        Holder::Incarnation { .. } if session.live.is_some() => {
            let facts = if transfer.final_requested {
                Vec::new()
            } else {
                vec![Fact::FinalRequested { transfer: transfer.id }]
            };
            Ok(Decision::new(facts, reply))
        }
        Holder::Incarnation { .. } | Holder::Source { .. } | Holder::None => {
            let why = "no live destination holds it: a source gives its own final snapshot";
            Err(Refusal::SessionBusy { session: session.id, why })
        }
    }
}
