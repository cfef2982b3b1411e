//! Raise budget: names the new absolute amount. Within grace it brings an insolvent transfer back, if it leaves
//! a tick.

use handoff_protocol::{NanoUsd, Status, TransferId};

use crate::budget;
use crate::fact::Fact;
use crate::grid::CommandKind;
use crate::refusal::Refusal;
use crate::transfer::Transfer;

use super::{Case, Decision};

pub(super) fn decide(case: &Case<'_>, transfer: TransferId, allocated: NanoUsd) -> Result<Decision, Refusal> {
    let (session, found) = case.legal(CommandKind::RaiseBudget, transfer)?;
    let present = found.budget.map_or(NanoUsd::ZERO, |budget| budget.allocated);
    if allocated < present {
        return Err(Refusal::NotARaise { present });
    }
    let active_again = found.status == Status::Insolvent;
    if active_again {
        let least = least_for_a_tick(case, found, session.epoch);
        if allocated < least {
            return Err(Refusal::BudgetTooSmall { budget: allocated, least });
        }
    }
    if allocated == present && !active_again {
        return Ok(Decision::done([]));
    }
    Ok(Decision::done([Fact::BudgetRaised { transfer, allocated, active_again }]))
}

/// What covers all that is charged, and one more tick of the running epoch.
fn least_for_a_tick(case: &Case<'_>, found: &Transfer, epoch: crate::state::Epoch) -> NanoUsd {
    let headroom = found.epochs.get(&epoch).map_or(NanoUsd::ZERO, |account| account.leased());
    let tick = budget::tick_cost(case.policy, found);
    found.charged(case.policy).plus(tick.minus(headroom))
}
