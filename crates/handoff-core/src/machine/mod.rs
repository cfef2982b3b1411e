//! The machine: one file per command, each answering for every status.

mod abandon_source;
mod activate;
mod authorization;
mod checkpoint;
mod claim;
mod end;
mod observe;
mod provision;
mod push;
mod raise_budget;
mod reassign;
mod receipt;
mod reclaim;
mod record_spend;
mod refresh;
mod renew;
mod report_usage;
mod rest;
mod return_source;
mod stage;
mod wake;
#[cfg(test)]
pub(crate) mod world;
mod write_off;

use handoff_protocol::{Digest, NodeId, Timestamp, TransferId};

use crate::command::Command;
use crate::fact::Fact;
use crate::grid::CommandKind;
use crate::policy::{Policy, Rule};
use crate::refusal::Refusal;
use crate::reply::Reply;
use crate::state::{Epoch, Generation, Session, State};
use crate::transfer::Transfer;

/// What an accepted command makes true, and its answer. No facts: it was known already.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// In order; each is decided on the state that the ones before it lead to.
    pub facts: Vec<Fact>,
    /// The answer.
    pub reply: Reply,
}

impl Decision {
    fn new(facts: impl Into<Vec<Fact>>, reply: Reply) -> Self {
        Self { facts: facts.into(), reply }
    }

    fn done(facts: impl Into<Vec<Fact>>) -> Self {
        Self::new(facts, Reply::Done)
    }
}

/// Decides a command on the state of its session at this time.
///
/// # Errors
/// A [`Refusal`], which changes nothing.
pub fn decide(
    policy: &Policy,
    state: &State,
    command: &Command,
    now: Timestamp,
) -> Result<Decision, Refusal> {
    let case = Case { policy, state, now };
    match command {
        Command::Stage(stage) => stage::decide(&case, stage),
        Command::Refresh(refresh) => refresh::decide(&case, refresh),
        Command::Provision(provision) => provision::decide(&case, provision),
        Command::Push { transfer, checksum } => push::decide(&case, *transfer, *checksum),
        Command::Receipt { transfer, node, generation, digest, missing } => {
            receipt::decide(&case, *transfer, (*node, *generation), *digest, missing)
        }
        Command::Activate { transfer, token } => activate::decide(&case, *transfer, token),
        Command::Decline { transfer, node, generation, authorization, reason } => {
            authorization::decline(&case, *transfer, (*node, *generation), *authorization, reason)
        }
        Command::Withdraw { transfer, authorization } => {
            authorization::withdraw(&case, *transfer, *authorization)
        }
        Command::Claim(claim) => claim::decide(&case, claim),
        Command::Reclaim(reclaim) => reclaim::decide(&case, reclaim),
        Command::Renew { transfer, node, epoch, generation, incarnation } => {
            let holder = Holding { node: *node, epoch: *epoch, incarnation: Some(*incarnation) };
            renew::decide(&case, *transfer, holder, *generation)
        }
        Command::Checkpoint { transfer, node, epoch, incarnation, digest, follows } => {
            let holder = Holding { node: *node, epoch: *epoch, incarnation: Some(*incarnation) };
            checkpoint::decide(&case, *transfer, holder, (*digest, *follows))
        }
        Command::Rest { transfer, node, epoch } => {
            rest::decide(&case, *transfer, Holding { node: *node, epoch: *epoch, incarnation: None })
        }
        Command::Wake { session } => wake::decide(&case, *session),
        Command::ReportUsage { transfer, node, usage, body } => {
            report_usage::decide(&case, *transfer, *node, usage, *body)
        }
        Command::RecordSpend { transfer, cost, detail } => {
            record_spend::decide(&case, *transfer, *cost, detail)
        }
        Command::RaiseBudget { transfer, allocated } => raise_budget::decide(&case, *transfer, *allocated),
        Command::Reassign { transfer, serving_since } => reassign::decide(&case, *transfer, *serving_since),
        Command::Terminate { transfer, reason } => end::terminate(&case, *transfer, reason),
        Command::Expire { transfer } => end::expire(&case, *transfer),
        Command::Return { session, principal, nonce, frozen_epoch } => {
            return_source::decide(&case, *session, principal, *nonce, *frozen_epoch)
        }
        Command::AbandonSource { session } => abandon_source::decide(&case, *session),
        Command::Observe { transfer, node, generation, state, last_alive, incarnation } => {
            let seen = observe::Seen { state: *state, last_alive: *last_alive, incarnation: *incarnation };
            observe::decide(&case, *transfer, (*node, *generation), seen)
        }
        Command::WriteOff { transfer, epoch } => write_off::decide(&case, *transfer, *epoch),
    }
}

/// What a command is decided on.
struct Case<'a> {
    policy: &'a Policy,
    state: &'a State,
    now: Timestamp,
}

/// Who says that it holds the session.
#[derive(Clone, Copy)]
struct Holding {
    node: NodeId,
    epoch: Epoch,
    incarnation: Option<handoff_protocol::IncarnationId>,
}

impl<'a> Case<'a> {
    fn keeps(&self, rule: Rule) -> bool {
        self.policy.rules.keep(rule)
    }

