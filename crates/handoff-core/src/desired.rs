//! What a node should hold, derived from what the store says: nodes reconcile towards it and nothing is undone.

use handoff_protocol::node::{AuthorizationOffer, Destination, Want};
use handoff_protocol::{NodeId, Status, Timestamp};

use crate::lease;
use crate::policy::Policy;
use crate::state::{Generation, Holder, Session};
use crate::transfer::{Push, Transfer};

/// The entries of one transfer that concern this node: its present assignment, and earlier ones that are not
/// proved absent yet.
pub fn entries(
    policy: &Policy,
    session: &Session,
    transfer: &Transfer,
    node: NodeId,
    now: Timestamp,
) -> Vec<Destination> {
    let former = transfer.former_assignments.iter().filter(|(_, former)| **former == node);
    let mut entries: Vec<Destination> = former
        .filter_map(|(generation, _)| entry(policy, session, transfer, *generation, Want::Gone, now))
        .collect();
    if let Some(present) = transfer.assignment.filter(|present| present.node == node)
        && let Some(want) = want(transfer)
    {
        entries.extend(entry(policy, session, transfer, present.generation, want, now));
    }
    entries
}

/// What should be there; none once its absence is proved.
fn want(transfer: &Transfer) -> Option<Want> {
    match transfer.status {
        Status::Staged => None,
        Status::Provisioned => match transfer.push {
            Some(Push::Requested { .. }) => Some(Want::Prepared),
            Some(Push::Failed { .. }) | None => Some(Want::Warm),
        },
        Status::Pushed => Some(Want::Prepared),
        Status::Active | Status::Insolvent if transfer.resting => Some(Want::Resting),
        Status::Active => Some(Want::Running),
        Status::Insolvent => Some(Want::Frozen),
        Status::Terminated | Status::Expired if transfer.is_absent() && transfer.all_epochs_closed() => None,
        Status::Terminated | Status::Expired => Some(Want::Gone),
    }
}

fn entry(
    policy: &Policy,
    session: &Session,
    transfer: &Transfer,
    generation: Generation,
    want: Want,
    now: Timestamp,
) -> Option<Destination> {
    let live = transfer.status.is_live();
    let present = transfer.generation() == Some(generation);
    let offer = transfer
        .open_authorization()
        .filter(|_| present)
        .map(|open| AuthorizationOffer { id: open.id, deadline_ms: open.deadline.ms_since(now) });
    let holder = match session.holder {
        Holder::Incarnation { incarnation, transfer: held, .. } if held == transfer.id && present => {
            Some(incarnation)
        }
        Holder::Incarnation { .. } | Holder::Source { .. } | Holder::None => None,
    };
    let accepted = session.last_snapshot.filter(|_| live).map(|last| last.digest);
    Some(Destination {
        transfer_id: transfer.id,
        session_id: session.id,
        generation: generation.0,
        version: transfer.version,
        want,
        authorization: offer,
        snapshot: accepted.unwrap_or(transfer.snapshot),
        push: present && matches!(transfer.push, Some(Push::Requested { .. })) && !transfer.receipt,
        tier: transfer.tier.clone()?,
        epoch: holder.map(|_| session.epoch.0),
        holder,
        lease_over: live && present && lease::is_over(session, now),
        tick_ms: policy.tick_ms,
        grace_ms: policy.grace_ms,
        wind_down_usd: transfer.wind_down_at(generation),
    })
}

#[cfg(test)]
mod tests {
    use handoff_protocol::NanoUsd;
    use handoff_protocol::node::ObservedState;

    use super::*;
    use crate::grid::CommandKind;
    use crate::machine::world::{MINUTE, NODE, ONE, OTHER_NODE, RESERVE, TWO, World, digest, incarnation};

    fn listed(world: &World, node: NodeId) -> Vec<Destination> {
        let entries = |found| entries(&world.policy, world.session(), found, node, world.now);
        world.state.transfers.values().flat_map(entries).collect()
    }

