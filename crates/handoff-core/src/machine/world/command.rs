//! Well-formed commands, as somebody gives them who knows how this world stands.

use handoff_protocol::node::{ObservedState, Usage};
use handoff_protocol::request::{Labels, Operation};
use handoff_protocol::{IncarnationId, NanoUsd, NodeId, ProjectId, Timestamp, TokenId, Totals, TransferId};

use super::{BUDGET, MINUTE, NODE, ONE, RESERVE, SESSION, SOURCE, TWO, World, digest, incarnation, nano};
use crate::Command;
use crate::command::{Claim, Provision, Reclaim, Refresh, RefreshBy, Stage};
use crate::grid::CommandKind;
use crate::state::{Epoch, Generation, Holder};
use crate::token::TokenClaims;
use crate::transfer::EndReason;

impl World {
    fn node_of(&self, transfer: TransferId) -> (NodeId, Generation) {
        let assignment = self.state.transfers.get(&transfer).and_then(|found| found.assignment);
        assignment.map_or((NODE, Generation::FIRST), |found| (found.node, found.generation))
    }

    /// The incarnation that holds the session; some other where none does.
    pub(crate) fn holder(&self) -> IncarnationId {
        match self.state.session.as_ref().map(|session| &session.holder) {
            Some(Holder::Incarnation { incarnation, .. }) => *incarnation,
            Some(Holder::Source { .. } | Holder::None) | None => incarnation(99),
        }
    }

    pub(crate) fn epoch(&self) -> Epoch {
        self.state.session.as_ref().map_or(Epoch::FIRST, |session| session.epoch)
    }

    pub(crate) fn token(&self, transfer: TransferId, operation: Operation) -> TokenClaims {
        TokenClaims {
            id: TokenId::from_u128(1000 + self.minted),
            transfer,
            operation,
            issued_at: self.now,
            expires_at: self.now.plus_ms(5 * MINUTE),
            max_budget: None,
            tier: None,
        }
    }

    /// The source stages its own snapshot.
    pub(crate) fn stage(&self, transfer: TransferId, snapshot: &str, is_final: bool) -> Command {
        Command::Stage(Stage {
            transfer,
            session: SESSION,
            project: ProjectId::from_u128(1),
            principal: SOURCE.to_owned(),
            expected_epoch: self.state.session.as_ref().map(|session| session.epoch),
            snapshot: Some(digest(snapshot)),
            is_final,
            abandon_source: false,
            labels: Labels::default(),
        })
    }

    /// Somebody stages from the last accepted snapshot.
    pub(crate) fn resume(&self, transfer: TransferId) -> Command {
        let Command::Stage(stage) = self.stage(transfer, "", false) else { unreachable!("stage stages") };
        Command::Stage(Stage { snapshot: None, principal: "operator".to_owned(), ..stage })
    }

    /// The source refreshes its transfer.
    pub(crate) fn refresh(&self, transfer: TransferId, snapshot: &str, is_final: bool) -> Command {
        Command::Refresh(Refresh {
            transfer,
            by: RefreshBy::Principal(SOURCE.to_owned()),
            expected_epoch: Some(self.epoch()),
            snapshot: Some(digest(snapshot)),
            is_final,
        })
    }

    /// Somebody asks the live holder to stop for its successor.
    pub(crate) fn ask_for_final(&self) -> Command {
        self.ask_for_final_of(TWO)
    }

    pub(crate) fn ask_for_final_of(&self, transfer: TransferId) -> Command {
        let Command::Refresh(refresh) = self.refresh(transfer, "", true) else {
            unreachable!("it refreshes")
        };
        Command::Refresh(Refresh { snapshot: None, ..refresh })
    }

    /// The live holder's node refreshes the successor with the final.
    pub(crate) fn final_of_holder(&self, snapshot: &str) -> Command {
        let Command::Refresh(refresh) = self.refresh(TWO, snapshot, true) else {
            unreachable!("it refreshes")
        };
        let by = RefreshBy::Incarnation(self.node_of(ONE).0, self.holder());
        Command::Refresh(Refresh { by, ..refresh })
    }

    /// The next report of the present epoch, with nothing used, as changed.
    pub(crate) fn report(&self, change: impl FnOnce(&mut Usage)) -> Command {
        self.report_of(ONE, self.epoch(), change)
    }

    pub(crate) fn report_of(
        &self,
        transfer: TransferId,
        epoch: Epoch,
        change: impl FnOnce(&mut Usage),
    ) -> Command {
        let account = self.state.transfers.get(&transfer).and_then(|found| found.epochs.get(&epoch));
        let mut usage = Usage {
            epoch: epoch.0,
            seq: account.map_or(0, |account| account.seq) + 1,
            totals: account.map_or(Totals::default(), |account| account.totals),
            closing: false,
            exhausted: false,
            limit_usd: None,
            prev_hash: None,
        };
        change(&mut usage);
        let node = account.map_or(self.node_of(transfer).0, |account| account.node);
        Command::ReportUsage { transfer, node, usage, body: digest(&format!("{usage:?}")) }
    }

    /// A report that the next tick does not fit: all but the wind-down is used.
    pub(crate) fn exhausted(&self) -> Command {
        let allocated = self.of(ONE).budget.map_or(NanoUsd::ZERO, |budget| budget.allocated);
        self.report(|usage| {
            usage.totals.model_usd = allocated.minus(RESERVE);
            usage.exhausted = true;
        })
    }

