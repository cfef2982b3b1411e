//! The reaper: what ends because time passes. Authorisations past their deadline are withdrawn, transfers past
//! their time to live expire, insolvent ones past grace are terminated, and those whose node has been silent
//! for long are assigned anew.
//!
//! Every one of these is an ordinary command that the machine judges by the store's time: a raise, a claim or a
//! report that comes first wins, and the reaper's command is refused.

use std::collections::BTreeMap;
use std::time::Duration;

use handoff_core::grid::CommandKind;
use handoff_core::ledger::{Filter, Found, LedgerError};
use handoff_core::transfer::EndReason;
use handoff_core::{Command, Role};
use handoff_protocol::document::Facts;
use handoff_protocol::request::{Reaped, Reasoned};
use handoff_protocol::{NodeId, Status, Timestamp, TransferId};
use tokio::time::Instant;

use crate::access::Principal;
use crate::error::ServiceError;
use crate::service::Service;
use crate::serving::BEAT;
use crate::wait::{News, Watch};
use crate::words;

/// After a change, at most so long is waited for others before everything is looked at again.
const LONGEST_SETTLE_MS: u64 = 2_000;
/// And at least so long.
const SHORTEST_SETTLE_MS: u64 = 50;
/// A round that failed is repeated after so long.
const AFTER_FAILURE: Duration = Duration::from_secs(1);

/// When each node was last heard of.
type Seen = BTreeMap<NodeId, Timestamp>;

/// Something that falls due.
#[derive(Debug)]
struct Due {
    at: Timestamp,
    transfer: TransferId,
    command: Command,
    counted: fn(&mut Reaped) -> &mut u64,
}

impl Service {
    /// Makes one round now.
    ///
    /// # Errors
    /// Where whoever asks may not, or the ledger does not answer.
    pub async fn reap(&self, principal: &Principal, body: Reasoned) -> Result<Reaped, ServiceError> {
        let actor = self.permit_roles(principal, &[Role::Orchestrator, Role::Admin], "reap").await?;
        let reason = body.reason.unwrap_or_default();
        words::check("reason", &reason)?;
        let reaped = self.reap_once().await?.0;
        if !reason.is_empty() {
            let detail =
                Facts::from([("command".to_owned(), "reap".to_owned()), ("reason".to_owned(), reason)]);
            self.inner.recorder.record(principal, actor, None, "reason_given", detail).await?;
        }
        Ok(reaped)
    }

    /// One round, and when the next thing falls due: milliseconds from now, if anything does. Something that fails
    /// does not keep the rest from being done; the round counts as failed afterwards.
    async fn reap_once(&self) -> Result<(Reaped, Option<u64>), ServiceError> {
        let project = self.config().project;
        let serving = &self.inner.serving;
        let (mut dues, unreadable, now) = self.look().await.inspect_err(|_| serving.broke())?;
        dues.sort_by_key(|due| due.at);
        let next = dues.iter().map(|due| due.at).find(|at| *at > now).map(|at| at.ms_since(now));
        let mut reaped = Reaped::default();
        let unread =
            || LedgerError::Broken { what: format!("{unreadable} transfers that are not closed") }.into();
        let mut failed: Option<ServiceError> = (unreadable > 0).then(unread);
        for due in dues.into_iter().filter(|due| due.at <= now) {
            let kind = due.command.kind();
            if kind == CommandKind::Reassign && serving.is_broken() {
                continue;
            }
            match self.give_own(project, due.command).await {
                Ok(_) => *(due.counted)(&mut reaped) += 1,
                Err(error) if error.refusal().is_some() => {
                    tracing::debug!(%kind, %error, "something else came first");
                }
                Err(error) => {
                    tracing::error!(%kind, transfer = %due.transfer, %error, "what was due could not be done");
                    failed.get_or_insert(error);
                }
            }
        }
        if reaped != Reaped::default() {
            tracing::info!(?reaped, "reaped");
        }
        failed.map_or(Ok((reaped, next)), Err)
    }

    /// Everything that will fall due, how many transfers do not read, and the time by which it was looked at.
    async fn look(&self) -> Result<(Vec<Due>, u64, Timestamp), ServiceError> {
        let project = self.config().project;
        let unclosed = Filter { unclosed: true, ..Filter::default() };
        let listed = self.all_transfers(project, unclosed).await?;
        let nodes = self.inner.ledger.nodes(project).await?;
        let seen: Seen = nodes.iter().map(|node| (node.id, node.seen_at)).collect();
        let was_broken = self.inner.serving.take_break();
        let now = self.inner.ledger.now().await?;
        let serving_since = self.inner.serving.unbroken_since(was_broken, now);
        let dues = listed.found.iter().flat_map(|found| self.dues(found, &seen, serving_since)).collect();
        Ok((dues, listed.unreadable, now))
    }