    fn wants(world: &World, node: NodeId) -> Vec<(u64, Want)> {
        listed(world, node).iter().map(|entry| (entry.generation, entry.want)).collect()
    }

    /// H-37, H-49
    #[test]
    fn each_status_wants_one_thing_of_its_node_and_nothing_of_others() {
        let mut declined = World::provisioned();
        declined.give(declined.command(CommandKind::Push, ONE));
        for (world, want) in [
            (World::provisioned(), Want::Warm),
            (declined, Want::Prepared),
            (World::pushed(), Want::Prepared),
            (World::active(), Want::Running),
            (World::resting(), Want::Resting),
            (World::insolvent(), Want::Frozen),
            (World::terminated(), Want::Gone),
            (World::expired(), Want::Gone),
        ] {
            assert_eq!((wants(&world, NODE), wants(&world, OTHER_NODE)), (vec![(1, want)], Vec::new()));
        }
        assert_eq!(wants(&World::staged(), NODE), []);
    }

    #[test]
    fn a_node_learns_what_it_needs_for_each_step() {
        let mut world = World::provisioned();
        world.give(world.command(CommandKind::Push, ONE));
        let entry = &listed(&world, NODE)[0];
        assert!(entry.push && entry.authorization.is_none() && entry.epoch.is_none());
        assert_eq!((entry.snapshot, entry.wind_down_usd), (digest("final"), RESERVE));

        let world = World::authorized().later(5_000);
        let entry = &listed(&world, NODE)[0];
        let offer = entry.authorization.expect("it is offered");
        assert_eq!((offer.deadline_ms, entry.push), (40_000, false));

        let mut world = World::active();
        world.give(world.checkpoint("last"));
        let entry = &listed(&world, NODE)[0];
        assert_eq!((entry.epoch, entry.holder, entry.lease_over), (Some(2), Some(incarnation(1)), false));
        assert_eq!(entry.snapshot, digest("last"), "a re-claim starts from it");
        assert!(listed(&world.later(MINUTE), NODE)[0].lease_over);
    }

    /// H-50
    #[test]
    fn an_old_generation_stays_listed_as_gone_until_its_absence_is_proved() {
        let mut world = World::pushed().silent(2 * MINUTE);
        world.give(world.command(CommandKind::Reassign, ONE));
        world.give(world.command(CommandKind::Receipt, ONE));
        world.give(world.command(CommandKind::Activate, ONE));
        assert_eq!(
            (wants(&world, NODE), wants(&world, OTHER_NODE)),
            (vec![(1, Want::Gone)], vec![(2, Want::Prepared)])
        );
        let old = &listed(&world, NODE)[0];
        assert_eq!((old.authorization, old.push), (None, false), "it is not the one that may claim");
        world.give(world.claim(ONE, incarnation(1)));
        assert_eq!(listed(&world, NODE)[0].holder, None, "the holder is not there");
        let (generation, state) = (Generation(1), ObservedState::Absent);
        let (last_alive, incarnation) = (None, None);
        world.give(crate::Command::Observe {
            transfer: ONE,
            node: NODE,
            generation,
            state,
            last_alive,
            incarnation,
        });
        assert_eq!((wants(&world, NODE), wants(&world, OTHER_NODE)), (vec![], vec![(2, Want::Running)]));
    }

    #[test]
    fn an_ended_one_is_listed_until_it_is_gone_and_reported() {
        let mut world = World::terminated();
        world.give(world.place_gone());
        assert_eq!(wants(&world, NODE), [(1, Want::Gone)], "its last report is missing");
        world.give(world.report(|usage| usage.closing = true));
        assert_eq!(wants(&world, NODE), []);
    }

