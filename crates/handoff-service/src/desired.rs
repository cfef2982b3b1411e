//! The long poll of a node: the full list of what it should hold.
//!
//! Almost everything in the list changes with the ledger. One thing changes with time alone: a holder's lease
//! runs out, and a new incarnation may claim. So the poll also ends when a lease on the list does, and a node
//! whose last answer is older than such an end is answered at once.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use handoff_core::desired;
use handoff_core::ledger::{Filter, Found, Listed};
use handoff_protocol::listing::DesiredQuery;
use handoff_protocol::node::Desired;
use handoff_protocol::{NodeId, Timestamp, TransferId};

use crate::access::Principal;
use crate::error::ServiceError;
use crate::service::Service;
use crate::wait::News;

/// Transfers that are read at once.
const BATCH: usize = 500;

/// The longest that a poll is held: a node that polls is heard of often enough to be placed on.
const LONGEST_POLL_MS: u64 = 30_000;

/// How old a node's last sign of life may be in the store before it is written again: a fraction of the minute
/// after which it counts as silent.
const SEEN_EVERY_MS: u64 = 10_000;

/// When each node was answered last, and last written down as heard of, by the store's clock.
#[derive(Debug, Default)]
pub(crate) struct Answered {
    at: Mutex<HashMap<NodeId, Timestamp>>,
    seen: Mutex<HashMap<NodeId, Timestamp>>,
}

impl Answered {
    fn last(&self, node: NodeId) -> Option<Timestamp> {
        self.at.lock().unwrap_or_else(PoisonError::into_inner).get(&node).copied()
    }

    fn was_seen(&self, node: NodeId, now: Timestamp) -> bool {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.get(&node).is_some_and(|at| now < at.plus_ms(SEEN_EVERY_MS))
    }

    fn note_seen(&self, node: NodeId, at: Timestamp) {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).insert(node, at);
    }

    fn note(&self, node: NodeId, at: Timestamp) {
        self.at.lock().unwrap_or_else(PoisonError::into_inner).insert(node, at);
    }
}

impl Service {
    /// The list, once its revision is higher than the one named, a lease on it has run out, or the wait is over.
    ///
    /// # Errors
    /// Where somebody else than the node asks, or the ledger does not answer.
    pub async fn desired(
        &self,
        principal: &Principal,
        node: NodeId,
        query: DesiredQuery,
    ) -> Result<Desired, ServiceError> {
        self.speaks_for(principal, node).await?;
        self.note_seen(node).await?;
        let mut watch = self.watch(query.wait_s.unwrap_or(0).saturating_mul(1000).min(LONGEST_POLL_MS));
        loop {
            let revision = watch.revision();
            let now = self.inner.ledger.now().await?;
            let found = self.assigned(principal, node).await?;
            let news =
                query.after.is_none_or(|after| revision > after) || self.lease_ended(node, &found, now);
            if news || watch.is_over() {
                self.inner.answered.note(node, now);
                return Ok(self.list(node, &found, revision, now));
            }
            let due = next_lease_end(&found, now).map(|until| until.ms_since(now));
            let waited = match due {
                Some(ms) => watch.news_within(Duration::from_millis(ms)).await,
                None => watch.news().await,
            };
            match waited {
                Ok(News::Changed | News::TimeOver) => {}
                // A list is true whenever it is given, so there is nothing to refuse.
                Err(ServiceError::Stopping) => return Ok(self.list(node, &found, revision, now)),
                Err(error) => return Err(error),
            }
        }
    }

    /// Writes down that the node was heard of, unless that was done just now: a poll is answered on every change,
    /// and a durable write for each answer would be most of what the store does.
    async fn note_seen(&self, node: NodeId) -> Result<(), ServiceError> {
        let now = self.inner.ledger.now().await?;
        if self.inner.answered.was_seen(node, now) {
            return Ok(());
        }
        // Where it cannot be written, nobody may be given up for not having been heard of.
        self.inner.ledger.see_node(node).await.inspect_err(|error| self.inner.serving.failed(error))?;
        self.inner.answered.note_seen(node, now);
        Ok(())
    }

    async fn assigned(&self, principal: &Principal, node: NodeId) -> Result<Vec<Found>, ServiceError> {
        let filter = Filter { node: Some(node), unclosed: true, ..Filter::default() };
        // One that does not read is not on the list, and so stays as it is at the node.
        Ok(self.all_transfers(principal.project, filter).await?.found)
    }

    /// Every transfer that the filter lets through, in as many reads as it takes.
    pub(crate) async fn all_transfers(
        &self,
        project: handoff_protocol::ProjectId,
        mut filter: Filter,
    ) -> Result<Listed, ServiceError> {
        filter.limit = BATCH;
        let mut all = Listed::default();
        loop {
            let batch = self.inner.ledger.transfers(project, &filter).await?;
            let last: Option<TransferId> = batch.found.last().map(|found| found.transfer.id);
            let whole = batch.found.len() < BATCH;
            all.found.extend(batch.found);
            all.unreadable += batch.unreadable;
            match last {
                Some(last) if !whole => filter.before = Some(last),
                Some(_) | None => return Ok(all),
            }
        }
    }

    fn list(&self, node: NodeId, found: &[Found], revision: u64, now: Timestamp) -> Desired {
        let policy = &self.config().policy;
        let entries = |found: &Found| desired::entries(policy, &found.session, &found.transfer, node, now);
        Desired {
            control_plane: self.config().control_plane.clone(),
            revision,
            destinations: found.iter().flat_map(entries).collect(),
        }
    }

    /// Whether a lease ran out that was still good in the node's last answer.
    fn lease_ended(&self, node: NodeId, found: &[Found], now: Timestamp) -> bool {
        let Some(last) = self.inner.answered.last(node) else { return true };
        lease_ends(found).any(|until| last < until && until <= now)
    }
}

/// The leases of live holders.
fn lease_ends(found: &[Found]) -> impl Iterator<Item = Timestamp> {
    let live = found.iter().filter(|found| found.transfer.status.is_live() && !found.session.holder_gone);
    live.filter_map(|found| found.session.lease_until)
}

fn next_lease_end(found: &[Found], now: Timestamp) -> Option<Timestamp> {
    lease_ends(found).filter(|until| *until > now).min()
}
