//! The reaper: what ends because time passes. Authorisations past their deadline are withdrawn, transfers past
//! their time to live expire, insolvent ones past grace are terminated, and those whose node has been silent
//! for long are assigned anew.
//!
//! Every one of these is an ordinary command that the machine judges by the store's time: a raise, a claim or a
//! report that comes first wins, and the reaper's command is refused.

use std::collections::BTreeMap;
use std::time::Duration;

use handoff_core::ledger::{Filter, Found};
use handoff_core::transfer::EndReason;
use handoff_core::{Command, Role};
use handoff_protocol::request::Reaped;
use handoff_protocol::{NodeId, Status, Timestamp};

use crate::access::Principal;
use crate::error::ServiceError;
use crate::service::Service;
use crate::wait::News;

/// After a change, this long is waited for others before everything is looked at again.
const SETTLE: Duration = Duration::from_millis(50);
/// A round that failed is repeated after so long.
const AFTER_FAILURE: Duration = Duration::from_secs(1);

/// When each node was last heard of.
type Seen = BTreeMap<NodeId, Timestamp>;

/// Something that falls due.
#[derive(Debug)]
struct Due {
    at: Timestamp,
    command: Command,
    counted: fn(&mut Reaped) -> &mut u64,
}

impl Service {
    /// Makes one round now.
    ///
    /// # Errors
    /// Where whoever asks may not, or the ledger does not answer.
    pub async fn reap(&self, principal: &Principal) -> Result<Reaped, ServiceError> {
        self.permit_roles(principal, &[Role::Orchestrator, Role::Admin], "reap").await?;
        Ok(self.reap_once().await?.0)
    }

    /// One round, and when the next thing falls due: milliseconds from now, if anything does.
    async fn reap_once(&self) -> Result<(Reaped, Option<u64>), ServiceError> {
        let project = self.config().project;
        let unclosed = Filter { unclosed: true, ..Filter::default() };
        let found = self.all_transfers(project, unclosed).await?;
        let nodes = self.inner.ledger.nodes(project).await?;
        let seen: Seen = nodes.iter().map(|node| (node.id, node.seen_at)).collect();
        let now = self.inner.ledger.now().await?;
        let mut dues: Vec<Due> = found.iter().flat_map(|found| self.dues(found, &seen)).collect();
        dues.sort_by_key(|due| due.at);
        let next = dues.iter().map(|due| due.at).find(|at| *at > now).map(|at| at.ms_since(now));
        let mut reaped = Reaped::default();
        for due in dues.into_iter().filter(|due| due.at <= now) {
            let kind = due.command.kind();
            match self.give_own(project, due.command).await {
                Ok(_) => *(due.counted)(&mut reaped) += 1,
                Err(error) if error.refusal().is_some() => {
                    tracing::debug!(%kind, %error, "something else came first");
                }
                Err(error) => return Err(error),
            }
        }
        Ok((reaped, next))
    }

    fn dues(&self, found: &Found, seen: &Seen) -> Vec<Due> {
        let transfer = &found.transfer;
        let id = transfer.id;
        let mut dues = Vec::new();
        if let Some(open) = transfer.open_authorization() {
            let command = Command::Withdraw { transfer: id, authorization: open.id };
            dues.push(Due { at: open.deadline, command, counted: |reaped| &mut reaped.withdrawn });
        } else if transfer.status.is_pending() {
            let command = Command::Expire { transfer: id };
            dues.push(Due { at: transfer.expires_at, command, counted: |reaped| &mut reaped.expired });
        }
        if let (Status::Insolvent, Some(at)) = (transfer.status, transfer.grace_until) {
            let reason = EndReason::GracePeriodExpired;
            let command = Command::Terminate { transfer: id, reason };
            dues.push(Due { at, command, counted: |reaped| &mut reaped.terminated });
        }
        dues.extend(self.reassignment(found, seen));
        dues
    }

    /// A transfer that nobody can have been running for long: its lease is over, or, before it was active, its
    /// node is silent. With one node there is no other place to go.
    fn reassignment(&self, found: &Found, seen: &Seen) -> Option<Due> {
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
        let serving_since = self.inner.serving_since;
        let at = silent_since?.max(serving_since).plus_ms(self.config().policy.reassign_after_ms);
        let command = Command::Reassign { transfer: transfer.id, serving_since };
        (seen.len() > 1).then_some(Due { at, command, counted: |reaped| &mut reaped.reassigned })
    }

    /// Makes rounds until the control plane stops: when something falls due, after every change, and at the
    /// latest after the operator's interval.
    pub async fn reap_forever(&self) {
        let interval = Duration::from_millis(self.config().reap_interval_ms);
        loop {
            let mut watch = self.watch(self.config().reap_interval_ms);
            let pause = match self.reap_once().await {
                Ok((reaped, next)) => {
                    if reaped != Reaped::default() {
                        tracing::info!(?reaped, "reaped");
                    }
                    next.map_or(interval, |ms| interval.min(Duration::from_millis(ms)))
                }
                Err(error) => {
                    tracing::warn!(%error, "a round of the reaper failed");
                    AFTER_FAILURE
                }
            };
            match watch.news_within(pause).await {
                Ok(News::Changed) => tokio::time::sleep(SETTLE).await,
                Ok(News::TimeOver) => {}
                Err(_) => return,
            }
        }
    }
}
