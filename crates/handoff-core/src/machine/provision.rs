//! Provision: assigns a node with room for the tier and opens the budget. Nothing else happens here: the node
//! reconciles.

use handoff_protocol::request::Operation;
use handoff_protocol::{NanoUsd, Tier};

use crate::budget;
use crate::command::Provision;
use crate::fact::Fact;
use crate::grid::CommandKind;
use crate::least::Least;
use crate::placement;
use crate::refusal::Refusal;
use crate::reply::Reply;
use crate::state::{Generation, Session};
use crate::transfer::{Budget, Carved};

use super::{Case, Decision};

pub(super) fn decide(case: &Case<'_>, provision: &Provision) -> Result<Decision, Refusal> {
    let (session, transfer) = case.legal(CommandKind::Provision, provision.transfer)?;
    super::check_token(case, transfer, &provision.token, Operation::ProvisionRuntime)?;
    let unknown = || Refusal::TierUnknown { tier: provision.tier.clone() };
    let tier = case.policy.tier(&provision.tier).ok_or_else(unknown)?;
    provision.token.judge_size(&provision.tier, provision.budget)?;
    let least = budget::least(case.policy, tier);
    if provision.budget < least {
        return Err(Refusal::BudgetTooSmall { budget: provision.budget, least, of: Least::ToBegin });
    }
    let mut facts = Vec::new();
    let carved =
        if provision.carve { Some(carve(case, session, provision.budget, &mut facts)?) } else { None };
    let avoid = former_node(session);
    let node = placement::choose(&case.state.rooms, tier, provision.node, avoid, case.now)
        .or_else(|_| placement::choose(&case.state.rooms, tier, provision.node, None, case.now))?;
    facts.insert(0, spent(provision));
    facts.push(provisioned(case, provision, tier, carved, node));
    Ok(Decision::new(facts, Reply::Provisioned { node, generation: Generation::FIRST }))
}

/// Takes the budget out of the live transfer's, never below what that one has spent, leased and reserved.
fn carve(
    case: &Case<'_>,
    session: &Session,
    amount: NanoUsd,
    facts: &mut Vec<Fact>,
) -> Result<Carved, Refusal> {
    let nothing = Refusal::NothingToCarve { session: session.id };
    let live = session.live.and_then(|live| case.state.transfers.get(&live)).ok_or(nothing.clone())?;
    let allocated = live.budget.ok_or(nothing)?.allocated;
    let free = live.free(case.policy);
    if amount > free {
        return Err(Refusal::BudgetTooSmall { budget: free, least: amount, of: Least::ToCarve });
    }
    facts.push(Fact::BudgetCarved { transfer: live.id, allocated: allocated.minus(amount) });
    Ok(Carved { from: live.id, amount })
}

fn former_node(session: &Session) -> Option<handoff_protocol::NodeId> {
    match session.holder {
        crate::state::Holder::Incarnation { node, .. } => Some(node),
        crate::state::Holder::Source { .. } | crate::state::Holder::None => None,
    }
}

fn spent(provision: &Provision) -> Fact {
    Fact::TokenSpent {
        transfer: provision.transfer,
        token: provision.token.id,
        operation: Operation::ProvisionRuntime,
        expires_at: provision.token.expires_at,
    }
}

fn provisioned(
    case: &Case<'_>,
    provision: &Provision,
    tier: &Tier,
    carved: Option<Carved>,
    node: handoff_protocol::NodeId,
) -> Fact {
    Fact::Provisioned {
        transfer: provision.transfer,
        tier: tier.clone(),
        budget: Budget {
            allocated: provision.budget,
            reserve: case.policy.wind_down(tier),
            recorded: NanoUsd::ZERO,
            carved,
        },
        node,
    }
}

#[cfg(test)]
mod tests {
    use handoff_protocol::request::Operation;
    use handoff_protocol::{ErrorCode, Status};

    use crate::command::Provision;
    use crate::grid::CommandKind;
    use crate::machine::world::{BUDGET, NODE, ONE, OTHER_NODE, RESERVE, TICK, TWO, World, nano};
    use crate::state::Generation;
    use crate::transfer::Carved;
    use crate::{Command, Least, Refusal, Reply};

    fn provision(world: &World, transfer: handoff_protocol::TransferId) -> Provision {
        match world.command(CommandKind::Provision, transfer) {
            Command::Provision(provision) => provision,
            other => unreachable!("{other:?}"),
        }
    }

