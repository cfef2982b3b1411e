//! How facts change the state. Nothing else does.

use std::collections::BTreeMap;

use handoff_protocol::node::ObservedState;
use handoff_protocol::{Digest, IncarnationId, NanoUsd, NodeId, Status, Timestamp, Totals, TransferId};

use crate::fact::{Fact, Record};
use crate::state::{Accepted, Epoch, Generation, Holder, LastReturn, Session, Standing, State};
use crate::transfer::{
    Assignment, Authorization, Budget, Closing, EndReason, Ended, EpochAccount, FinalMark, Outcome, Push,
    Transfer,
};

/// Which incarnation took a session, as [`Fact::Claimed`] and [`Fact::Reclaimed`] say it.
struct Taken {
    transfer: TransferId,
    epoch: Epoch,
    incarnation: IncarnationId,
    node: NodeId,
    generation: Generation,
    lease_until: Timestamp,
    limit: NanoUsd,
}

impl State {
    /// Makes a fact true. Facts come from [`crate::decide`] on this very state, or from its own history in
    /// order, so everything they name is there.
    pub fn apply(&mut self, fact: &Fact) {
        match fact {
            Fact::SessionOpened { .. }
            | Fact::Returned { .. }
            | Fact::SourceAbandoned { .. }
            | Fact::HolderGone { .. } => self.apply_to_session(fact),
            Fact::Staged { .. } | Fact::Refreshed { .. } | Fact::FinalRequested { .. } => {
                self.apply_snapshot(fact)
            }
            Fact::TokenSpent { transfer, token, .. } => {
                self.change(*transfer).spent_tokens.insert(*token);
            }
            Fact::Provisioned { .. }
            | Fact::PushRequested { .. }
            | Fact::PushFailed { .. }
            | Fact::Pushed { .. }
            | Fact::Reassigned { .. }
            | Fact::Observed { .. } => self.apply_to_assignment(fact),
            Fact::Authorized { transfer, authorization, deadline } => {
                let open = Authorization { id: *authorization, deadline: *deadline, outcome: Outcome::Open };
                self.change(*transfer).authorization = Some(open);
            }
            Fact::AuthorizationEnded { transfer, outcome, .. } => {
                self.end_authorization(*transfer, outcome.clone())
            }
            Fact::Claimed { .. }
            | Fact::Reclaimed { .. }
            | Fact::Renewed { .. }
            | Fact::Checkpointed { .. }
            | Fact::Rested { .. }
            | Fact::Woken { .. } => self.apply_to_holder(fact),
            Fact::BudgetCarved { .. }
            | Fact::BudgetRestored { .. }
            | Fact::UsageReported { .. }
            | Fact::SpendRecorded { .. }
            | Fact::WaitStarted { .. }
            | Fact::BecameInsolvent { .. }
            | Fact::BudgetRaised { .. }
            | Fact::WrittenOff { .. } => self.apply_to_money(fact),
            Fact::Terminated { transfer, reason, at } => {
                self.end(*transfer, Status::Terminated, reason.clone(), *at);
            }
            Fact::Expired { transfer, at } => {
                self.end(*transfer, Status::Expired, EndReason::TimeToLive, *at)
            }
            Fact::LedgerClosed { transfer } => self.change(*transfer).ledger_closed = true,
        }
        if let (Some(transfer), Record::Event(_)) = (fact.transfer(), fact.record()) {
            self.found(transfer).event_seq += 1;
        }
    }

    fn apply_to_session(&mut self, fact: &Fact) {
        match fact {
            Fact::SessionOpened { session, project, principal, labels } => {
                self.session = Some(Session {
                    id: *session,
                    project: *project,
                    labels: labels.clone(),
                    epoch: Epoch::FIRST,
                    holder: Holder::Source { principal: principal.clone() },
                    pending: None,
                    live: None,
                    lease_until: None,
                    holder_gone: false,
                    last_snapshot: None,
                    last_return: None,
                    version: 1,
                });
            }
            Fact::Returned { nonce, epoch, principal } => {
                let session = self.touch();
                session.epoch = *epoch;
                session.holder = Holder::Source { principal: principal.clone() };
                session.last_return = Some(LastReturn { nonce: *nonce, epoch: *epoch });
            }
            Fact::SourceAbandoned { epoch } => {
                let session = self.touch();
                session.epoch = *epoch;
                session.holder = Holder::None;
            }
            Fact::HolderGone { at } => {
                let session = self.touch();
                session.holder_gone = true;
                session.lease_until = session.lease_until.map(|until| until.min(*at));
            }
            other => unreachable!("{other:?} is not about the session"),
        }
    }

