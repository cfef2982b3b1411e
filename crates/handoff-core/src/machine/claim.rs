//! Claim: the destination takes the session. This commit is the only irreversible point of a move.

use handoff_protocol::Status;

use crate::budget;
use crate::command::Claim;
use crate::fact::{Fact, Taken};
use crate::grid::CommandKind;
use crate::lease;
use crate::refusal::Refusal;
use crate::reply::Reply;
use crate::state::{Holder, Session};
use crate::transfer::{EndReason, Transfer};

use super::{Case, Decision};

pub(super) fn decide(case: &Case<'_>, claim: &Claim) -> Result<Decision, Refusal> {
    let (session, found) = case.transfer(claim.transfer)?;
    if let Some(reply) = answered(session, found, claim) {
        return Ok(Decision::new([], reply));
    }
    let (session, found) = case.legal(CommandKind::Claim, claim.transfer)?;
    super::check_assignment(found, claim.node, claim.generation)?;
    super::authorization::check_open(found, claim.authorization)?;
    if found.open_authorization().is_some_and(|open| open.deadline <= case.now) {
        return Err(Refusal::AuthorizationOver { transfer: found.id });
    }
    super::check_digest(found, claim.digest)?;
    super::check_final(session, found)?;
    if !lease::former_holder_is_out(case.policy, session, found, case.now) {
        return Err(Refusal::FormerHolderMayRun { until: session.lease_until.unwrap_or(case.now) });
    }
    let epoch = session.epoch.next();
    let limit = budget::grant(case.policy, found, Default::default(), Default::default());
    // The former live transfer ends in the same transaction, and first: at no moment are there two.
    let former =
        session.live.map(|transfer| Fact::Terminated { transfer, reason: EndReason::Moved, at: case.now });
    let mut facts: Vec<Fact> = former.into_iter().collect();
    facts.push(claimed(case, claim, epoch, limit));
    if let Some(former) = session.live {
        facts = super::with_ledger(case, facts, former);
    }
    Ok(Decision::new(facts, Reply::Claimed { epoch, limit }))
}

/// A claim whose answer was lost is answered again: the incarnation already holds the session, and is not gone.
fn answered(session: &Session, found: &Transfer, claim: &Claim) -> Option<Reply> {
    let held = Holder::Incarnation {
        incarnation: claim.incarnation,
        transfer: claim.transfer,
        node: claim.node,
        generation: claim.generation,
    };
    let account = found.epochs.get(&session.epoch)?;
    let live = matches!(found.status, Status::Active | Status::Insolvent);
    (live && session.holder == held && !session.holder_gone)
        .then_some(Reply::Claimed { epoch: session.epoch, limit: account.limit })
}

fn claimed(
    case: &Case<'_>,
    claim: &Claim,
    epoch: crate::state::Epoch,
    limit: handoff_protocol::NanoUsd,
) -> Fact {
    let taken = Taken {
        epoch,
        incarnation: claim.incarnation,
        node: claim.node,
        generation: claim.generation,
        lease_until: case.now.plus_ms(case.policy.lease_ms),
        limit,
    };
    Fact::Claimed { transfer: claim.transfer, taken }
}

#[cfg(test)]
mod tests {
    use handoff_protocol::node::ObservedState;
    use handoff_protocol::{ErrorCode, Status};

    use crate::command::Claim;
    use crate::grid::CommandKind;
    use crate::machine::world::{BUDGET, ONE, OTHER_NODE, RESERVE, TWO, World, digest, incarnation, nano};
    use crate::state::{Accepted, Epoch, Generation, Holder, Standing};
    use crate::transfer::{EndReason, Outcome};
    use crate::{Command, Fact, Refusal, Reply};

    /// H-53
    #[test]
    fn given_authorized_when_claimed_then_the_incarnation_holds_the_session() {
        let mut world = World::authorized();
        let claim = world.claim(ONE, incarnation(1));
        let (facts, reply) = world.make(claim.clone());
        let limit = nano((BUDGET.nano() - RESERVE.nano()) / 2);
        assert_eq!(reply, Reply::Claimed { epoch: Epoch(2), limit });
        assert_eq!((facts.len(), world.status(ONE)), (1, Status::Active));
        let session = world.session();
        let node = world.of(ONE).assignment.expect("it has a node").node;
        let (incarnation, transfer, generation) = (incarnation(1), ONE, Generation(1));
        assert_eq!(session.holder, Holder::Incarnation { incarnation, transfer, node, generation });
        assert_eq!((session.pending, session.live, session.epoch), (None, Some(ONE), Epoch(2)));
        assert_eq!(session.lease_until, Some(world.now.plus_ms(30_000)));
        let accepted = Accepted { digest: digest("final"), epoch: Epoch(2), standing: Standing::Checkpoint };
        assert_eq!(session.last_snapshot, Some(accepted));
        assert_eq!(world.of(ONE).authorization.clone().map(|found| found.outcome), Some(Outcome::Claimed));
        assert_eq!(
            world.events(ONE),
            ["snapshot_created", "runtime_provisioned", "state_pushed", "activated"]
        );
    }

