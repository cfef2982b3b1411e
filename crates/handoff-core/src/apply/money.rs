//! Facts about a transfer's budget and the books of its epochs.

use handoff_protocol::{Digest, NanoUsd, Status, Timestamp, Totals, TransferId};

use crate::state::{Epoch, State};
use crate::transfer::{Budget, Closing};

impl State {
    pub(super) fn allocate(&mut self, transfer: TransferId, allocated: NanoUsd) {
        self.budget(transfer).allocated = allocated;
    }

    pub(super) fn usage_reported(
        &mut self,
        transfer: TransferId,
        epoch: Epoch,
        (seq, body, closing): (u64, Digest, bool),
        totals: &Totals,
        limit: NanoUsd,
    ) {
        let found = self.change(transfer);
        let account = found.epochs.get_mut(&epoch).expect("a report is about a known epoch");
        let granted = account.limit < limit;
        account.totals = *totals;
        account.seq = seq;
        account.body = Some(body);
        account.limit = limit;
        account.closed = account.closed.or(closing.then_some(Closing::Reported));
        // A higher limit is what a meter waits for.
        found.waiting_since = found.waiting_since.filter(|_| !granted);
    }

    pub(super) fn spend_recorded(&mut self, transfer: TransferId, cost: NanoUsd) {
        let budget = self.budget(transfer);
        budget.recorded = budget.recorded.plus(cost);
    }

    pub(super) fn insolvent(&mut self, transfer: TransferId, grace_until: Timestamp) {
        let found = self.change(transfer);
        found.status = Status::Insolvent;
        found.grace_until = Some(grace_until);
        found.waiting_since = None;
    }

    pub(super) fn budget_raised(&mut self, transfer: TransferId, allocated: NanoUsd, active_again: bool) {
        self.allocate(transfer, allocated);
        let found = self.found(transfer);
        found.waiting_since = None;
        if active_again {
            found.status = Status::Active;
            found.grace_until = None;
        }
    }

    pub(super) fn written_off(&mut self, transfer: TransferId, epoch: Epoch) {
        let account = self.change(transfer).epochs.get_mut(&epoch);
        account.expect("a known epoch is written off").closed = Some(Closing::WrittenOff);
    }

    fn budget(&mut self, transfer: TransferId) -> &mut Budget {
        self.change(transfer).budget.as_mut().expect("a provisioned transfer has a budget")
    }
}
