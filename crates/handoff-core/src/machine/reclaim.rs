//! Re-claim: a new incarnation of a live transfer takes the session, once the old one cannot run any more.

use crate::budget;
use crate::command::Reclaim;
use crate::fact::{Fact, Taken};
use crate::grid::CommandKind;
use crate::lease;
use crate::policy::Rule;
use crate::refusal::Refusal;
use crate::reply::Reply;
use crate::state::Holder;

use super::{Case, Decision};

pub(super) fn decide(case: &Case<'_>, reclaim: &Reclaim) -> Result<Decision, Refusal> {
    let (session, found) = case.legal(CommandKind::Reclaim, reclaim.transfer)?;
    super::check_assignment(found, reclaim.node, reclaim.generation)?;
    let holds = matches!(session.holder, Holder::Incarnation { incarnation, .. } if incarnation == reclaim.incarnation);
    if let (true, Some(account)) = (holds, found.epochs.get(&session.epoch)) {
        if session.holder_gone {
            return Err(Refusal::LeaseOver);
        }
        return Ok(Decision::new([], Reply::Claimed { epoch: session.epoch, limit: account.limit }));
    }
    if found.resting {
        return Err(Refusal::busy(session, "it rests: wake it first"));
    }
    if case.final_is_pending(session) {
        return Err(Refusal::busy(session, "it stopped for a transfer that is pending"));
    }
    if !lease::is_over(session, case.now) && case.keeps(Rule::ReclaimWaitsForLease) {
        return Err(Refusal::FormerHolderMayRun { until: session.lease_until.unwrap_or(case.now) });
    }
    let accepted = session.last_snapshot.ok_or(Refusal::NotFinal { transfer: found.id })?;
    if accepted.digest != reclaim.digest {
        return Err(Refusal::StaleSnapshot { transfer: found.id, present: accepted.digest });
    }
    let epoch = session.epoch.next();
    let limit = budget::grant(case.policy, found, Default::default(), Default::default());
    let taken = Taken {
        epoch,
        incarnation: reclaim.incarnation,
        node: reclaim.node,
        generation: reclaim.generation,
        lease_until: case.now.plus_ms(case.policy.lease_ms),
        limit,
    };
    Ok(Decision::new([Fact::Reclaimed { transfer: found.id, taken }], Reply::Claimed { epoch, limit }))
}

#[cfg(test)]
mod tests {
    use handoff_protocol::node::ObservedState;
    use handoff_protocol::{ErrorCode, Status};

    use crate::command::Reclaim;
    use crate::grid::CommandKind;
    use crate::machine::world::{MINUTE, ONE, OTHER_NODE, TWO, World, digest, incarnation};
    use crate::state::{Epoch, Generation};
    use crate::{Command, Refusal};

    #[test]
    fn given_a_lease_that_is_over_then_a_new_incarnation_takes_the_session() {
        let mut world = World::active();
        let until = world.session().lease_until.expect("it has a lease");
        let refused = world.refuse(&world.reclaim(incarnation(2)));
        assert_eq!(refused, Refusal::FormerHolderMayRun { until });
        world = world.later(30_000);
        world.give(world.reclaim(incarnation(2)));
        assert_eq!(
            (world.epoch(), world.holder(), world.status(ONE)),
            (Epoch(3), incarnation(2), Status::Active)
        );
        assert_eq!(world.session().lease_until, Some(world.now.plus_ms(30_000)));
        let open = |epoch| world.of(ONE).epochs[&Epoch(epoch)].closed.is_none();
        assert!(open(2) && open(3), "the old epoch's lease stays charged");
        assert_eq!(world.events(ONE).len(), 4, "a re-claim is no transition");
    }

    #[test]
    fn proof_of_absence_is_as_good_as_the_end_of_the_lease() {
        let mut world = World::active();
        world.give(world.observe(ObservedState::Absent));
        world.give(world.reclaim(incarnation(2)));
    }

    #[test]
    fn a_re_claim_whose_answer_was_lost_is_answered_again() {
        let mut world = World::active().later(MINUTE);
        let reclaim = world.reclaim(incarnation(2));
        let first = world.give(reclaim.clone());
        assert_eq!(world.make(reclaim), (Vec::new(), first));
    }

    #[test]
    fn an_incarnation_that_is_gone_does_not_take_the_session_again() {
        let mut world = World::active();
        let again = world.reclaim(incarnation(1));
        world.give(world.observe(ObservedState::Absent));
        assert_eq!(world.code(&again), ErrorCode::LeaseOver);
        let mut resting = World::resting();
        assert_eq!(resting.code(&again), ErrorCode::LeaseOver);
        resting.give(resting.command(CommandKind::Wake, ONE));
        assert_eq!(resting.code(&again), ErrorCode::LeaseOver);
    }

    #[test]
    fn it_starts_from_the_last_accepted_snapshot_at_the_assigned_node() {
        let mut world = World::active();
        world.give(world.checkpoint("last"));
        world = world.later(MINUTE);
        let with = |change: fn(&mut Reclaim)| {
            let Command::Reclaim(mut reclaim) = world.reclaim(incarnation(2)) else {
                unreachable!("it re-claims")
            };
            change(&mut reclaim);
            world.code(&Command::Reclaim(reclaim))
        };
        assert_eq!(with(|reclaim| reclaim.digest = digest("final")), ErrorCode::StaleSnapshot);
        assert_eq!(with(|reclaim| reclaim.node = OTHER_NODE), ErrorCode::Forbidden);
        assert_eq!(with(|reclaim| reclaim.generation = Generation(2)), ErrorCode::StaleGeneration);
    }

    /// H-72
    #[test]
    fn none_while_a_final_is_pending_or_while_it_rests() {
        let mut world = World::hop_final().later(MINUTE);
        assert_eq!(world.code(&world.reclaim(incarnation(3))), ErrorCode::SessionBusy);
        world.give(world.command(CommandKind::Terminate, TWO));
        world.give(world.reclaim(incarnation(3)));
        let resting = World::resting();
        assert_eq!(resting.code(&resting.reclaim(incarnation(3))), ErrorCode::SessionBusy);
        let mut draft = World::hopping().later(MINUTE);
        draft.give(draft.reclaim(incarnation(3)));
    }
}
