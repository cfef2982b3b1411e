//! Report usage: cumulative totals of one epoch. The highest seq counts; an older epoch counts until it is
//! closed, whatever the status.
//!
//! Only a tick that does not fit (`exhausted`) can make a transfer insolvent, and only when no money can be
//! granted and no older epoch can still give some back. A refused model call is not a report at all.

use handoff_protocol::node::{Usage, UsageCommand};
use handoff_protocol::{Digest, NanoUsd, NodeId, Status, TransferId};

use crate::budget;
use crate::fact::Fact;
use crate::grid::CommandKind;
use crate::policy::Rule;
use crate::refusal::Refusal;
use crate::reply::Reply;
use crate::state::{Epoch, Session, State};
use crate::transfer::{EpochAccount, Transfer};

use super::{Case, Decision};

pub(super) fn decide(
    case: &Case<'_>,
    transfer: TransferId,
    node: NodeId,
    usage: &Usage,
    body: Digest,
) -> Result<Decision, Refusal> {
    let (session, found) = case.legal(CommandKind::ReportUsage, transfer)?;
    let epoch = Epoch(usage.epoch);
    let account = found.epochs.get(&epoch).ok_or(Refusal::NoEpoch { transfer, epoch })?;
    if account.node != node {
        return Err(Refusal::WrongNode { transfer, node });
    }
    if !counts(case, found, epoch, account, usage, body)? {
        let command = present_command(session, found, epoch);
        return Ok(answer(Vec::new(), account.seq, account.limit, command));
    }
    let reported = |limit| Fact::UsageReported {
        transfer,
        epoch,
        seq: usage.seq,
        totals: usage.totals,
        closing: usage.closing,
        body,
        limit,
    };
    let mut after = case.state.clone();
    after.apply(&reported(account.limit));
    let running = session.live == Some(transfer) && session.epoch == epoch && found.status == Status::Active;
    let may_lease = running && !usage.closing;
    let limit = if may_lease { granted(case, &after, transfer, account.limit, usage) } else { account.limit };
    let mut facts = vec![reported(limit)];
    after.apply(&reported(limit));
    let command = if may_lease && runs_dry(case, &after, usage, limit) {
        exhausted(case, &after, transfer, epoch, &mut facts)
    } else {
        present_command(session, &after.transfers[&transfer], epoch)
    };
    Ok(answer(super::with_ledger(case, facts, transfer), usage.seq, limit, command))
}

fn answer(facts: Vec<Fact>, accepted_seq: u64, limit: NanoUsd, command: UsageCommand) -> Decision {
    Decision::new(facts, Reply::Usage { accepted_seq, limit, command })
}

/// Whether the report changes anything: not a repetition, not an older one, and nowhere lower.
fn counts(
    case: &Case<'_>,
    found: &Transfer,
    epoch: Epoch,
    account: &EpochAccount,
    usage: &Usage,
    body: Digest,
) -> Result<bool, Refusal> {
    let seq = usage.seq;
    let later_epoch_reported = found.epochs.range(epoch.next()..).any(|(_, later)| later.seq > 0);
    if later_epoch_reported && !case.keeps(Rule::ReportsPerEpoch) {
        return Ok(false);
    }
    if seq < account.seq || seq == 0 {
        return Ok(false);
    }
    if seq == account.seq {
        let same = account.body == Some(body);
        return if same { Ok(false) } else { Err(Refusal::ReportConflict { epoch, seq }) };
    }
    // A written-off epoch may still report: what it really spent is a fact, and its limit stays charged.
    let after_closing = account.closed == Some(crate::transfer::Closing::Reported);
    if after_closing || !usage.totals.covers(&account.totals) {
        return Err(Refusal::ReportFell { epoch, seq });
    }
    Ok(true)
}

fn granted(case: &Case<'_>, after: &State, transfer: TransferId, limit: NanoUsd, usage: &Usage) -> NanoUsd {
    let found = &after.transfers[&transfer];
    budget::grant(case.policy, found, limit, usage.totals.spendable())
}

