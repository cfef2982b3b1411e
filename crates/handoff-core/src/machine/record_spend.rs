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
    let reported = after.epochs.values().map(|account| account.totals.spendable()).sum();
    let recorded = after.budget.map_or(NanoUsd::ZERO, |budget| budget.recorded);
    // The wind-down is in the reserve, whether it has been used or not.
    let used = recorded.plus(reported).plus(after.reserve()).plus(budget::tick_cost(case.policy, after));
    if found.status == Status::Active && used > allocated {
        facts.push(Fact::BecameInsolvent { transfer, grace_until: case.now.plus_ms(case.policy.grace_ms) });
    }
    Ok(Decision::done(facts))
}

#[cfg(test)]
mod tests {
    use handoff_protocol::Status;

    use crate::Command;
    use crate::machine::world::{BUDGET, ONE, RESERVE, TICK, World, nano};

    fn spend(cost: i64) -> Command {
        Command::RecordSpend { transfer: ONE, cost: nano(cost), detail: "outside".to_owned() }
    }

    /// H-84
    #[test]
    fn increments_add_up_and_lower_what_may_be_granted() {
        let mut world = World::active();
        let free = world.of(ONE).free(&world.policy);
        world.give(spend(1000));
        world.give(spend(2000));
        assert_eq!(world.of(ONE).budget.map(|budget| budget.recorded), Some(nano(3000)));
        assert_eq!(world.of(ONE).spent(), nano(3000));
        assert_eq!(world.of(ONE).free(&world.policy), free.minus(nano(3000)));
    }

    #[test]
    fn where_no_tick_is_left_the_transfer_is_insolvent_once() {
        let room = BUDGET.nano() - RESERVE.nano() - TICK.nano();
        let mut world = World::active();
        world.give(spend(room));
        assert_eq!(world.status(ONE), Status::Active);
        world.give(spend(1));
        assert_eq!(
            (world.status(ONE), world.of(ONE).grace_until),
            (Status::Insolvent, Some(world.now.plus_ms(60_000)))
        );
        world.give(spend(1_000_000_000));
        let insolvent = world.events(ONE).iter().filter(|event| **event == "insolvent").count();
        assert_eq!(insolvent, 1);
    }

    #[test]
    fn the_wind_down_is_counted_once() {
        let mut world = World::active();
        world.give(world.report(|usage| usage.totals.wind_down_usd = RESERVE));
        world.give(spend(BUDGET.nano() - RESERVE.nano() - TICK.nano()));
        assert_eq!(world.status(ONE), Status::Active);
    }
}
