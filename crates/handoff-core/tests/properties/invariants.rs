//! What must hold between two states, said independently of how the machine decides.

use std::collections::BTreeMap;

use handoff_core::fact::Record;
use handoff_core::transfer::Ground;
use handoff_core::{Command, Epoch, Fact, Generation, Holder, Policy, State, desired};
use handoff_protocol::node::{ObservedState, Want};
use handoff_protocol::{NanoUsd, NodeId, Status, Timestamp, TransferId};

/// Where money came from.
#[derive(Default)]
pub(crate) struct Money {
    /// New money: provisioned without carving, or raised.
    injected: NanoUsd,
    /// The highest limit that each epoch ever had.
    limits: BTreeMap<(TransferId, Epoch), NanoUsd>,
}

impl Money {
    pub(crate) fn note(&mut self, before: &State, facts: &[Fact]) {
        for fact in facts {
            if let Fact::Provisioned { budget, .. } = fact
                && budget.carved.is_none()
            {
                self.injected = self.injected.plus(budget.allocated);
            }
            if let Fact::BudgetRaised { transfer, allocated, .. } = fact {
                let budget = before.transfers[transfer].budget.expect("only a budget is raised");
                self.injected = self.injected.plus(allocated.minus(budget.allocated));
            }
        }
    }

    /// H-75, H-76, H-82: nothing is made or lost, limits never fall, and what is charged stays within what is
    /// allocated, unless somebody recorded a fact beyond it.
    pub(crate) fn check(&mut self, policy: &Policy, before: &State, state: &State) {
        let budgets = state.transfers.values().filter_map(|found| found.budget);
        let allocated: NanoUsd = budgets.map(|budget| budget.allocated).sum();
        assert_eq!(allocated, self.injected, "money is conserved");
        for found in state.transfers.values() {
            let Some(budget) = found.budget else { continue };
            let charged = found.charged(policy);
            assert!(charged <= budget.allocated.plus(budget.recorded), "{charged} of {budget:?}");
            assert!(found.spent() <= charged, "what is spent is charged");
            let wound: NanoUsd = found.epochs.values().map(|account| account.totals.wind_down_usd).sum();
            assert!(wound <= budget.reserve, "{wound} of {budget:?} for all nodes together");
            for (epoch, account) in &found.epochs {
                let highest = self.limits.entry((found.id, *epoch)).or_insert(account.limit);
                assert!(account.limit >= *highest, "a limit never falls");
                *highest = account.limit;
                let earlier = before.transfers.get(&found.id).and_then(|found| found.epochs.get(epoch));
                let covers = earlier.is_none_or(|earlier| account.totals.covers(&earlier.totals));
                assert!(covers, "totals never fall");
            }
        }
    }
}

/// H-6: at most one pending and one live transfer, and the session knows which.
pub(crate) fn arbitration(state: &State) {
    let Some(session) = &state.session else { return };
    let with = |wanted: fn(Status) -> bool| -> Vec<TransferId> {
        state.transfers.values().filter(|found| wanted(found.status)).map(|found| found.id).collect()
    };
    assert_eq!(with(Status::is_pending), Vec::from_iter(session.pending));
    assert_eq!(with(Status::is_live), Vec::from_iter(session.live));
    for found in state.transfers.values() {
        assert_eq!(found.grace_until.is_some(), found.status == Status::Insolvent);
        assert_eq!(found.ended.is_some(), found.status.is_terminal());
        assert!(!found.ledger_closed || (found.status.is_terminal() && found.all_epochs_closed()));
        let gone = found.assignment.is_some_and(|present| present.observed == Some(ObservedState::Absent));
        assert!(!gone || found.status.is_terminal(), "what goes on there will be built again");
        let open = found.open_authorization().is_some();
        assert!(!open || found.status == Status::Pushed, "only a pushed transfer is authorised");
        let pushed = found.status == Status::Pushed;
        assert!(!pushed || found.is_final(session.epoch), "a pushed transfer is final in the present epoch");
    }
}

/// H-4, H-5, H-8: statuses follow the grid, epochs and versions only rise, and what changed has a new version.
pub(crate) fn transitions(before: &State, state: &State, facts: &[Fact]) {
    let Some(session) = &state.session else { return };
    if let Some(earlier) = &before.session {
        let took = |fact: &&Fact| {
            matches!(
                fact,
                Fact::Claimed { .. }
                    | Fact::Reclaimed { .. }
                    | Fact::Returned { .. }
                    | Fact::SourceAbandoned { .. }
            )
        };
        let taken = facts.iter().filter(took).count() as u64;
        assert_eq!(session.epoch.0, earlier.epoch.0 + taken, "an epoch rises with who takes the session");
        assert!(session == earlier || session.version > earlier.version);
    }
    for found in state.transfers.values() {
        let Some(earlier) = before.transfers.get(&found.id) else { continue };
        assert!(found == earlier || found.version > earlier.version, "{found:?}");
        let allowed: &[Status] = match earlier.status {
            Status::Staged => &[Status::Provisioned, Status::Terminated, Status::Expired],
            Status::Provisioned => &[Status::Pushed, Status::Terminated, Status::Expired],
            Status::Pushed => &[Status::Active, Status::Terminated, Status::Expired],
            Status::Active => &[Status::Insolvent, Status::Terminated],
            Status::Insolvent => &[Status::Active, Status::Terminated],
            Status::Terminated | Status::Expired => &[],
        };
        let stays = found.status == earlier.status;
        assert!(stays || allowed.contains(&found.status), "{} → {}", earlier.status, found.status);
    }
}

