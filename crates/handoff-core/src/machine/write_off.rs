//! Write off: an orchestrator closes an epoch whose node will never report again, at its full limit. Money that
//! may have been spent stays spent.

use handoff_protocol::TransferId;

use crate::fact::Fact;
use crate::grid::CommandKind;
use crate::lease;
use crate::refusal::Refusal;
use crate::state::Epoch;

use super::{Case, Decision};

pub(super) fn decide(case: &Case<'_>, transfer: TransferId, epoch: Epoch) -> Result<Decision, Refusal> {
    let (session, found) = case.legal(CommandKind::WriteOff, transfer)?;
    let account = found.epochs.get(&epoch).ok_or(Refusal::NoEpoch { transfer, epoch })?;
    if account.closed.is_some() {
        return Ok(Decision::done([]));
    }
    let running = session.epoch == epoch && !lease::is_over(session, case.now);
    if running {
        return Err(Refusal::busy(session, "that epoch may still be running"));
    }
    Ok(Decision::done(super::with_ledger(case, vec![Fact::WrittenOff { transfer, epoch }], transfer)))
}

#[cfg(test)]
mod tests {
    use handoff_protocol::ErrorCode;

    use crate::grid::CommandKind;
    use crate::machine::world::{MINUTE, ONE, World, incarnation, nano};
    use crate::state::Epoch;
    use crate::transfer::Closing;
    use crate::{Command, Fact};

    /// H-76
    #[test]
    fn given_a_node_that_will_never_report_then_its_epoch_is_closed_at_the_full_limit() {
        let mut world = World::active();
        let write_off = world.command(CommandKind::WriteOff, ONE);
        assert_eq!(world.code(&write_off), ErrorCode::SessionBusy, "it may be running");
        world = world.later(MINUTE);
        world.give(world.reclaim(incarnation(2)));
        let charged = world.of(ONE).charged(&world.policy);
        world.give(write_off.clone());
        let account = world.of(ONE).epochs[&Epoch(2)];
        assert_eq!((account.closed, account.charge()), (Some(Closing::WrittenOff), account.limit));
        assert_eq!(world.of(ONE).charged(&world.policy), charged, "nothing came back");
        assert_eq!(world.make(write_off).0, [], "it is closed");
    }

    #[test]
    fn what_it_really_spent_may_still_be_reported() {
        let mut world = World::active().later(MINUTE);
        world.give(world.command(CommandKind::WriteOff, ONE));
        world.give(world.report(|usage| usage.totals.model_usd = nano(500)));
        assert_eq!(world.of(ONE).spent(), nano(500));
    }

    #[test]
    fn an_unknown_epoch_is_refused_and_the_last_one_closes_the_ledger() {
        let mut world = World::terminated();
        let unknown = Command::WriteOff { transfer: ONE, epoch: Epoch(9) };
        assert_eq!(world.code(&unknown), ErrorCode::NotFound);
        world.give(world.place_gone());
        let (facts, _) = world.make(world.command(CommandKind::WriteOff, ONE));
        assert!(facts.contains(&Fact::LedgerClosed { transfer: ONE }));
    }
}