    fn dues(&self, found: &Found, seen: &Seen, serving_since: Timestamp) -> Vec<Due> {
        let transfer = &found.transfer;
        let id = transfer.id;
        let due = |at, command, counted| Due { at, transfer: id, command, counted };
        let mut dues = Vec::new();
        if let Some(open) = transfer.open_authorization() {
            let command = Command::Withdraw { transfer: id, authorization: open.id };
            dues.push(due(open.deadline, command, |reaped| &mut reaped.withdrawn));
        } else if transfer.status.is_pending() {
            let command = Command::Expire { transfer: id };
            dues.push(due(transfer.expires_at, command, |reaped| &mut reaped.expired));
        }
        if let (Status::Insolvent, Some(at)) = (transfer.status, transfer.grace_until) {
            let reason = EndReason::GracePeriodExpired;
            let command = Command::Terminate { transfer: id, reason };
            dues.push(due(at, command, |reaped| &mut reaped.terminated));
        }
        dues.extend(self.reassignment(found, seen, serving_since));
        dues
    }

    /// A transfer that nobody can have been running for long: its lease is over, or, before it was active, its
    /// node is silent. With one node there is no other place to go.
    fn reassignment(&self, found: &Found, seen: &Seen, serving_since: Timestamp) -> Option<Due> {
        let transfer = &found.transfer;
        let silent_since = match transfer.status {
            Status::Active | Status::Insolvent if transfer.resting => None,
            Status::Active | Status::Insolvent => found.session.lease_until,
            Status::Provisioned | Status::Pushed if transfer.open_authorization().is_some() => None,
            Status::Provisioned | Status::Pushed => {
                transfer.assignment.and_then(|assignment| seen.get(&assignment.node).copied())
            }
            Status::Staged | Status::Terminated | Status::Expired => None,
        };
        let at = silent_since?.max(serving_since).plus_ms(self.config().policy.reassign_after_ms);
        let command = Command::Reassign { transfer: transfer.id, serving_since };
        let counted: fn(&mut Reaped) -> &mut u64 = |reaped| &mut reaped.reassigned;
        (seen.len() > 1).then_some(Due { at, transfer: transfer.id, command, counted })
    }

    /// Makes rounds until the control plane stops: when something falls due, some time after a change, and at the
    /// latest after the operator's interval.
    pub async fn reap_forever(&self) {
        let interval = Duration::from_millis(self.config().reap_interval_ms);
        loop {
            let mut watch = self.watch(self.config().reap_interval_ms);
            let mut due = Instant::now();
            due += match self.reap_once().await {
                Ok((_, next)) => next.map_or(interval, |ms| interval.min(Duration::from_millis(ms))),
                Err(error) => {
                    tracing::warn!(%error, "a round of the reaper failed");
                    AFTER_FAILURE
                }
            };
            if !self.rest_until(due, &mut watch).await {
                return;
            }
        }
    }

    /// Waits until something falls due or has changed, in beats; false when the control plane stops.
    async fn rest_until(&self, mut due: Instant, watch: &mut Watch) -> bool {
        let mut changed = false;
        loop {
            self.inner.serving.beat();
            let left = due.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return true;
            }
            let waited = if changed {
                watch.pause(left.min(BEAT)).await
            } else {
                watch.news_within(left.min(BEAT)).await
            };
            match waited {
                // What a change brings is due no earlier than the shortest of all terms, so that a busy store is
                // not read again for every commit.
                Ok(News::Changed) => {
                    changed = true;
                    due = due.min(Instant::now() + self.settle());
                }
                Ok(News::TimeOver) => {}
                Err(_) => return false,
            }
        }
    }

    /// Half of the shortest time after which anything that a command brings can fall due.
    fn settle(&self) -> Duration {
        let policy = &self.config().policy;
        let terms =
            [policy.authorization_ms, policy.time_to_live_ms, policy.grace_ms, policy.reassign_after_ms];
        let shortest = terms.into_iter().min().unwrap_or(LONGEST_SETTLE_MS);
        Duration::from_millis((shortest / 2).clamp(SHORTEST_SETTLE_MS, LONGEST_SETTLE_MS))
    }
}
