//! Acts: several commands that take a session from one place to the next.

use handoff_core::command::Command;
use handoff_core::reply::Reply;
use handoff_protocol::node::UsageCommand;
use handoff_protocol::{AuthorizationId, TransferId};

use super::moves::Move;
use super::world::{World, fresh};

impl World {
    /// A new session, staged with its source's final.
    pub async fn staged(&self) -> Move {
        let moved = self.fresh_move();
        self.accept(self.stage(&moved)).await;
        moved
    }

    /// The same, sized and budgeted.
    pub async fn provisioned(&self) -> Move {
        self.provisioned_with(self.fresh_move()).await
    }

    /// This one, staged, sized and budgeted.
    pub async fn provisioned_with(&self, moved: Move) -> Move {
        self.accept(self.stage(&moved)).await;
        self.accept_provision(moved).await
    }

    /// A staged one, sized and budgeted.
    pub async fn accept_provision(&self, mut moved: Move) -> Move {
        match self.accept(self.provision(&moved)).await {
            Reply::Provisioned { node, generation } => (moved.node, moved.generation) = (node, generation),
            other => panic!("provision was answered with {other:?}"),
        }
        moved
    }

    /// A new session, pushed and verified.
    pub async fn pushed(&self) -> Move {
        self.pushed_with(self.provisioned().await).await
    }

    /// A provisioned one, pushed and verified.
    pub async fn pushed_with(&self, moved: Move) -> Move {
        self.accept(moved.push()).await;
        self.accept(moved.receipt()).await;
        moved
    }

    /// Authorises a pushed one.
    pub async fn authorize(&self, moved: &Move) -> AuthorizationId {
        match self.accept(self.activate(moved)).await {
            Reply::Authorized { authorization } => authorization,
            other => panic!("activate was answered with {other:?}"),
        }
    }

    /// A new session, running at its destination.
    pub async fn active(&self) -> Move {
        self.active_with(self.pushed().await).await
    }

    /// A pushed one, running at its destination.
    pub async fn active_with(&self, mut moved: Move) -> Move {
        let authorization = self.authorize(&moved).await;
        self.take(moved.claim(authorization), &mut moved).await;
        moved
    }

    /// A claim or re-claim, and the epoch that it leads to.
    pub async fn take(&self, command: Command, moved: &mut Move) {
        match self.accept(command).await {
            Reply::Claimed { epoch, .. } => moved.epoch = epoch,
            other => panic!("a claim was answered with {other:?}"),
        }
    }

    /// A new session that has used up its budget.
    pub async fn insolvent(&self) -> Move {
        let moved = self.active().await;
        self.spend_all(&moved).await;
        moved
    }

    /// Reports as an honest meter does, always up to its limit, until there is no more to be had. Gives the seq
    /// of the last report and what it said was spent.
    pub async fn spend_all(&self, moved: &Move) -> (u64, i64) {
        self.spend_all_from(moved, 1).await
    }

    /// The same, from this seq on.
    pub async fn spend_all_from(&self, moved: &Move, first_seq: u64) -> (u64, i64) {
        let mut limit = self.found(moved.transfer).await.transfer.epochs[&moved.epoch].limit;
        for seq in first_seq.. {
            let spent = limit.nano();
            match self.accept(moved.report(seq, spent).exhausted().send()).await {
                Reply::Usage { command: UsageCommand::Insolvent, .. } => return (seq, spent),
                Reply::Usage { command: UsageCommand::Continue, limit: higher, .. } => limit = higher,
                other => panic!("a report was answered with {other:?}"),
            }
        }
        unreachable!("a budget is finite")
    }

    /// A successor of a running one, staged from the last accepted snapshot and not provisioned yet.
    pub async fn successor(&self, of: &Move) -> Move {
        let transfer: TransferId = fresh();
        self.accept(self.stage_successor(of, transfer)).await;
        Move { transfer, incarnation: fresh(), generation: Default::default(), ..of.clone() }
    }
}