    /// The transfer and its session.
    fn transfer(&self, transfer: TransferId) -> Result<(&'a Session, &'a Transfer), Refusal> {
        let found = self.state.transfers.get(&transfer).ok_or(Refusal::NoTransfer { transfer })?;
        let session = self.state.session.as_ref().ok_or(Refusal::NoTransfer { transfer })?;
        Ok((session, found))
    }

    /// The transfer and its session, if the grid allows the command from the transfer's status.
    fn legal(&self, kind: CommandKind, transfer: TransferId) -> Result<(&'a Session, &'a Transfer), Refusal> {
        let (session, found) = self.transfer(transfer)?;
        if !kind.legal_from().contains(&found.status) {
            return Err(Refusal::WrongStatus { transfer, found: found.status, command: kind });
        }
        Ok((session, found))
    }

    fn session(&self, session: handoff_protocol::SessionId) -> Result<&'a Session, Refusal> {
        self.state.session.as_ref().filter(|found| found.id == session).ok_or(Refusal::NoSession { session })
    }

    /// The session's pending transfer.
    fn pending(&self, session: &Session) -> Option<&'a Transfer> {
        session.pending.and_then(|pending| self.state.transfers.get(&pending))
    }

    /// Whether a successor carries the final of the present epoch: its former holder has stopped for it.
    fn final_is_pending(&self, session: &Session) -> bool {
        self.keeps(Rule::FinalSeals)
            && self.pending(session).is_some_and(|pending| pending.is_final(session.epoch))
    }
}

/// Refuses an older (or newer) epoch than the session's.
fn check_epoch(case: &Case<'_>, session: &Session, named: Epoch) -> Result<(), Refusal> {
    if named != session.epoch && case.keeps(Rule::EpochCheck) {
        return Err(Refusal::StaleEpoch { present: session.epoch, named });
    }
    Ok(())
}

/// Refuses whoever is not the transfer's present assignment.
fn check_assignment(transfer: &Transfer, node: NodeId, generation: Generation) -> Result<(), Refusal> {
    let id = transfer.id;
    match transfer.assignment {
        Some(present) if present.generation != generation => Err(Refusal::StaleGeneration { transfer: id }),
        Some(present) if present.node == node => Ok(()),
        Some(_) | None => Err(Refusal::WrongNode { transfer: id, node }),
    }
}

/// Refuses whoever does not hold the session through this transfer, in this epoch.
fn check_holder(
    case: &Case<'_>,
    session: &Session,
    transfer: &Transfer,
    holding: Holding,
) -> Result<(), Refusal> {
    use crate::state::Holder;
    check_epoch(case, session, holding.epoch)?;
    let stale = Refusal::StaleIncarnation { transfer: transfer.id };
    match session.holder {
        Holder::Incarnation { transfer: held, incarnation, node, .. } => {
            let same = held == transfer.id && holding.incarnation.is_none_or(|named| named == incarnation);
            if !same && case.keeps(Rule::EpochCheck) {
                return Err(stale);
            }
            if node != holding.node && case.keeps(Rule::EpochCheck) {
                return Err(Refusal::WrongNode { transfer: transfer.id, node: holding.node });
            }
            Ok(())
        }
        Holder::Source { .. } | Holder::None => Err(stale),
    }
}

/// Refuses a draft, or a mark of an older epoch.
fn check_final(session: &Session, transfer: &Transfer) -> Result<(), Refusal> {
    if transfer.is_final(session.epoch) { Ok(()) } else { Err(Refusal::NotFinal { transfer: transfer.id }) }
}

/// Refuses another digest than the transfer's.
fn check_digest(transfer: &Transfer, named: Digest) -> Result<(), Refusal> {
    if transfer.snapshot == named {
        return Ok(());
    }
    Err(Refusal::ChecksumMismatch { transfer: transfer.id, present: transfer.snapshot, named })
}

/// Refuses a token that does not allow this, or that was spent.
fn check_token(
    case: &Case<'_>,
    transfer: &Transfer,
    token: &crate::token::TokenClaims,
    operation: handoff_protocol::request::Operation,
) -> Result<(), Refusal> {
    token.judge(transfer.id, operation, case.now)?;
    if transfer.spent_tokens.contains(&token.id) {
        return Err(Refusal::TokenUsed { transfer: transfer.id });
    }
    Ok(())
}

/// The fact that the ledger is closed, if it now is: over, every epoch closed, nothing left on a node.
fn ledger_closes(state: &State, transfer: TransferId) -> Option<Fact> {
    let found = state.transfers.get(&transfer)?;
    let closes =
        found.status.is_terminal() && !found.ledger_closed && found.all_epochs_closed() && found.is_absent();
    closes.then_some(Fact::LedgerClosed { transfer })
}

/// Adds to the facts whatever follows from them for this transfer's ledger.
fn with_ledger(case: &Case<'_>, mut facts: Vec<Fact>, transfer: TransferId) -> Vec<Fact> {
    let mut after = case.state.clone();
    facts.iter().for_each(|fact| after.apply(fact));
    facts.extend(ledger_closes(&after, transfer));
    facts
}
