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
    let command = if may_lease && runs_dry(case, &after, usage, limit) {
        exhausted(case, &after, transfer, epoch, &mut facts)
    } else {
        present_command(session, found, epoch)
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

/// The node says that a tick does not fit, and after this grant it still does not.
fn runs_dry(case: &Case<'_>, after: &State, usage: &Usage, limit: NanoUsd) -> bool {
    let live = after.session.as_ref().and_then(|session| session.live);
    let tick = live.map_or(NanoUsd::ZERO, |live| budget::tick_cost(case.policy, &after.transfers[&live]));
    let fits = usage.totals.spendable().plus(tick) <= limit;
    let says_so = usage.exhausted || !case.keeps(Rule::InsolventOnlyByTick);
    says_so && !fits
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
