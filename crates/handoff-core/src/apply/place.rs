//! Facts about a transfer's places on nodes.

use handoff_protocol::node::ObservedState;
use handoff_protocol::{NodeId, Status, Tier, Timestamp, TransferId};

use crate::state::{Generation, State};
use crate::transfer::{Assignment, Budget};

impl State {
    pub(super) fn provisioned(&mut self, transfer: TransferId, tier: &Tier, budget: Budget, node: NodeId) {
        let found = self.change(transfer);
        found.status = Status::Provisioned;
        found.tier = Some(tier.clone());
        found.budget = Some(budget);
        let generation = Generation::FIRST;
        found.assignment = Some(Assignment { node, generation, observed: None, last_alive: None });
    }

    /// The old place stays listed as gone until its node says that nothing of it is left, whatever that node
    /// said before.
    pub(super) fn reassigned(&mut self, transfer: TransferId, node: NodeId, generation: Generation) {
        let found = self.change(transfer);
        if let Some(former) = found.assignment {
            found.former_assignments.insert(former.generation, former.node);
        }
        found.assignment = Some(Assignment { node, generation, observed: None, last_alive: None });
        found.receipt = false;
    }

    pub(super) fn observed(
        &mut self,
        transfer: TransferId,
        generation: Generation,
        state: ObservedState,
        last_alive: Option<Timestamp>,
    ) {
        let found = self.change(transfer);
        match &mut found.assignment {
            Some(present) if present.generation == generation => {
                present.observed = Some(state);
                present.last_alive = present.last_alive.max(last_alive);
            }
            Some(_) | None => {
                if state == ObservedState::Absent {
                    found.former_assignments.remove(&generation);
                }
            }
        }
    }
}
