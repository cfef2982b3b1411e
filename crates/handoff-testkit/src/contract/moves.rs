//! One session on its way: who it is, and the commands that move it.

use handoff_core::command::{Claim, Command, Provision, Reclaim, Refresh, RefreshBy, Stage};
use handoff_core::state::{Epoch, Generation};
use handoff_core::token::TokenClaims;
use handoff_core::transfer::EndReason;
use handoff_protocol::node::{ObservedState, Usage};
use handoff_protocol::request::Operation;
use handoff_protocol::{
    AuthorizationId, Digest, IncarnationId, NanoUsd, NodeId, SessionId, Timestamp, Totals, TransferId,
};

use super::world::{SOURCE, World, fresh};

/// A transfer of a session, as those who take part know it.
#[derive(Debug, Clone)]
pub struct Move {
    /// The session.
    pub session: SessionId,
    /// The transfer.
    pub transfer: TransferId,
    /// The snapshot it carries.
    pub snapshot: Digest,
    /// Where it goes.
    pub node: NodeId,
    /// Its assignment there.
    pub generation: Generation,
    /// The start of its destination's agent.
    pub incarnation: IncarnationId,
    /// The session's epoch, as far as is known.
    pub epoch: Epoch,
    /// What it may spend.
    pub budget: NanoUsd,
}

impl World {
    /// A session that nobody has staged yet, with a budget of ten dollars.
    pub fn fresh_move(&self) -> Move {
        let transfer: TransferId = fresh();
        Move {
            session: fresh(),
            transfer,
            snapshot: Digest::of(transfer.to_string().as_bytes()),
            node: self.node,
            generation: Generation::FIRST,
            incarnation: fresh(),
            epoch: Epoch::FIRST,
            budget: NanoUsd::from_nano(10_000_000_000),
        }
    }

    /// A token for this transfer, good for five minutes.
    pub fn token(&self, transfer: TransferId, operation: Operation) -> TokenClaims {
        let now = self.clock.now();
        TokenClaims {
            id: fresh(),
            transfer,
            operation,
            issued_at: now,
            expires_at: now.plus_ms(300_000),
            max_budget: None,
            tier: None,
        }
    }

    /// Stages it with the source's final snapshot.
    pub fn stage(&self, moved: &Move) -> Command {
        Command::Stage(Stage {
            transfer: moved.transfer,
            session: moved.session,
            project: self.project,
            principal: SOURCE.to_owned(),
            expected_epoch: None,
            snapshot: Some(moved.snapshot),
            is_final: true,
            abandon_source: false,
            labels: [("team".to_owned(), "forecasting".to_owned())].into(),
        })
    }

    /// Stages a successor from the last accepted snapshot.
    pub fn stage_successor(&self, of: &Move, successor: TransferId) -> Command {
        Command::Stage(Stage {
            transfer: successor,
            session: of.session,
            project: self.project,
            principal: SOURCE.to_owned(),
            expected_epoch: Some(of.epoch),
            snapshot: None,
            is_final: false,
            abandon_source: false,
            labels: Default::default(),
        })
    }

    /// Sizes it as the smallest tier.
    pub fn provision(&self, moved: &Move) -> Command {
        Command::Provision(Provision {
            transfer: moved.transfer,
            token: self.token(moved.transfer, Operation::ProvisionRuntime),
            tier: self.policy.tiers[0].name.clone(),
            budget: moved.budget,
            carve: false,
            node: None,
        })
    }

    /// Lets its destination claim.
    pub fn activate(&self, moved: &Move) -> Command {
        let token = self.token(moved.transfer, Operation::Activate);
        Command::Activate { transfer: moved.transfer, token }
    }
}

impl Move {
    /// The source, or the live holder, gives another snapshot.
    pub fn refresh(&self, by: RefreshBy, snapshot: Option<Digest>, is_final: bool) -> Command {
        let (transfer, expected_epoch) = (self.transfer, Some(self.epoch));
        Command::Refresh(Refresh { transfer, by, expected_epoch, snapshot, is_final })
    }

    /// Has the destination verify it.
    pub fn push(&self) -> Command {
        Command::Push { transfer: self.transfer, checksum: Some(self.snapshot) }
    }

    /// The node holds it.
    pub fn receipt(&self) -> Command {
        let (transfer, node, generation) = (self.transfer, self.node, self.generation);
        Command::Receipt { transfer, node, generation, digest: self.snapshot, missing: Vec::new() }
    }

    /// The destination takes the session.
    pub fn claim(&self, authorization: AuthorizationId) -> Command {
        Command::Claim(Claim {
            transfer: self.transfer,
            node: self.node,
            generation: self.generation,
            authorization,
            incarnation: self.incarnation,
            digest: self.snapshot,
        })
    }

