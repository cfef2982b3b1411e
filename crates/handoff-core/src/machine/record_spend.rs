//! Record spend: an increment that was spent outside the gateway, as a fact in a row of its own. It takes from
//! what may be granted; where it leaves no tick, the transfer is insolvent.

use handoff_protocol::{NanoUsd, Status, TransferId};

use crate::budget;
use crate::fact::Fact;
use crate::grid::CommandKind;
use crate::refusal::Refusal;

use super::{Case, Decision};

pub(super) fn decide(
    case: &Case<'_>,
    transfer: TransferId,
    cost: NanoUsd,
    detail: &str,
) -> Result<Decision, Refusal> {
    let (_, found) = case.legal(CommandKind::RecordSpend, transfer)?;
    let recorded = Fact::SpendRecorded { transfer, cost, detail: detail.to_owned() };
    let mut after = case.state.clone();
    after.apply(&recorded);
    let mut facts = vec![recorded];
    let after = &after.transfers[&transfer];
    let allocated = after.budget.map_or(NanoUsd::ZERO, |budget| budget.allocated);
    let used = after.spent().plus(after.reserve()).plus(budget::tick_cost(case.policy, after));
    if found.status == Status::Active && used > allocated {
        facts.push(Fact::BecameInsolvent { transfer, grace_until: case.now.plus_ms(case.policy.grace_ms) });
    }
    Ok(Decision::done(facts))
}
