//! Terminate and expire: a transfer is over. A session never is.

use handoff_protocol::{Status, TransferId};

use crate::fact::Fact;
use crate::grid::CommandKind;
use crate::refusal::Refusal;
use crate::state::Session;
use crate::transfer::{EndReason, FinalMark, Ground, Transfer};

use super::{Case, Decision};

pub(super) fn terminate(
    case: &Case<'_>,
    transfer: TransferId,
    reason: &EndReason,
) -> Result<Decision, Refusal> {
    let (session, found) = case.legal(CommandKind::Terminate, transfer)?;
    if *reason == EndReason::GracePeriodExpired {
        check_grace(case, found)?;
    }
    let mut facts = vec![Fact::Terminated { transfer, reason: reason.clone(), at: case.now }];
    facts.extend(give_back(case, found));
    facts.extend(refresh_successor(case, session, found));
    Ok(Decision::done(super::with_ledger(case, facts, transfer)))
}

pub(super) fn expire(case: &Case<'_>, transfer: TransferId) -> Result<Decision, Refusal> {
    let (_, found) = case.legal(CommandKind::Expire, transfer)?;
    if let Some(open) = found.open_authorization() {
        return Err(Refusal::AlreadyAuthorized { transfer, deadline: open.deadline });
    }
    if case.now < found.expires_at {
        return Err(Refusal::TooEarly { transfer, at: found.expires_at });
    }
    let mut facts = vec![Fact::Expired { transfer, at: case.now }];
    facts.extend(give_back(case, found));
    Ok(Decision::done(super::with_ledger(case, facts, transfer)))
}

/// The reaper's reason is true only in insolvency, and only after grace: a raise in the meantime wins.
fn check_grace(case: &Case<'_>, found: &Transfer) -> Result<(), Refusal> {
    let transfer = found.id;
    if found.status != Status::Insolvent {
        return Err(Refusal::WrongStatus { transfer, found: found.status, command: CommandKind::Terminate });
    }
    match found.grace_until {
        Some(at) if case.now < at => Err(Refusal::TooEarly { transfer, at }),
        Some(_) | None => Ok(()),
    }
}

/// What was carved out of the live transfer goes back to it, since this one was never claimed. A transfer whose
/// ledger is closed takes nothing back.
fn give_back(case: &Case<'_>, found: &Transfer) -> Vec<Fact> {
    let carved = found.budget.and_then(|budget| budget.carved).filter(|_| found.status.is_pending());
    let Some(carved) = carved else { return Vec::new() };
    let from = case.state.transfers.get(&carved.from).filter(|from| !from.ledger_closed);
    let (Some(theirs), Some(own)) = (from.and_then(|from| from.budget), found.budget) else {
        return Vec::new();
    };
    vec![
        Fact::BudgetCarved { transfer: found.id, allocated: own.allocated.minus(carved.amount) },
        Fact::BudgetRestored { transfer: carved.from, allocated: theirs.allocated.plus(carved.amount) },
    ]
}

/// A live transfer ends while its successor is a draft: the successor goes on from the last accepted snapshot.
fn refresh_successor(case: &Case<'_>, session: &Session, ended: &Transfer) -> Option<Fact> {
    if session.live != Some(ended.id) {
        return None;
    }
    let pending = case.pending(session).filter(|pending| !pending.is_final(session.epoch))?;
    let accepted = session.last_snapshot?;
    let mark = Some(FinalMark { epoch: session.epoch, ground: Ground::LastAccepted });
    Some(Fact::Refreshed { transfer: pending.id, snapshot: accepted.digest, mark, by_holder: false })
}

#[cfg(test)]
mod tests {
    use handoff_protocol::{ErrorCode, NanoUsd, Status, TransferId};

    use crate::command::Provision;
    use crate::grid::CommandKind;
    use crate::machine::world::{BUDGET, MINUTE, ONE, TWO, World, digest, nano};
    use crate::state::Epoch;
    use crate::transfer::{EndReason, FinalMark, Ground, Outcome};
    use crate::{Command, Fact};

    fn grace_over() -> Command {
        Command::Terminate { transfer: ONE, reason: EndReason::GracePeriodExpired }
    }

    fn allocated(world: &World, transfer: TransferId) -> NanoUsd {
        world.of(transfer).budget.expect("it has a budget").allocated
    }

    /// A hop whose budget was carved out of the live transfer's.
    fn carved() -> World {
        let mut world = World::active();
        world.give(world.resume(TWO));
        let Command::Provision(provision) = world.command(CommandKind::Provision, TWO) else {
            unreachable!("it provisions")
        };
        world.give(Command::Provision(Provision { budget: nano(4_000_000), carve: true, ..provision }));
        world
    }