    fn apply_snapshot(&mut self, fact: &Fact) {
        match fact {
            Fact::Staged { transfer, snapshot, mark, by_holder, at, expires_at } => {
                let session = self.touch();
                session.pending = Some(*transfer);
                let staged = Transfer::staged(*transfer, session.id, *snapshot, *mark, *at, *expires_at);
                self.transfers.insert(*transfer, staged);
                self.accept(*snapshot, *mark, *by_holder);
            }
            Fact::Refreshed { transfer, snapshot, mark, by_holder } => {
                let pending = self.change(*transfer);
                pending.snapshot = *snapshot;
                pending.mark = *mark;
                pending.push = None;
                pending.receipt = false;
                self.accept(*snapshot, *mark, *by_holder);
            }
            Fact::FinalRequested { transfer } => self.change(*transfer).final_requested = true,
            other => unreachable!("{other:?} is not about a snapshot"),
        }
    }

    /// A holder's snapshot becomes the last accepted one: its final always, a source's draft as a draft. A live
    /// holder's draft is not: its checkpoints are.
    fn accept(&mut self, digest: Digest, mark: Option<FinalMark>, by_holder: bool) {
        if !by_holder {
            return;
        }
        let session = self.touch();
        let standing = match (mark, &session.holder) {
            (Some(_), _) => Standing::Final,
            (None, Holder::Source { .. } | Holder::None) => Standing::Draft,
            (None, Holder::Incarnation { .. }) => return,
        };
        session.last_snapshot = Some(Accepted { digest, epoch: session.epoch, standing });
    }

    fn apply_to_assignment(&mut self, fact: &Fact) {
        match fact {
            Fact::Provisioned { transfer, tier, allocated, reserve, carved, node } => {
                let found = self.change(*transfer);
                found.status = Status::Provisioned;
                found.tier = Some(tier.clone());
                let recorded = NanoUsd::ZERO;
                found.budget =
                    Some(Budget { allocated: *allocated, reserve: *reserve, recorded, carved: *carved });
                let generation = Generation::FIRST;
                found.assignment =
                    Some(Assignment { node: *node, generation, observed: None, last_alive: None });
            }
            Fact::PushRequested { transfer, digest } => {
                self.change(*transfer).push = Some(Push::Requested { digest: *digest });
            }
            Fact::PushFailed { transfer, missing } => {
                self.change(*transfer).push = Some(Push::Failed { missing: missing.clone() });
            }
            Fact::Pushed { transfer, .. } => {
                let found = self.change(*transfer);
                found.status = Status::Pushed;
                found.receipt = true;
            }
            Fact::Reassigned { transfer, node, generation } => {
                let found = self.change(*transfer);
                if let Some(former) = found.assignment
                    && former.observed != Some(ObservedState::Absent)
                {
                    found.former_assignments.insert(former.generation, former.node);
                }
                let (node, generation) = (*node, *generation);
                found.assignment = Some(Assignment { node, generation, observed: None, last_alive: None });
                found.receipt = false;
            }
            Fact::Observed { transfer, generation, state, last_alive } => {
                let found = self.change(*transfer);
                match &mut found.assignment {
                    Some(present) if present.generation == *generation => {
                        present.observed = Some(*state);
                        present.last_alive = present.last_alive.max(*last_alive);
                    }
                    Some(_) | None => {
                        if *state == ObservedState::Absent {
                            found.former_assignments.remove(generation);
                        }
                    }
                }
            }
            other => unreachable!("{other:?} is not about an assignment"),
        }
    }

    fn apply_to_holder(&mut self, fact: &Fact) {
        match *fact {
            Fact::Claimed { transfer, epoch, incarnation, node, generation, lease_until, limit } => {
                self.take(Taken { transfer, epoch, incarnation, node, generation, lease_until, limit });
                let found = self.found(transfer);
                found.status = Status::Active;
                let digest = found.snapshot;
                self.end_authorization(transfer, Outcome::Claimed);
                let session = self.touch();
                session.pending = None;
                session.live = Some(transfer);
                session.last_snapshot = Some(Accepted { digest, epoch, standing: Standing::Checkpoint });
            }
            Fact::Reclaimed { transfer, epoch, incarnation, node, generation, lease_until, limit } => {
                self.take(Taken { transfer, epoch, incarnation, node, generation, lease_until, limit });
            }
            Fact::Renewed { lease_until, .. } => self.touch().lease_until = Some(lease_until),
            Fact::Checkpointed { epoch, digest, transfer } => {
                let accepted = Accepted { digest, epoch, standing: Standing::Checkpoint };
                self.touch().last_snapshot = Some(accepted);
                self.change(transfer);
            }
            Fact::Rested { transfer, at } => {
                self.change(transfer).resting = true;
                let session = self.touch();
                session.holder_gone = true;
                session.lease_until = Some(at);
            }
            Fact::Woken { transfer } => self.change(transfer).resting = false,
            ref other => unreachable!("{other:?} is not about the holder"),
        }
    }