    /// H-50, H-88: a node that proves its holder gone has not removed the place it was in.
    #[test]
    fn the_place_of_a_dead_holder_stays_listed_until_nothing_is_left_of_it() {
        let dead = |mut world: World| {
            world.give(world.report(|usage| usage.closing = true));
            world.give(world.observe(ObservedState::Absent));
            world
        };
        let terminate = |world: &World| world.command(CommandKind::Terminate, ONE);
        let mut ended = Vec::new();
        for mut world in [dead(World::active()), dead(World::insolvent())] {
            world.give(terminate(&world));
            ended.push(world);
        }
        // Its proof comes only after the end.
        let mut late = World::active();
        late.give(terminate(&late));
        ended.push(dead(late));
        for mut world in ended {
            assert_eq!(wants(&world, NODE), [(1, Want::Gone)]);
            assert!(!world.of(ONE).ledger_closed);
            world.give(world.place_gone());
            assert_eq!((wants(&world, NODE), world.of(ONE).ledger_closed), (vec![], true));
        }
        let mut moved = dead(World::active()).silent(2 * MINUTE);
        moved.give(moved.command(CommandKind::Reassign, ONE));
        assert_eq!(wants(&moved, NODE), [(1, Want::Gone)], "another node has it, and the old place stands");
    }

    /// H-75, H-81
    #[test]
    fn the_wind_down_is_what_epochs_elsewhere_have_left_of_it() {
        let used = RESERVE.minus(crate::machine::world::nano(1));
        let left = |world: &World, node| listed(world, node)[0].wind_down_usd;
        let mut world = World::insolvent();
        world.give(world.report(|usage| usage.totals.wind_down_usd = used));
        assert_eq!(left(&world, NODE), RESERVE, "its own meter counts what it has used itself");
        world.give(world.command(CommandKind::RaiseBudget, ONE));
        let mut world = world.silent(2 * MINUTE);
        world.give(world.command(CommandKind::Reassign, ONE));
        assert_eq!(left(&world, OTHER_NODE), NanoUsd::ZERO, "the old meter may have used all of it");
        world.give(world.reclaim(incarnation(2)));
        let mut written_off = world.clone();
        world.give(world.report_of(ONE, crate::Epoch(2), |usage| usage.closing = true));
        assert_eq!(left(&world, OTHER_NODE), RESERVE.minus(used));
        written_off.give(crate::Command::WriteOff { transfer: ONE, epoch: crate::Epoch(2) });
        assert_eq!(left(&written_off, OTHER_NODE), NanoUsd::ZERO, "nobody knows what it used");
        // Back on the first node it is another place, with another journal.
        let mut world = world.later(2 * MINUTE);
        world.give(world.report(|usage| usage.closing = true));
        world.state.rooms.remove(&OTHER_NODE);
        let rooms = World::new().state.rooms;
        world.state.rooms = rooms.into_iter().filter(|(node, _)| *node == NODE).collect();
        let mut world = world.later(0);
        world.give(world.command(CommandKind::Reassign, ONE));
        let present = listed(&world, NODE).into_iter().find(|entry| entry.generation == 3);
        assert_eq!(present.map(|entry| entry.wind_down_usd), Some(RESERVE.minus(used)));
    }

    #[test]
    fn what_rests_has_no_sandbox_even_when_its_money_is_gone() {
        let mut world = World::resting();
        let cost = handoff_protocol::NanoUsd::from_nano(1_000_000_000);
        world.give(crate::Command::RecordSpend { transfer: ONE, cost, detail: String::new() });
        assert_eq!((world.status(ONE), wants(&world, NODE)), (Status::Insolvent, vec![(1, Want::Resting)]));
    }

    #[test]
    fn after_a_hop_only_the_successor_runs() {
        let mut world = World::hop_pushed();
        assert_eq!(
            (wants(&world, NODE), wants(&world, OTHER_NODE)),
            (vec![(1, Want::Running)], vec![(1, Want::Prepared)])
        );
        world.give(world.command(CommandKind::Activate, TWO));
        world.give(world.claim(TWO, incarnation(2)));
        assert_eq!(
            (wants(&world, NODE), wants(&world, OTHER_NODE)),
            (vec![(1, Want::Gone)], vec![(1, Want::Running)])
        );
    }
}