    /// Another incarnation takes it again.
    pub fn reclaim(&self) -> Command {
        Command::Reclaim(Reclaim {
            transfer: self.transfer,
            node: self.node,
            generation: self.generation,
            incarnation: self.incarnation,
            digest: self.snapshot,
        })
    }

    /// The destination cannot use an authorisation.
    pub fn decline(&self, authorization: AuthorizationId) -> Command {
        let (transfer, node, generation) = (self.transfer, self.node, self.generation);
        let reason = "a credential does not resolve".to_owned();
        Command::Decline { transfer, node, generation, authorization, reason }
    }

    /// Nobody claimed in time.
    pub fn withdraw(&self, authorization: AuthorizationId) -> Command {
        Command::Withdraw { transfer: self.transfer, authorization }
    }

    /// The holder goes on.
    pub fn renew(&self) -> Command {
        Command::Renew {
            transfer: self.transfer,
            node: self.node,
            epoch: self.epoch,
            generation: self.generation,
            incarnation: self.incarnation,
        }
    }

    /// The holder stored a snapshot.
    pub fn checkpoint(&self, digest: Digest) -> Command {
        Command::Checkpoint {
            transfer: self.transfer,
            node: self.node,
            epoch: self.epoch,
            incarnation: self.incarnation,
            digest,
            follows: None,
        }
    }

    /// The holder goes to rest.
    pub fn rest(&self) -> Command {
        Command::Rest { transfer: self.transfer, node: self.node, epoch: self.epoch }
    }

    /// A report of this epoch: so many nano-USD for models in all.
    pub fn report(&self, seq: u64, spent: i64) -> Report {
        let totals = Totals { model_usd: NanoUsd::from_nano(spent), run_ms: seq, ..Totals::default() };
        let usage = Usage {
            epoch: self.epoch.0,
            seq,
            totals,
            closing: false,
            exhausted: false,
            limit_usd: None,
            prev_hash: None,
        };
        Report { transfer: self.transfer, node: self.node, usage }
    }

    /// Money that was spent outside the gateway.
    pub fn record_spend(&self, nano: i64) -> Command {
        let cost = NanoUsd::from_nano(nano);
        Command::RecordSpend { transfer: self.transfer, cost, detail: "a search".to_owned() }
    }

    /// A new absolute budget.
    pub fn raise(&self, nano: i64) -> Command {
        Command::RaiseBudget { transfer: self.transfer, allocated: NanoUsd::from_nano(nano) }
    }

    /// An orchestrator ends it.
    pub fn terminate(&self) -> Command {
        Command::Terminate { transfer: self.transfer, reason: EndReason::Requested("done".to_owned()) }
    }

    /// The reaper ends it after grace.
    pub fn reap(&self) -> Command {
        Command::Terminate { transfer: self.transfer, reason: EndReason::GracePeriodExpired }
    }

    /// The reaper ends it before it was activated.
    pub fn expire(&self) -> Command {
        Command::Expire { transfer: self.transfer }
    }

    /// Another assignment.
    pub fn reassign(&self, serving_since: Timestamp) -> Command {
        Command::Reassign { transfer: self.transfer, serving_since }
    }

    /// The node finds something.
    pub fn observe(&self, state: ObservedState) -> Command {
        Command::Observe {
            transfer: self.transfer,
            node: self.node,
            generation: self.generation,
            state,
            last_alive: None,
            incarnation: Some(self.incarnation),
        }
    }

    /// The node proves that nothing is left of its place.
    pub fn place_gone(&self) -> Command {
        Command::Observe {
            transfer: self.transfer,
            node: self.node,
            generation: self.generation,
            state: ObservedState::Absent,
            last_alive: None,
            incarnation: None,
        }
    }

    /// The source takes its session back.
    pub fn take_back(&self, nonce: IncarnationId) -> Command {
        Command::Return {
            session: self.session,
            principal: SOURCE.to_owned(),
            nonce,
            frozen_epoch: self.epoch,
        }
    }
}

/// A meter's report, to be finished by whoever sends it.
#[derive(Debug, Clone)]
pub struct Report {
    transfer: TransferId,
    node: NodeId,
    /// What it says.
    pub usage: Usage,
}

impl Report {
    /// The last one of its epoch.
    #[must_use]
    pub fn closing(mut self) -> Self {
        self.usage.closing = true;
        self
    }

    /// A tick does not fit.
    #[must_use]
    pub fn exhausted(mut self) -> Self {
        self.usage.exhausted = true;
        self
    }

    /// The command that sends it.
    pub fn send(self) -> Command {
        let body = Digest::of(format!("{:?}", self.usage).as_bytes());
        Command::ReportUsage { transfer: self.transfer, node: self.node, usage: self.usage, body }
    }
}