    /// H-55
    #[test]
    fn a_claim_whose_answer_was_lost_is_answered_again() {
        let mut world = World::authorized();
        let claim = world.claim(ONE, incarnation(1));
        let first = world.give(claim.clone());
        assert_eq!(world.make(claim), (Vec::new(), first));
        let other = world.claim(ONE, incarnation(2));
        assert_eq!(world.code(&other), ErrorCode::WrongStatus, "another incarnation was too late");
    }

    #[test]
    fn a_claim_of_an_incarnation_that_is_gone_is_not_answered_as_the_holder_s() {
        let mut world = World::active();
        world.give(world.observe(ObservedState::Absent));
        assert_eq!(world.code(&world.claim(ONE, incarnation(1))), ErrorCode::WrongStatus);
    }

    /// H-39, H-53
    #[test]
    fn a_claim_names_what_was_assigned_authorized_and_pushed() {
        let world = World::authorized();
        let with = |change: fn(&mut Claim)| {
            let Command::Claim(mut claim) = world.claim(ONE, incarnation(1)) else {
                unreachable!("it claims")
            };
            change(&mut claim);
            world.code(&Command::Claim(claim))
        };
        assert_eq!(with(|claim| claim.node = OTHER_NODE), ErrorCode::Forbidden);
        assert_eq!(with(|claim| claim.generation = Generation(2)), ErrorCode::StaleGeneration);
        assert_eq!(with(|claim| claim.digest = digest("draft")), ErrorCode::ChecksumMismatch);
        let other = |claim: &mut Claim| claim.authorization = handoff_protocol::TokenId::from_u128(1);
        assert_eq!(with(other), ErrorCode::LeaseOver);
        assert_eq!(world.clone().later(44_999).clone().give(world.claim(ONE, incarnation(1))), {
            Reply::Claimed { epoch: Epoch(2), limit: nano(4_916_000) }
        });
        let late = world.clone().later(45_000);
        assert_eq!(late.code(&world.claim(ONE, incarnation(1))), ErrorCode::LeaseOver, "at its deadline");
    }

    /// H-53
    #[test]
    fn given_a_live_transfer_that_stopped_for_it_then_its_end_is_part_of_the_claim() {
        let mut world = World::hop_pushed();
        world.give(world.command(CommandKind::Activate, TWO));
        let (facts, _) = world.make(world.claim(TWO, incarnation(2)));
        let moved = Fact::Terminated { transfer: ONE, reason: EndReason::Moved, at: world.now };
        assert_eq!((facts.len(), &facts[0]), (2, &moved));
        assert_eq!((world.status(ONE), world.status(TWO)), (Status::Terminated, Status::Active));
        assert_eq!((world.session().live, world.epoch()), (Some(TWO), Epoch(3)));
        assert!(!world.of(ONE).ledger_closed, "its last report is still to come");
        assert_eq!(world.events(ONE).last(), Some(&"terminated"));
    }

    #[test]
    fn a_former_transfer_whose_holder_died_is_closed_when_its_place_is_gone_and_not_before() {
        let mut world = World::hop_pushed();
        world.give(world.report(|usage| usage.closing = true));
        world.give(world.observe(ObservedState::Absent));
        world.give(world.command(CommandKind::Activate, TWO));
        let (facts, _) = world.make(world.claim(TWO, incarnation(2)));
        assert!(!facts.contains(&Fact::LedgerClosed { transfer: ONE }), "its files are there: {facts:?}");
        let (facts, _) = world.make(world.place_gone());
        assert!(facts.contains(&Fact::LedgerClosed { transfer: ONE }), "{facts:?}");
    }

    /// H-54
    #[test]
    fn a_resumed_session_is_claimed_only_when_its_former_holder_is_out() {
        let mut world = World::terminated();
        world.give(world.resume(TWO));
        for kind in [CommandKind::Provision, CommandKind::Push, CommandKind::Receipt] {
            world.give(world.command(kind, TWO));
        }
        let mut early = world.clone().later(30_000);
        early.give(early.command(CommandKind::Activate, TWO));
        // The store's time never steps back; this only shows that the claim makes the check itself.
        early.now = world.now;
        let until = world.session().lease_until.expect("it had a lease");
        assert_eq!(early.refuse(&early.claim(TWO, incarnation(2))), Refusal::FormerHolderMayRun { until });
        world.give(world.observe(ObservedState::Absent));
        world.give(world.command(CommandKind::Activate, TWO));
        world.give(world.claim(TWO, incarnation(2)));
    }
}