    /// H-48
    #[test]
    fn given_staged_when_provisioned_then_it_has_a_node_a_size_and_money() {
        let mut world = World::staged();
        let reply = world.give(world.command(CommandKind::Provision, ONE));
        assert_eq!(reply, Reply::Provisioned { node: NODE, generation: Generation(1) });
        let found = world.of(ONE);
        let budget = found.budget.expect("it has a budget");
        assert_eq!((budget.allocated, budget.reserve, budget.carved), (BUDGET, RESERVE, None));
        assert_eq!((found.status, found.spent_tokens.len()), (Status::Provisioned, 1));
    }

    #[test]
    fn what_is_asked_for_must_be_on_offer() {
        let world = World::staged();
        let with = |change: fn(&mut Provision)| {
            let mut provision = provision(&world, ONE);
            change(&mut provision);
            world.code(&Command::Provision(provision))
        };
        assert_eq!(with(|provision| provision.tier = "huge".into()), ErrorCode::TierUnknown);
        let unknown = |provision: &mut Provision| provision.node = Some(super::super::world::node(9));
        assert_eq!(with(unknown), ErrorCode::NoNode);
        assert_eq!(with(|provision| provision.token.max_budget = Some(nano(1))), ErrorCode::TokenScope);
        assert_eq!(
            with(|provision| provision.token.tier = Some("sandbox-large".into())),
            ErrorCode::TokenScope
        );
        assert_eq!(with(|provision| provision.token.operation = Operation::Activate), ErrorCode::TokenScope);
        assert_eq!(with(|provision| provision.token.transfer = TWO), ErrorCode::TokenTransfer);
    }

    #[test]
    fn a_wanted_node_is_taken() {
        let mut world = World::staged();
        let provision = Provision { node: Some(OTHER_NODE), ..provision(&world, ONE) };
        let reply = world.give(Command::Provision(provision));
        assert_eq!(reply, Reply::Provisioned { node: OTHER_NODE, generation: Generation(1) });
    }

    #[test]
    fn the_least_budget_pays_the_wind_down_and_one_tick() {
        let mut world = World::staged();
        let least = RESERVE.plus(TICK);
        let budget = nano(least.nano() - 1);
        let provision = provision(&world, ONE);
        let small = Command::Provision(Provision { budget, ..provision.clone() });
        assert_eq!(world.refuse(&small), Refusal::BudgetTooSmall { budget, least, of: Least::ToBegin });
        world.give(Command::Provision(Provision { budget: least, ..provision }));
    }

    #[test]
    fn a_token_is_spent_with_what_it_allowed_and_never_twice() {
        let mut world = World::staged();
        let provision = provision(&world, ONE);
        world.give(Command::Provision(provision.clone()));
        assert!(world.of(ONE).spent_tokens.contains(&provision.token.id));
    }

    #[test]
    fn a_budget_is_carved_out_of_what_the_live_transfer_has_neither_used_nor_leased() {
        let mut world = World::active();
        world.give(world.resume(TWO));
        let free = world.of(ONE).free(&world.policy);
        let provision = Provision { carve: true, budget: free.plus(nano(1)), ..provision(&world, TWO) };
        let code = world.code(&Command::Provision(provision.clone()));
        assert_eq!(code, ErrorCode::BudgetTooSmall);
        world.give(Command::Provision(Provision { budget: free, ..provision }));
        let budget = world.of(TWO).budget.expect("it has a budget");
        assert_eq!((budget.allocated, budget.carved), (free, Some(Carved { from: ONE, amount: free })));
        assert_eq!(world.of(ONE).free(&world.policy), nano(0));
    }

    #[test]
    fn without_a_live_transfer_there_is_nothing_to_carve() {
        let world = World::staged();
        let provision = Provision { carve: true, ..provision(&world, ONE) };
        assert_eq!(world.code(&Command::Provision(provision)), ErrorCode::InvalidArgument);
    }

    #[test]
    fn a_successor_goes_to_another_node_if_there_is_one() {
        let mut world = World::active();
        world.give(world.resume(TWO));
        let reply = world.give(world.command(CommandKind::Provision, TWO));
        assert_eq!(reply, Reply::Provisioned { node: OTHER_NODE, generation: Generation(1) });
        let mut alone = World::active();
        alone.state.rooms.remove(&OTHER_NODE);
        alone.give(alone.resume(TWO));
        let reply = alone.give(alone.command(CommandKind::Provision, TWO));
        assert_eq!(reply, Reply::Provisioned { node: NODE, generation: Generation(1) });
    }
}