/// The node says that a tick does not fit, and it spoke of the limit that this grant leaves. Where it does not say
/// of which, what is spent is held against it; a node knows better, since part of a tick may be reserved there.
fn runs_dry(case: &Case<'_>, after: &State, usage: &Usage, limit: NanoUsd) -> bool {
    let live = after.session.as_ref().and_then(|session| session.live);
    let tick = live.map_or(NanoUsd::ZERO, |live| budget::tick_cost(case.policy, &after.transfers[&live]));
    let fits = match usage.limit_usd {
        Some(known) => known < limit,
        None => usage.totals.spendable().plus(tick) <= limit,
    };
    usage.exhausted && (!fits || !case.keeps(Rule::InsolventOnlyByTick))
}

/// Waits while an older epoch can still give money back, for so long at most; then insolvent.
fn exhausted(
    case: &Case<'_>,
    after: &State,
    transfer: TransferId,
    epoch: Epoch,
    facts: &mut Vec<Fact>,
) -> UsageCommand {
    let found = &after.transfers[&transfer];
    let older_open = found.epochs.range(..epoch).any(|(_, account)| account.closed.is_none());
    let waited = found.waiting_since.map(|since| case.now.ms_since(since));
    if older_open && waited.is_none_or(|ms| ms < case.policy.wait_ms) {
        if waited.is_none() {
            facts.push(Fact::WaitStarted { transfer, at: case.now });
        }
        return UsageCommand::Wait;
    }
    facts.push(Fact::BecameInsolvent { transfer, grace_until: case.now.plus_ms(case.policy.grace_ms) });
    UsageCommand::Insolvent
}

/// What a meter of this epoch should do as things stand.
fn present_command(session: &Session, found: &Transfer, epoch: Epoch) -> UsageCommand {
    match found.status {
        Status::Active if session.epoch == epoch && found.waiting_since.is_some() => UsageCommand::Wait,
        Status::Active if session.epoch == epoch => UsageCommand::Continue,
        Status::Insolvent if session.epoch == epoch => UsageCommand::Insolvent,
        Status::Active
        | Status::Insolvent
        | Status::Staged
        | Status::Provisioned
        | Status::Pushed
        | Status::Terminated
        | Status::Expired => UsageCommand::Terminate,
    }
}

#[cfg(test)]
mod tests {
    use handoff_protocol::node::{Usage, UsageCommand};
    use handoff_protocol::{ErrorCode, NanoUsd, Status};

    use crate::machine::world::{BUDGET, MINUTE, ONE, RESERVE, TICK, World, incarnation, nano};
    use crate::state::Epoch;
    use crate::transfer::Closing;
    use crate::{Command, Reply};

    fn told(reply: &Reply) -> (u64, NanoUsd, UsageCommand) {
        match reply {
            Reply::Usage { accepted_seq, limit, command } => (*accepted_seq, *limit, *command),
            other => panic!("{other:?} is no answer to a report"),
        }
    }

    fn spent(amount: i64) -> impl Fn(&mut Usage) {
        move |usage| usage.totals.model_usd = nano(amount)
    }

    fn limit(world: &World, epoch: u64) -> NanoUsd {
        world.of(ONE).epochs[&Epoch(epoch)].limit
    }

    /// An incarnation died with its lease unreported, and another one runs.
    fn after_a_crash() -> World {
        let mut world = World::active().later(MINUTE);
        world.give(world.reclaim(incarnation(2)));
        world
    }

    /// All that the new epoch may have is used; the old one still holds half of the budget.
    fn waiting() -> World {
        let mut world = after_a_crash();
        let rest = BUDGET.minus(RESERVE).minus(limit(&world, 2));
        let (_, reply) = world.make(world.report(|usage| {
            spent(rest.nano())(usage);
            usage.exhausted = true;
        }));
        assert_eq!(told(&reply), (1, rest, UsageCommand::Wait));
        world
    }

    /// H-85
    #[test]
    fn a_report_that_counts_is_answered_with_another_slice() {
        let mut world = World::active();
        let slice = limit(&world, 2);
        let (facts, reply) = world.make(world.report(spent(1000)));
        assert_eq!(told(&reply), (1, slice.plus(nano(1000)), UsageCommand::Continue));
        assert_eq!((facts.len(), world.of(ONE).spent()), (1, nano(1000)));
        assert_eq!(world.events(ONE).last(), Some(&"usage_reported"));
    }

