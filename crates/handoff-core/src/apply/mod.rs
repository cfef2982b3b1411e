//! How facts change the state. Nothing else does.

mod money;
mod place;
mod session;
mod snapshot;

use std::collections::BTreeMap;

use handoff_protocol::TransferId;

use crate::fact::{Fact, Record};
use crate::state::{Session, State};
use crate::transfer::Transfer;

impl State {
    /// Makes a fact true. Facts come from [`crate::decide`] on this very state, or from its own history in
    /// order, so everything they name is there.
    pub fn apply(&mut self, fact: &Fact) {
        self.fold(fact);
        if let (Some(transfer), Record::Event(_)) = (fact.transfer(), fact.record()) {
            self.found(transfer).event_seq += 1;
        }
    }

    fn fold(&mut self, fact: &Fact) {
        match fact {
            Fact::SessionOpened { session, project, principal, labels } => {
                self.session_opened(*session, *project, principal, labels);
            }
            Fact::Staged { transfer, snapshot, mark, by_holder, at, expires_at } => {
                self.staged(*transfer, (*snapshot, *mark, *by_holder), *at, *expires_at);
            }
            Fact::Refreshed { transfer, snapshot, mark, by_holder } => {
                self.refreshed(*transfer, (*snapshot, *mark, *by_holder));
            }
            Fact::FinalRequested { transfer } => self.change(*transfer).final_requested = true,
            Fact::TokenSpent { transfer, token, .. } => self.token_spent(*transfer, *token),
            Fact::Provisioned { transfer, tier, budget, node } => {
                self.provisioned(*transfer, tier, *budget, *node);
            }
            Fact::BudgetCarved { transfer, allocated } => self.allocate(*transfer, *allocated),
            Fact::BudgetRestored { transfer, allocated } => self.allocate(*transfer, *allocated),
            Fact::PushRequested { transfer, digest } => self.push_requested(*transfer, *digest),
            Fact::PushFailed { transfer, missing } => self.push_failed(*transfer, missing),
            Fact::Pushed { transfer, .. } => self.pushed(*transfer),
            Fact::Authorized { transfer, authorization, deadline } => {
                self.authorized(*transfer, *authorization, *deadline);
            }
            Fact::AuthorizationEnded { transfer, outcome, .. } => self.end_authorization(*transfer, outcome),
            Fact::Claimed { transfer, taken } => self.claimed(*transfer, taken),
            Fact::Reclaimed { transfer, taken } => self.take(*transfer, taken),
            Fact::Renewed { lease_until, .. } => self.touch().lease_until = Some(*lease_until),
            Fact::Checkpointed { transfer, epoch, digest } => self.checkpointed(*transfer, *epoch, *digest),
            Fact::Rested { transfer, at } => self.rested(*transfer, *at),
            Fact::Woken { transfer, at } => self.woken(*transfer, *at),
            Fact::UsageReported { transfer, epoch, seq, totals, closing, body, limit } => {
                self.usage_reported(*transfer, *epoch, (*seq, *body, *closing), totals, *limit);
            }
            Fact::SpendRecorded { transfer, cost, .. } => self.spend_recorded(*transfer, *cost),
            Fact::WaitStarted { transfer, at } => self.change(*transfer).waiting_since = Some(*at),
            Fact::BecameInsolvent { transfer, grace_until } => self.insolvent(*transfer, *grace_until),
            Fact::BudgetRaised { transfer, allocated, active_again } => {
                self.budget_raised(*transfer, *allocated, *active_again);
            }
            Fact::Reassigned { transfer, node, generation } => self.reassigned(*transfer, *node, *generation),
            Fact::Terminated { transfer, reason, at } => self.terminated(*transfer, reason, *at),
            Fact::Expired { transfer, at } => self.expired(*transfer, *at),
            Fact::Returned { nonce, epoch, principal } => self.returned(*nonce, *epoch, principal),
            Fact::SourceAbandoned { epoch } => self.source_abandoned(*epoch),
            Fact::Observed { transfer, generation, state, last_alive } => {
                self.observed(*transfer, *generation, *state, *last_alive);
            }
            Fact::HolderGone { transfer, at } => self.holder_left(*transfer, *at),
            Fact::WrittenOff { transfer, epoch } => self.written_off(*transfer, *epoch),
            Fact::LedgerClosed { transfer } => self.change(*transfer).ledger_closed = true,
        }
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