    fn take(&mut self, taken: Taken) {
        let Taken { transfer, epoch, incarnation, node, generation, lease_until, limit } = taken;
        let totals = Totals::default();
        let account = EpochAccount { node, incarnation, limit, totals, seq: 0, body: None, closed: None };
        let found = self.change(transfer);
        found.epochs.insert(epoch, account);
        // What this epoch may wait for is another one's report.
        found.waiting_since = None;
        let session = self.touch();
        session.epoch = epoch;
        session.holder = Holder::Incarnation { incarnation, transfer, node, generation };
        session.lease_until = Some(lease_until);
        session.holder_gone = false;
    }

    fn apply_to_money(&mut self, fact: &Fact) {
        match fact {
            Fact::BudgetCarved { transfer, allocated } | Fact::BudgetRestored { transfer, allocated } => {
                self.budget(*transfer).allocated = *allocated;
            }
            Fact::UsageReported { transfer, epoch, seq, totals, closing, body, limit } => {
                let found = self.change(*transfer);
                let account = found.epochs.get_mut(epoch).expect("a report is about a known epoch");
                let granted = account.limit < *limit;
                account.totals = *totals;
                account.seq = *seq;
                account.body = Some(*body);
                account.limit = *limit;
                account.closed = account.closed.or(closing.then_some(Closing::Reported));
                // A higher limit is what a meter waits for.
                found.waiting_since = found.waiting_since.filter(|_| !granted);
            }
            Fact::SpendRecorded { transfer, cost, .. } => {
                let budget = self.budget(*transfer);
                budget.recorded = budget.recorded.plus(*cost);
            }
            Fact::WaitStarted { transfer, at } => self.change(*transfer).waiting_since = Some(*at),
            Fact::BecameInsolvent { transfer, grace_until } => {
                let found = self.change(*transfer);
                found.status = Status::Insolvent;
                found.grace_until = Some(*grace_until);
                found.waiting_since = None;
            }
            Fact::BudgetRaised { transfer, allocated, active_again } => {
                self.budget(*transfer).allocated = *allocated;
                let found = self.found(*transfer);
                found.waiting_since = None;
                if *active_again {
                    found.status = Status::Active;
                    found.grace_until = None;
                }
            }
            Fact::WrittenOff { transfer, epoch } => {
                let account = self.change(*transfer).epochs.get_mut(epoch);
                account.expect("a known epoch is written off").closed = Some(Closing::WrittenOff);
            }
            other => unreachable!("{other:?} is not about money"),
        }
    }

    fn end(&mut self, transfer: TransferId, status: Status, reason: EndReason, at: Timestamp) {
        let found = self.change(transfer);
        found.status = status;
        found.ended = Some(Ended { reason, at });
        found.grace_until = None;
        found.waiting_since = None;
        found.resting = false;
        if found.open_authorization().is_some() {
            self.end_authorization(transfer, Outcome::Withdrawn);
        }
        let session = self.touch();
        session.pending = session.pending.filter(|pending| *pending != transfer);
        session.live = session.live.filter(|live| *live != transfer);
    }

    fn end_authorization(&mut self, transfer: TransferId, outcome: Outcome) {
        if let Some(authorization) = &mut self.change(transfer).authorization {
            authorization.outcome = outcome;
        }
    }

    fn budget(&mut self, transfer: TransferId) -> &mut Budget {
        self.change(transfer).budget.as_mut().expect("a provisioned transfer has a budget")
    }

    /// The transfer, with its version raised.
    fn change(&mut self, transfer: TransferId) -> &mut Transfer {
        let found = self.found(transfer);
        found.version += 1;
        found
    }

    fn found(&mut self, transfer: TransferId) -> &mut Transfer {
        self.transfers.get_mut(&transfer).expect("a fact names a transfer of its state")
    }

    /// The session, with its version raised.
    fn touch(&mut self) -> &mut Session {
        let session = self.session.as_mut().expect("a fact belongs to a session");
        session.version += 1;
        session
    }
}

/// The state that a history of facts leads to.
pub fn replay<'f>(facts: impl IntoIterator<Item = &'f Fact>) -> State {
    let mut state = State { transfers: BTreeMap::new(), ..State::default() };
    facts.into_iter().for_each(|fact| state.apply(fact));
    state
}