    /// A tick's worth is left, but part of it is reserved at the node for time that has not run: only the node can
    /// know, and it says so of the limit that it is left with.
    #[test]
    fn a_node_that_knows_its_whole_limit_is_believed_and_one_with_an_older_limit_is_told() {
        let rest = BUDGET.minus(RESERVE);
        let nearly = |known: NanoUsd| {
            move |usage: &mut Usage| {
                spent(rest.minus(TICK).nano())(usage);
                usage.exhausted = true;
                usage.limit_usd = Some(known);
            }
        };
        let mut world = World::active();
        let half = limit(&world, 2);
        let (_, reply) = world.make(world.report(nearly(half)));
        assert_eq!(told(&reply), (1, rest, UsageCommand::Continue));
        let (_, reply) = world.make(world.report(nearly(rest)));
        assert_eq!(told(&reply), (2, rest, UsageCommand::Insolvent));
    }

    /// H-83
    #[test]
    fn the_same_report_again_changes_nothing_and_another_body_is_a_conflict() {
        let mut world = World::active();
        let report = world.report(spent(1000));
        let first = world.give(report.clone());
        assert_eq!(world.make(report.clone()), (Vec::new(), first));
        let Command::ReportUsage { transfer, node, mut usage, body } = report else {
            unreachable!("it reports")
        };
        let other =
            Command::ReportUsage { transfer, node, usage, body: crate::machine::world::digest("other") };
        assert_eq!(world.code(&other), ErrorCode::IdempotencyConflict);
        world.give(world.report(spent(2000)));
        usage.seq = 1;
        let late = Command::ReportUsage { transfer, node, usage, body };
        let (facts, reply) = world.make(late);
        assert_eq!((facts, told(&reply).0), (Vec::new(), 2), "answered with the accepted one");
        assert_eq!(world.of(ONE).spent(), nano(2000));
    }

    #[test]
    fn totals_never_fall_and_nothing_follows_the_closing_report() {
        let mut world = World::active();
        world.give(world.report(spent(1000)));
        assert_eq!(world.code(&world.report(spent(999))), ErrorCode::InvalidArgument);
        world.give(world.report(|usage| usage.closing = true));
        assert_eq!(world.code(&world.report(spent(5000))), ErrorCode::InvalidArgument);
        assert_eq!(world.of(ONE).epochs[&Epoch(2)].closed, Some(Closing::Reported));
    }

    #[test]
    fn only_the_node_of_an_epoch_reports_it() {
        let world = World::active();
        let Command::ReportUsage { transfer, mut usage, body, .. } = world.report(spent(1)) else {
            unreachable!("it reports")
        };
        let node = crate::machine::world::OTHER_NODE;
        assert_eq!(world.code(&Command::ReportUsage { transfer, node, usage, body }), ErrorCode::Forbidden);
        usage.epoch = 9;
        let node = crate::machine::world::NODE;
        assert_eq!(world.code(&Command::ReportUsage { transfer, node, usage, body }), ErrorCode::NotFound);
    }

    #[test]
    fn an_older_epoch_counts_until_it_is_closed_whatever_the_status() {
        let mut world = after_a_crash();
        world.give(world.report(spent(500)));
        let (_, reply) = world.make(world.report_of(ONE, Epoch(2), spent(700)));
        assert_eq!(told(&reply), (1, limit(&world, 2), UsageCommand::Terminate), "that incarnation is over");
        assert_eq!(world.of(ONE).spent(), nano(1200));
        world.give(Command::Terminate {
            transfer: ONE,
            reason: crate::transfer::EndReason::Requested(String::new()),
        });
        world.give(world.report_of(ONE, Epoch(2), |usage| {
            spent(900)(usage);
            usage.closing = true;
        }));
        assert_eq!(world.of(ONE).spent(), nano(1400));
    }

    /// H-76
    #[test]
    fn an_old_lease_comes_back_with_its_closing_report_and_not_before() {
        let mut world = after_a_crash();
        let used = |world: &World| world.of(ONE).charged(&world.policy);
        let slice = limit(&world, 2);
        assert_eq!(used(&world), RESERVE.plus(slice).plus(limit(&world, 3)));
        world.give(world.report_of(ONE, Epoch(2), |usage| {
            spent(100)(usage);
            usage.closing = true;
        }));
        assert_eq!(used(&world), RESERVE.plus(nano(100)).plus(limit(&world, 3)));
    }

