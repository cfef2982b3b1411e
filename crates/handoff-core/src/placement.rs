//! Which node a destination goes to: the one that was asked for, or the one with most room.

use std::collections::BTreeMap;

use handoff_protocol::{NodeId, Tier, Timestamp};

use crate::refusal::Refusal;

/// A node as placement sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Room {
    /// Thousandths of a core that are left, where a store counts what is taken at half: together with
    /// [`Room::fits`] that shares every core twice over and no further.
    pub cpu_millis: u64,
    /// Bytes of memory that are not taken.
    pub memory_bytes: u64,
    /// When it was last heard of.
    pub seen_at: Timestamp,
}

impl Room {
    /// Whether a destination of this tier fits. CPU may be shared, twice over; memory may not.
    pub fn fits(&self, tier: &Tier) -> bool {
        self.memory_bytes >= tier.memory_bytes && self.cpu_millis * 2 >= u64::from(tier.cpu_millis)
    }
}

/// How long a node may be silent before nothing new is placed on it.
const SILENCE_MS: u64 = 60_000;

/// Chooses a node for a tier.
///
/// # Errors
/// [`Refusal::NoNode`] when none fits, or the wanted one does not.
pub fn choose(
    rooms: &BTreeMap<NodeId, Room>,
    tier: &Tier,
    wanted: Option<NodeId>,
    avoid: Option<NodeId>,
    now: Timestamp,
) -> Result<NodeId, Refusal> {
    let usable = |(id, room): &(&NodeId, &Room)| {
        wanted.is_none_or(|wanted| wanted == **id)
            && (wanted.is_some() || avoid != Some(**id))
            && room.fits(tier)
            && now.ms_since(room.seen_at) <= SILENCE_MS
    };
    let most_room = |(_, room): &(&NodeId, &Room)| (room.memory_bytes, room.cpu_millis);
    let found = rooms.iter().filter(usable).max_by_key(most_room);
    found.map(|(id, _)| *id).ok_or_else(|| Refusal::NoNode { tier: tier.name.clone(), node: wanted })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn room(memory_bytes: u64) -> Room {
        Room { cpu_millis: 4000, memory_bytes, seen_at: Timestamp::from_unix_ms(0) }
    }

    #[test]
    fn the_node_with_most_room_is_chosen_unless_one_is_wanted_or_avoided() {
        let (a, b) = (NodeId::from_u128(1), NodeId::from_u128(2));
        let rooms = BTreeMap::from([(a, room(1 << 30)), (b, room(2 << 30))]);
        let tier = &Tier::defaults()[0];
        let now = Timestamp::from_unix_ms(1);
        assert_eq!(choose(&rooms, tier, None, None, now), Ok(b));
        assert_eq!(choose(&rooms, tier, Some(a), None, now), Ok(a));
        assert_eq!(choose(&rooms, tier, None, Some(b), now), Ok(a));
        let large = &Tier::defaults()[2];
        assert!(matches!(choose(&rooms, large, None, None, now), Err(Refusal::NoNode { .. })));
        let late = Timestamp::from_unix_ms(60_001);
        assert!(
            matches!(choose(&rooms, tier, None, None, late), Err(Refusal::NoNode { .. })),
            "silent nodes"
        );
    }
}