    pub(crate) fn claim(&self, transfer: TransferId, incarnation: IncarnationId) -> Command {
        let (node, generation) = self.node_of(transfer);
        let found = &self.state.transfers[&transfer];
        let authorization = found.authorization.as_ref().map_or(TokenId::from_u128(0), |found| found.id);
        Command::Claim(Claim {
            transfer,
            node,
            generation,
            authorization,
            incarnation,
            digest: found.snapshot,
        })
    }

    pub(crate) fn reclaim(&self, incarnation: IncarnationId) -> Command {
        let (node, generation) = self.node_of(ONE);
        let accepted = self.session().last_snapshot.expect("a snapshot was accepted");
        Command::Reclaim(Reclaim { transfer: ONE, node, generation, incarnation, digest: accepted.digest })
    }

    pub(crate) fn renew(&self) -> Command {
        let (node, generation) = self.node_of(ONE);
        Command::Renew { transfer: ONE, node, epoch: self.epoch(), generation, incarnation: self.holder() }
    }

    pub(crate) fn checkpoint(&self, snapshot: &str) -> Command {
        Command::Checkpoint {
            transfer: ONE,
            node: self.node_of(ONE).0,
            epoch: self.epoch(),
            incarnation: self.holder(),
            digest: digest(snapshot),
            follows: self.session().last_snapshot.map(|last| last.digest),
        }
    }

    pub(crate) fn observe(&self, state: ObservedState) -> Command {
        let (node, generation) = self.node_of(ONE);
        let incarnation = Some(self.holder());
        Command::Observe { transfer: ONE, node, generation, state, last_alive: Some(self.now), incarnation }
    }

    /// Nothing is left of the first transfer's place.
    pub(crate) fn place_gone(&self) -> Command {
        let (node, generation) = self.node_of(ONE);
        let (state, last_alive, incarnation) = (ObservedState::Absent, None, None);
        Command::Observe { transfer: ONE, node, generation, state, last_alive, incarnation }
    }

    pub(crate) fn give_back(&self, nonce: u128) -> Command {
        Command::Return {
            session: SESSION,
            principal: SOURCE.to_owned(),
            nonce: incarnation(nonce),
            frozen_epoch: self.epoch(),
        }
    }

    /// A well-formed command of this kind about this transfer, as somebody who knows this world gives it.
    pub(crate) fn command(&self, kind: CommandKind, transfer: TransferId) -> Command {
        let (node, generation) = self.node_of(transfer);
        let found = self.state.transfers.get(&transfer);
        let authorization = found.and_then(|found| found.authorization.as_ref());
        let authorization = authorization.map_or(TokenId::from_u128(0), |found| found.id);
        let snapshot = found.map_or(digest("none"), |found| found.snapshot);
        match kind {
            CommandKind::Stage => match self.session().holder {
                Holder::Source { .. } => self.stage(TWO, "next", false),
                Holder::Incarnation { .. } | Holder::None => self.resume(TWO),
            },
            CommandKind::Refresh => self.refresh(transfer, "next", true),
            CommandKind::Provision => Command::Provision(Provision {
                transfer,
                token: self.token(transfer, Operation::ProvisionRuntime),
                tier: "sandbox-small".into(),
                budget: BUDGET,
                carve: false,
                node: None,
            }),
            CommandKind::Push => Command::Push { transfer, checksum: Some(snapshot) },
            CommandKind::Receipt => {
                let missing = Vec::new();
                Command::Receipt { transfer, node, generation, digest: snapshot, missing }
            }
            CommandKind::Activate => {
                Command::Activate { transfer, token: self.token(transfer, Operation::Activate) }
            }
            CommandKind::Decline => {
                let reason = "a credential did not resolve".to_owned();
                Command::Decline { transfer, node, generation, authorization, reason }
            }
            CommandKind::Withdraw => Command::Withdraw { transfer, authorization },
            CommandKind::Claim => self.claim(transfer, incarnation(50)),
            CommandKind::Reclaim => self.reclaim(incarnation(77)),
            CommandKind::Renew => self.renew(),
            CommandKind::Checkpoint => self.checkpoint("later"),
            CommandKind::Rest => Command::Rest { transfer, node, epoch: self.epoch() },
            CommandKind::Wake => Command::Wake { session: SESSION },
            CommandKind::ReportUsage => self.report(|usage| usage.totals.run_ms += 1),
            CommandKind::RecordSpend => {
                Command::RecordSpend { transfer, cost: nano(5), detail: "outside".to_owned() }
            }
            CommandKind::RaiseBudget => Command::RaiseBudget { transfer, allocated: BUDGET.plus(BUDGET) },
            CommandKind::Reassign => {
                Command::Reassign { transfer, serving_since: Timestamp::from_unix_ms(0) }
            }
            CommandKind::Terminate => {
                Command::Terminate { transfer, reason: EndReason::Requested("done".to_owned()) }
            }
            CommandKind::Expire => Command::Expire { transfer },
            CommandKind::Return => self.give_back(7),
            CommandKind::AbandonSource => Command::AbandonSource { session: SESSION },
            CommandKind::Observe => self.observe(ObservedState::Prepared),
            CommandKind::WriteOff => Command::WriteOff { transfer, epoch: self.epoch() },
        }
    }
}
