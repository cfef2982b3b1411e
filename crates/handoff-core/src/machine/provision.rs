//! Provision: assigns a node with room for the tier and opens the budget. Nothing else happens here: the node
//! reconciles.

use handoff_protocol::request::Operation;
use handoff_protocol::{NanoUsd, Tier};

use crate::budget;
use crate::command::Provision;
use crate::fact::Fact;
use crate::grid::CommandKind;
use crate::placement;
use crate::refusal::Refusal;
use crate::reply::Reply;
use crate::state::{Generation, Session};
use crate::transfer::Carved;

use super::{Case, Decision};

pub(super) fn decide(case: &Case<'_>, provision: &Provision) -> Result<Decision, Refusal> {
    let (session, transfer) = case.legal(CommandKind::Provision, provision.transfer)?;
    super::check_token(case, transfer, &provision.token, Operation::ProvisionRuntime)?;
    let unknown = || Refusal::TierUnknown { tier: provision.tier.clone() };
    let tier = case.policy.tier(&provision.tier).ok_or_else(unknown)?;
    provision.token.judge_size(&provision.tier, provision.budget)?;
    let least = budget::least(case.policy, tier);
    if provision.budget < least {
        return Err(Refusal::BudgetTooSmall { budget: provision.budget, least });
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
        return Err(Refusal::BudgetTooSmall { budget: free, least: amount });
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
        allocated: provision.budget,
        reserve: case.policy.wind_down(tier),
        carved,
        node,
    }
}