/// H-8: a command that changes something raises the version of the transfer that it names, and a renewal does not.
pub(crate) fn versions(before: &State, state: &State, command: &Command, facts: &[Fact]) {
    let Some(named) = command.transfer() else { return };
    let Some(earlier) = before.transfers.get(&named) else { return };
    let changes = facts.iter().any(|fact| !matches!(fact, Fact::Renewed { .. }));
    assert_eq!(state.transfers[&named].version > earlier.version, changes, "{command:?}: {facts:?}");
}

/// H-54: whoever takes the session, the one before could not run any more.
pub(crate) fn holder_was_out(before: &State, facts: &[Fact], now: Timestamp) {
    let Some(session) = &before.session else { return };
    let lease_over = session.holder_gone || session.lease_until.is_none_or(|until| until <= now);
    for fact in facts {
        if let Fact::Claimed { transfer, .. } = fact {
            let mark = before.transfers[transfer].mark.expect("a claim needs a final");
            assert_eq!(mark.epoch, session.epoch, "a final of the present epoch");
            let stopped = mark.ground == Ground::Quiesced;
            let source = !matches!(session.holder, Holder::Incarnation { .. });
            assert!(stopped || lease_over || source, "the former holder may run");
        }
        let again = matches!(fact, Fact::Reclaimed { .. });
        assert!(!again || lease_over, "the former incarnation may run");
    }
}

/// The lists of all nodes together never want a session to run in two places.
pub(crate) fn one_place_runs(policy: &Policy, state: &State, now: Timestamp) {
    let Some(session) = &state.session else { return };
    let nodes: Vec<NodeId> = state.rooms.keys().copied().collect();
    let listed = nodes.iter().flat_map(|node| {
        let of_node = |found| desired::entries(policy, session, found, *node, now);
        state.transfers.values().flat_map(of_node)
    });
    let listed: Vec<_> = listed.collect();
    let running = listed.iter().filter(|entry| matches!(entry.want, Want::Running | Want::Frozen)).count();
    assert!(running <= 1, "{listed:#?}");
    let offered = listed.iter().filter(|entry| entry.authorization.is_some()).count();
    assert!(offered <= 1, "one destination may claim: {listed:#?}");
}

/// Places on nodes that something may stand at.
#[derive(Default)]
pub(crate) struct Places {
    standing: BTreeMap<(TransferId, Generation), NodeId>,
}

impl Places {
    pub(crate) fn note(&mut self, before: &State, command: &Command, facts: &[Fact]) {
        for fact in facts {
            if let Fact::Provisioned { transfer, node, .. } = fact {
                self.standing.insert((*transfer, Generation::FIRST), *node);
            }
            if let Fact::Reassigned { transfer, node, generation } = fact {
                self.standing.insert((*transfer, *generation), *node);
            }
        }
        // What a node says of a place before it was told to remove it holds until it builds there again.
        if let Command::Observe {
            transfer,
            generation,
            state: ObservedState::Absent,
            incarnation: None,
            ..
        } = command
        {
            let found = &before.transfers[transfer];
            if found.status.is_terminal() || found.generation() != Some(*generation) {
                self.standing.remove(&(*transfer, *generation));
            }
        }
    }

    /// H-50: whatever may stand on a node is listed for it, so that in the end it is told to remove it.
    pub(crate) fn check(&self, policy: &Policy, state: &State, now: Timestamp) {
        let Some(session) = &state.session else { return };
        for ((transfer, generation), node) in &self.standing {
            let found = &state.transfers[transfer];
            let listed = desired::entries(policy, session, found, *node, now);
            assert!(listed.iter().any(|entry| entry.generation == generation.0), "{node} forgets {found:?}");
            assert!(!found.ledger_closed, "closed with something on {node}: {found:?}");
        }
    }
}

/// H-11: a transfer's usage events are numbered from one without gaps.
pub(crate) fn events_are_numbered(state: &State, facts: &[Fact]) {
    for found in state.transfers.values() {
        let of_transfer = facts.iter().filter(|fact| fact.transfer() == Some(found.id));
        let events = of_transfer.filter(|fact| matches!(fact.record(), Record::Event(_))).count() as u64;
        assert_eq!(found.event_seq, events);
    }
}