    /// H-7
    #[test]
    fn a_terminated_transfer_is_over_and_its_session_is_not() {
        let mut world = World::authorized();
        world.give(world.command(CommandKind::Terminate, ONE));
        let ended = world.of(ONE).ended.clone().expect("it ended");
        assert_eq!((ended.reason.as_str(), ended.at), ("done", world.now));
        assert_eq!(world.of(ONE).authorization.clone().map(|found| found.outcome), Some(Outcome::Withdrawn));
        assert_eq!((world.session().pending, world.session().live), (None, None));
        assert_eq!(world.code(&world.command(CommandKind::Terminate, ONE)), ErrorCode::WrongStatus);
        world.give(world.resume(TWO));
    }

    /// H-87
    #[test]
    fn grace_ends_a_transfer_only_in_insolvency_and_only_when_it_is_over() {
        assert_eq!(World::active().code(&grace_over()), ErrorCode::WrongStatus);
        let insolvent = World::insolvent();
        assert_eq!(
            insolvent.clone().later(MINUTE - 1).code(&grace_over()),
            ErrorCode::WrongStatus,
            "too early"
        );
        let mut late = insolvent.later(MINUTE);
        let mut raised = late.clone();
        raised.give(raised.command(CommandKind::RaiseBudget, ONE));
        assert_eq!(raised.code(&grace_over()), ErrorCode::WrongStatus, "a raise that came first wins");
        late.give(grace_over());
        assert_eq!(late.of(ONE).ended.clone().map(|ended| ended.reason), Some(EndReason::GracePeriodExpired));
    }

    #[test]
    fn a_pending_transfer_expires_at_its_time_and_not_under_an_authorization() {
        let expire = Command::Expire { transfer: ONE };
        let world = World::staged();
        assert_eq!(world.clone().later(30 * MINUTE - 1).code(&expire), ErrorCode::WrongStatus);
        let mut late = world.later(30 * MINUTE);
        late.give(expire.clone());
        assert_eq!(
            (late.status(ONE), late.of(ONE).ledger_closed),
            (Status::Expired, true),
            "nothing was anywhere"
        );
        let authorized = World::authorized().later(30 * MINUTE);
        assert_eq!(authorized.code(&expire), ErrorCode::AlreadyAuthorized);
    }

    /// H-42
    #[test]
    fn a_draft_successor_goes_on_from_the_last_accepted_snapshot() {
        let mut world = World::hopping();
        world.give(world.checkpoint("last"));
        world.give(world.command(CommandKind::Terminate, ONE));
        let mark = Some(FinalMark { epoch: Epoch(2), ground: Ground::LastAccepted });
        assert_eq!((world.of(TWO).snapshot, world.of(TWO).mark), (digest("last"), mark));
        world.give(world.command(CommandKind::Push, TWO));
    }

    #[test]
    fn a_final_successor_keeps_what_its_holder_stopped_for() {
        let mut world = World::hop_final();
        world.give(world.command(CommandKind::Terminate, ONE));
        let mark = Some(FinalMark { epoch: Epoch(2), ground: Ground::Quiesced });
        assert_eq!((world.of(TWO).snapshot, world.of(TWO).mark), (digest("hop"), mark));
    }

    /// H-82
    #[test]
    fn carved_money_is_in_one_place_at_any_time() {
        for end in [CommandKind::Terminate, CommandKind::Expire] {
            let mut world = carved();
            assert_eq!((allocated(&world, ONE), allocated(&world, TWO)), (nano(6_000_000), nano(4_000_000)));
            world = world.later(30 * MINUTE);
            world.give(world.command(end, TWO));
            assert_eq!((allocated(&world, ONE), allocated(&world, TWO)), (BUDGET, nano(0)), "{end}");
        }
    }

    #[test]
    fn what_was_raised_beside_the_carved_part_does_not_go_back() {
        let mut world = carved();
        world.give(Command::RaiseBudget { transfer: TWO, allocated: nano(5_000_000) });
        world.give(world.command(CommandKind::Terminate, TWO));
        assert_eq!((allocated(&world, ONE), allocated(&world, TWO)), (BUDGET, nano(1_000_000)));
    }

    #[test]
    fn nothing_goes_back_from_a_claimed_successor() {
        let mut world = carved();
        world.give(world.final_of_holder("hop"));
        for kind in [CommandKind::Push, CommandKind::Receipt, CommandKind::Activate, CommandKind::Claim] {
            world.give(world.command(kind, TWO));
        }
        let (facts, _) = world.make(world.command(CommandKind::Terminate, TWO));
        assert!(!facts.iter().any(|fact| matches!(fact, Fact::BudgetRestored { .. })), "{facts:?}");
    }
}
