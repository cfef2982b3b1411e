//! Which places on nodes transfers take, so that the commands of one batch do not all choose the same room.

use std::collections::{BTreeMap, BTreeSet};

use handoff_core::placement::Room;
use handoff_core::state::{Generation, State};
use handoff_core::transfer::Transfer;
use handoff_protocol::node::ObservedState;
use handoff_protocol::{NodeId, Tier, TransferId};

/// The places of some transfers.
pub(super) struct Places {
    pub(super) transfers: BTreeSet<TransferId>,
    taken: Vec<((TransferId, Generation), NodeId, Tier)>,
}

/// The places that these transfers take.
pub(super) fn of(state: &State, transfers: &BTreeSet<TransferId>) -> Places {
    let found = transfers.iter().filter_map(|transfer| state.transfers.get(transfer));
    let taken = found.flat_map(of_transfer).collect();
    Places { transfers: transfers.clone(), taken }
}

fn of_transfer(transfer: &Transfer) -> Vec<((TransferId, Generation), NodeId, Tier)> {
    let Some(tier) = &transfer.tier else { return Vec::new() };
    generations(transfer)
        .into_iter()
        .map(|(generation, node)| ((transfer.id, generation), node, tier.clone()))
        .collect()
}

/// Every assignment that is not proved absent: of a present one that is known only once its transfer is over, since
/// whatever ends there before is followed by another incarnation at the same place. A resting one keeps its place: to wake it, nobody is asked for
/// room.
pub(crate) fn generations(transfer: &Transfer) -> Vec<(Generation, NodeId)> {
    let former = transfer.former_assignments.iter().map(|(generation, node)| (*generation, *node));
    let present = transfer.assignment.filter(|present| present.observed != Some(ObservedState::Absent));
    former.chain(present.map(|present| (present.generation, present.node))).collect()
}

/// Takes what is new from the rooms, and gives back what is gone.
pub(super) fn take(rooms: &mut BTreeMap<NodeId, Room>, before: &Places, after: &Places) {
    let holds = |places: &Places, key| places.taken.iter().any(|(held, _, _)| *held == key);
    for (key, node, tier) in &after.taken {
        if !holds(before, *key)
            && let Some(room) = rooms.get_mut(node)
        {
            occupy(room, tier);
        }
    }
    for (key, node, tier) in &before.taken {
        if !holds(after, *key)
            && let Some(room) = rooms.get_mut(node)
        {
            vacate(room, tier);
        }
    }
}

/// Takes a tier from a room. CPU counts half, because placement shares it twice over.
pub(crate) fn occupy(room: &mut Room, tier: &Tier) {
    room.cpu_millis = room.cpu_millis.saturating_sub(u64::from(tier.cpu_millis) / 2);
    room.memory_bytes = room.memory_bytes.saturating_sub(tier.memory_bytes);
}

fn vacate(room: &mut Room, tier: &Tier) {
    room.cpu_millis += u64::from(tier.cpu_millis) / 2;
    room.memory_bytes += tier.memory_bytes;
}