    /// H-86
    #[test]
    fn only_a_tick_that_does_not_fit_makes_a_transfer_insolvent() {
        let room = BUDGET.minus(RESERVE);
        let mut world = World::active();
        world.give(world.report(spent(room.nano() - TICK.nano() + 1)));
        assert_eq!(world.status(ONE), Status::Active, "it did not say so");
        let mut fits = World::active();
        let (_, reply) = fits.make(fits.report(|usage| {
            spent(room.nano() - TICK.nano())(usage);
            usage.exhausted = true;
        }));
        assert_eq!(told(&reply), (1, room, UsageCommand::Continue), "a call was refused; a tick fits");
        let (facts, reply) = world.make(world.report(|usage| usage.exhausted = true));
        assert_eq!((facts.len(), told(&reply).2), (2, UsageCommand::Insolvent));
        assert_eq!(world.of(ONE).grace_until, Some(world.now.plus_ms(MINUTE)));
        let (facts, reply) = world.make(world.report(|usage| usage.exhausted = true));
        assert_eq!((facts.len(), told(&reply).2), (1, UsageCommand::Insolvent), "one event per entry");
    }

    #[test]
    fn while_an_older_epoch_may_give_money_back_it_waits_five_minutes_at_most() {
        let mut world = waiting();
        let again = |world: &mut World| told(&world.give(world.report(|usage| usage.exhausted = true))).2;
        world = world.later(5 * MINUTE - 1);
        assert_eq!((again(&mut world), world.status(ONE)), (UsageCommand::Wait, Status::Active));
        world = world.later(1);
        assert_eq!((again(&mut world), world.status(ONE)), (UsageCommand::Insolvent, Status::Insolvent));
    }

    #[test]
    fn a_repeated_report_is_answered_the_same_while_it_waits() {
        let mut world = after_a_crash();
        let rest = BUDGET.minus(RESERVE).minus(limit(&world, 2));
        let report = world.report(|usage| {
            spent(rest.nano())(usage);
            usage.exhausted = true;
        });
        let first = world.give(report.clone());
        assert_eq!(world.make(report), (Vec::new(), first));
    }

    #[test]
    fn a_raise_and_money_that_came_back_end_the_wait() {
        let mut raised = waiting();
        raised.give(Command::RaiseBudget { transfer: ONE, allocated: BUDGET.plus(BUDGET) });
        let (_, reply) = raised.make(raised.report(|usage| usage.exhausted = true));
        assert_eq!(told(&reply).2, UsageCommand::Continue);

        let mut world = waiting();
        world.give(world.report_of(ONE, Epoch(2), |usage| usage.closing = true));
        let (_, reply) = world.make(world.report(|usage| usage.exhausted = true));
        assert_eq!((told(&reply).2, world.of(ONE).waiting_since), (UsageCommand::Continue, None));
    }

    #[test]
    fn each_wait_is_counted_on_its_own() {
        let mut world = waiting();
        world.give(world.report_of(ONE, Epoch(2), |usage| usage.closing = true));
        world.give(world.report(|usage| usage.exhausted = true));
        // Ten minutes later another incarnation has died, and its successor runs dry.
        world = world.later(10 * MINUTE);
        world.give(world.reclaim(incarnation(3)));
        let granted = limit(&world, 4);
        let (_, reply) = world.make(world.report(|usage| {
            spent(granted.nano())(usage);
            usage.exhausted = true;
        }));
        assert_eq!(told(&reply).2, UsageCommand::Wait);
    }

    /// H-75
    #[test]
    fn what_is_charged_never_passes_what_is_allocated() {
        let mut world = World::active();
        for _ in 0..20 {
            let limit = limit(&world, 2);
            world.give(world.report(spent(limit.nano())));
            let (charged, allocated) = (world.of(ONE).charged(&world.policy), BUDGET);
            assert!(charged <= allocated, "{charged} of {allocated}");
        }
        assert_eq!(limit(&world, 2), BUDGET.minus(RESERVE));
    }
}
