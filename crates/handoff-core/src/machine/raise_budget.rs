//! Raise budget: names the new absolute amount. Within grace it brings an insolvent transfer back, if it leaves
//! a tick.

use handoff_protocol::{NanoUsd, Status, TransferId};

use crate::budget;
use crate::fact::Fact;
use crate::grid::CommandKind;
use crate::least::Least;
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
            return Err(Refusal::BudgetTooSmall { budget: allocated, least, of: Least::ToGoOn });
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

#[cfg(test)]
mod tests {
    use handoff_protocol::{ErrorCode, Status};

    use crate::grid::CommandKind;
    use crate::machine::world::{BUDGET, ONE, RESERVE, TICK, World, nano};
    use crate::{Command, Least, Refusal};

    fn raise(allocated: i64) -> Command {
        Command::RaiseBudget { transfer: ONE, allocated: nano(allocated) }
    }

    #[test]
    fn a_raise_names_the_amount_in_all_and_never_lowers_it() {
        let mut world = World::provisioned();
        assert_eq!(world.refuse(&raise(BUDGET.nano() - 1)), Refusal::NotARaise { present: BUDGET });
        assert_eq!(world.make(raise(BUDGET.nano())).0, [], "it is that already");
        world.give(raise(BUDGET.nano() + 1));
        assert_eq!(world.of(ONE).budget.map(|budget| budget.allocated), Some(nano(BUDGET.nano() + 1)));
        assert_eq!(world.events(ONE).len(), 2, "a raise without a change of status is no event");
    }

    /// H-87
    #[test]
    fn a_raise_within_insolvency_leaves_a_tick_or_is_refused() {
        let mut world = World::insolvent();
        let least = BUDGET.plus(TICK);
        let budget = nano(least.nano() - 1);
        assert_eq!(
            world.refuse(&raise(budget.nano())),
            Refusal::BudgetTooSmall { budget, least, of: Least::ToGoOn }
        );
        world.give(raise(least.nano()));
        assert_eq!((world.status(ONE), world.of(ONE).grace_until), (Status::Active, None));
        assert_eq!(world.events(ONE).last(), Some(&"activated"));
        let (_, reply) = world.make(world.report(|usage| usage.exhausted = true));
        let limit = least.minus(RESERVE);
        let command = handoff_protocol::node::UsageCommand::Continue;
        assert_eq!(reply, crate::Reply::Usage { accepted_seq: 2, limit, command });
    }

    #[test]
    fn money_that_came_back_counts_for_a_raise() {
        let mut world = World::active().later(60_000);
        world.give(world.reclaim(crate::machine::world::incarnation(2)));
        let rest = BUDGET.minus(RESERVE).minus(world.of(ONE).epochs[&crate::Epoch(2)].limit);
        world.give(world.report(|usage| {
            usage.totals.model_usd = rest;
            usage.exhausted = true;
        }));
        world = world.later(5 * 60_000);
        world.give(world.report(|usage| usage.exhausted = true));
        assert_eq!(world.status(ONE), Status::Insolvent);
        world.give(world.report_of(ONE, crate::Epoch(2), |usage| usage.closing = true));
        world.give(raise(BUDGET.nano()));
        assert_eq!(world.status(ONE), Status::Active);
        assert_eq!(world.code(&world.command(CommandKind::Claim, ONE)), ErrorCode::WrongStatus);
    }
}
