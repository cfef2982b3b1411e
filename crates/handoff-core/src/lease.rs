//! Who may run, and when somebody else may.
//!
//! A lease is counted twice: at the control plane in the store's time, from the moment a claim or renewal is
//! accepted; at the holder from the moment it first sent that claim or renewal, which is earlier. The holder
//! freezes at two thirds. So the holder has stopped before the control plane believes that it has.

use handoff_protocol::Timestamp;

use crate::policy::{Policy, Rule};
use crate::state::{Holder, Session};
use crate::transfer::{Ground, Transfer};

/// Whether the last incarnation's lease is over.
pub fn is_over(session: &Session, now: Timestamp) -> bool {
    session.holder_gone || session.lease_until.is_none_or(|until| until <= now)
}

/// Whether whoever holds the session cannot run any more, so that `transfer` may be claimed: its lease is over,
/// or it is proved gone, or it stopped for this very transfer in the present epoch. A source has no lease; only
/// its own final mark stops it.
pub fn former_holder_is_out(policy: &Policy, session: &Session, transfer: &Transfer, now: Timestamp) -> bool {
    let quiesced =
        transfer.mark.is_some_and(|mark| mark.epoch == session.epoch && mark.ground == Ground::Quiesced);
    match session.holder {
        Holder::None => true,
        Holder::Source { .. } => transfer.is_final(session.epoch),
        Holder::Incarnation { .. } => {
            quiesced || is_over(session, now) || !policy.rules.keep(Rule::ClaimWaitsForLease)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grid::CommandKind;
    use crate::machine::world::{ONE, TWO, World, incarnation};

    fn out(world: &World, transfer: handoff_protocol::TransferId) -> bool {
        former_holder_is_out(&world.policy, world.session(), world.of(transfer), world.now)
    }

    #[test]
    fn a_lease_is_over_at_its_end_and_not_before() {
        let world = World::active();
        assert!(!is_over(world.session(), world.now.plus_ms(29_999)));
        assert!(is_over(world.session(), world.now.plus_ms(30_000)));
        assert!(is_over(World::staged().session(), world.now), "a source has none");
    }

    #[test]
    fn a_source_is_out_only_by_its_own_final() {
        assert!(!out(&World::staged(), ONE) && out(&World::provisioned(), ONE));
        let mut world = World::provisioned();
        world.give(world.refresh(ONE, "on", false));
        assert!(!out(&world, ONE), "it goes on");
        let mut abandoned = World::expired();
        abandoned.give(abandoned.command(CommandKind::AbandonSource, ONE));
        abandoned.give(abandoned.resume(TWO));
        assert!(out(&abandoned, TWO));
    }

    #[test]
    fn a_live_holder_is_out_when_it_stopped_for_the_transfer_or_its_lease_is_over() {
        let world = World::hopping();
        assert!(!out(&world, TWO) && out(&World::hop_final(), TWO));
        assert!(out(&world.later(30_000), TWO));
        // A final of an older epoch is none.
        let mut old = World::hop_final().later(30_000);
        old.policy.rules = crate::Rules::without(crate::Rule::FinalSeals);
        old.give(old.reclaim(incarnation(5)));
        assert!(!out(&old, TWO));
    }
}
