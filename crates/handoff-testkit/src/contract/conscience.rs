//! What must be true of everything that is stored, whatever happened.

use std::collections::BTreeMap;

use handoff_core::Session;
use handoff_core::ledger::{Chain, Filter, Found};
use handoff_protocol::NanoUsd;
use handoff_protocol::request::{EventType, EventView};

use super::world::World;

impl World {
    /// Looks at everything that is stored; once more after opening it anew, if it outlives itself.
    pub async fn finish(self) {
        self.check().await;
        self.check_requests().await;
        if self.is_durable() {
            self.check_kept().await;
            self.check().await;
            self.check_requests().await;
        }
    }

    /// Opens the store anew, if it outlives itself, and finds what was in it before.
    pub async fn check_kept(&self) {
        let before = (self.sessions().await, self.transfers().await);
        self.reopen().await;
        let after = (self.sessions().await, self.transfers().await);
        assert_eq!(before, after, "opening the store anew changed what is in it");
    }

    /// Every session of the project.
    pub async fn sessions(&self) -> Vec<Session> {
        self.ledger().sessions(self.project, None, usize::MAX).await.expect("the store answers")
    }

    /// Every transfer of the project.
    pub async fn transfers(&self) -> Vec<Found> {
        let filter = Filter { limit: usize::MAX, ..Filter::default() };
        let listed = self.ledger().transfers(self.project, &filter).await.expect("the store answers");
        assert_eq!(listed.unreadable, 0, "every transfer reads");
        listed.found
    }

    /// All events of a transfer.
    pub async fn events(&self, transfer: handoff_protocol::TransferId) -> Vec<EventView> {
        self.ledger().events(self.project, transfer, 0, usize::MAX).await.expect("the store answers")
    }

    /// Checks every session, transfer, event and chain.
    pub async fn check(&self) {
        let found = self.transfers().await;
        for session in self.sessions().await {
            check_session(&session, &found);
        }
        for found in &found {
            let events = self.events(found.transfer.id).await;
            check_events(found, &events);
            check_money(self, found, &events);
            self.check_chain(found, events.len()).await;
        }
        let chain = self.ledger().verify_chain(self.project, None).await.expect("the store answers");
        assert!(matches!(chain, Chain::Whole { .. }), "the chain of the project's other rows: {chain:?}");
    }

    async fn check_chain(&self, found: &Found, events: usize) {
        let id = found.transfer.id;
        let ledger = self.ledger();
        let rows = ledger.audit(self.project, id, 0, usize::MAX).await.expect("the store answers");
        let chain = ledger.verify_chain(self.project, Some(id)).await.expect("the store answers");
        let Chain::Whole { links, .. } = chain else { panic!("the chain of {id}: {chain:?}") };
        let expected = u64::try_from(events + rows.len()).expect("few");
        assert_eq!(links, expected, "the chain of {id} is over its events and audit rows");
    }

    /// Repeats every accepted request: each gets its answer again and changes nothing.
    async fn check_requests(&self) {
        let accepted = self.accepted();
        let before = (self.sessions().await, self.transfers().await);
        let ledger = self.ledger();
        for (envelope, reply) in accepted {
            let what = format!("{:?}", envelope.request);
            let again = ledger.apply(vec![envelope]).await.pop().expect("one answer for one command");
            let again = again.unwrap_or_else(|error| panic!("{what} was answered once: {error}"));
            assert!(again.replayed, "{what} was applied twice");
            assert_eq!(again.reply, reply, "{what} was answered otherwise the first time");
        }
        assert_eq!(before, (self.sessions().await, self.transfers().await), "a repetition changed something");
    }
}

/// One pending and one live transfer at most, and the session names exactly those.
fn check_session(session: &Session, found: &[Found]) {
    let of = |fits: fn(&Found) -> bool| {
        let mut ids = found.iter().filter(|found| found.transfer.session == session.id && fits(found));
        let first = ids.next().map(|found| found.transfer.id);
        assert!(ids.next().is_none(), "session {} has two at once", session.id);
        first
    };
    assert_eq!(session.pending, of(|found| found.transfer.status.is_pending()), "{}", session.id);
    assert_eq!(session.live, of(|found| found.transfer.status.is_live()), "{}", session.id);
}

/// The sequence has no gap, times never fall, and the first event is the staging.
fn check_events(found: &Found, events: &[EventView]) {
    let id = found.transfer.id;
    let seqs: Vec<u64> = events.iter().map(|event| event.seq).collect();
    let expected: Vec<u64> = (1..=found.transfer.event_seq).collect();
    assert_eq!(seqs, expected, "events of {id}");
    assert!(events.windows(2).all(|pair| pair[0].at <= pair[1].at), "times of {id}: {events:?}");
    let first = events.first().map(|event| event.kind);
    assert_eq!(first, Some(EventType::SnapshotCreated), "the first event of {id}");
}

/// What was spent is the sum of the events: the last report of each epoch, and every increment.
fn check_money(world: &World, found: &Found, events: &[EventView]) {
    let id = found.transfer.id;
    let amount = |text: &String| text.parse::<NanoUsd>().expect("an amount");
    let mut epochs: BTreeMap<&str, NanoUsd> = BTreeMap::new();
    let mut increments = NanoUsd::ZERO;
    for event in events.iter().filter(|event| event.kind == EventType::UsageReported) {
        match (event.detail.get("epoch"), event.detail.get("spent_usd"), event.detail.get("cost_usd")) {
            (Some(epoch), Some(spent), None) => {
                epochs.insert(epoch, amount(spent));
            }
            (None, None, Some(cost)) => increments = increments.plus(amount(cost)),
            other => panic!("a usage event of {id} says {other:?}"),
        }
    }
    let sum = increments.plus(epochs.values().copied().sum());
    assert_eq!(sum, found.transfer.spent(), "the events of {id} add up to what it spent");
    let granted = found.transfer.charged(&world.policy).minus(increments);
    let allocated = found.transfer.budget.map_or(NanoUsd::ZERO, |budget| budget.allocated);
    assert!(granted <= allocated, "{id} was granted {granted} of {allocated}");
}
