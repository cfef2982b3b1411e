//! Random numbers read as commands: mostly what somebody who knows the session would give, sometimes what
//! somebody who knows an older state of it gives.

use std::collections::BTreeMap;

use handoff_core::command::{Claim, Provision, Reclaim, Refresh, RefreshBy, Stage};
use handoff_core::grid::CommandKind;
use handoff_core::placement::Room;
use handoff_core::token::TokenClaims;
use handoff_core::transfer::EndReason;
use handoff_core::{Command, Epoch, Generation, Holder, Policy, State, Transfer, desired};
use handoff_protocol::node::{ObservedState, Usage};
use handoff_protocol::request::{Labels, Operation};
use handoff_protocol::{
    Digest, IncarnationId, NanoUsd, NodeId, ProjectId, SessionId, Timestamp, TokenId, TransferId,
};
use proptest::prelude::*;

pub(crate) const SESSION: SessionId = SessionId::from_u128(1);
const NODES: u128 = 3;

/// One random step: what to do, with which odds and amounts, and how much later.
#[derive(Debug, Clone)]
pub(crate) struct Step {
    kind: usize,
    pick: u8,
    stale: bool,
    amount: u16,
    pub(crate) later_ms: u64,
}

/// Commands that lead on come more often than the ones that end things.
const KINDS: &[(CommandKind, u32)] = &[
    (CommandKind::Stage, 6),
    (CommandKind::Refresh, 6),
    (CommandKind::Provision, 6),
    (CommandKind::Push, 6),
    (CommandKind::Receipt, 6),
    (CommandKind::Activate, 6),
    (CommandKind::Claim, 9),
    (CommandKind::Decline, 1),
    (CommandKind::Withdraw, 1),
    (CommandKind::Reclaim, 4),
    (CommandKind::Renew, 4),
    (CommandKind::Checkpoint, 4),
    (CommandKind::Rest, 2),
    (CommandKind::Wake, 2),
    (CommandKind::ReportUsage, 12),
    (CommandKind::RecordSpend, 1),
    (CommandKind::RaiseBudget, 2),
    (CommandKind::Reassign, 4),
    (CommandKind::Terminate, 1),
    (CommandKind::Expire, 1),
    (CommandKind::Return, 3),
    (CommandKind::AbandonSource, 1),
    (CommandKind::Observe, 3),
    (CommandKind::WriteOff, 1),
];

pub(crate) fn steps() -> impl Strategy<Value = Vec<Step>> {
    let weighted: Vec<(u32, Just<usize>)> =
        KINDS.iter().enumerate().map(|(index, (_, weight))| (*weight, Just(index))).collect();
    let kind = proptest::strategy::Union::new_weighted(weighted);
    let later = prop_oneof![6 => 0u64..2_000, 3 => 2_000u64..40_000, 1 => 40_000u64..2_000_000];
    let stale = prop::bool::weighted(0.08);
    let step = (kind, any::<u8>(), stale, any::<u16>(), later)
        .prop_map(|(kind, pick, stale, amount, later_ms)| Step { kind, pick, stale, amount, later_ms });
    let walk = prop::collection::vec(step, 1..80);
    (0..=ROAD.len(), walk).prop_map(|(start, walk)| [road(start), walk].concat())
}

/// How a transfer becomes active.
const ROAD: &[CommandKind] = &[
    CommandKind::Stage,
    CommandKind::Provision,
    CommandKind::Push,
    CommandKind::Receipt,
    CommandKind::Activate,
    CommandKind::Claim,
];

/// The first steps of that road: many histories start somewhere on it.
fn road(start: usize) -> Vec<Step> {
    let step = |kind: &CommandKind| {
        let kind = KINDS.iter().position(|(known, _)| known == kind).expect("every kind has a weight");
        Step { kind, pick: 1, stale: false, amount: u16::MAX - 1, later_ms: 1 }
    };
    ROAD[..start].iter().map(step).collect()
}

/// Rooms for three nodes that are heard of all the time.
pub(crate) fn rooms(state: &mut State, now: Timestamp) {
    let room = Room { cpu_millis: 64_000, memory_bytes: 64 << 30, seen_at: now };
    state.rooms = (1..=NODES).map(|number| (NodeId::from_u128(number), room)).collect();
}

/// Reads steps as commands on the present state.
pub(crate) struct Reader {
    minted: u128,
    /// The most that each assignment's meter was ever told that the wind-down may cost there.
    wind_downs: BTreeMap<(TransferId, Generation), NanoUsd>,
}

impl Reader {
    pub(crate) fn new() -> Self {
        Self { minted: 0, wind_downs: BTreeMap::new() }
    }

    fn mint(&mut self) -> u128 {
        self.minted += 1;
        self.minted
    }

    /// Nodes hear what is wanted of them.
    fn tell_nodes(&mut self, policy: &Policy, state: &State, now: Timestamp) {
        let Some(session) = &state.session else { return };
        for (node, found) in
            state.rooms.keys().flat_map(|node| state.transfers.values().map(move |found| (node, found)))
        {
            for entry in desired::entries(policy, session, found, *node, now) {
                let place = (entry.transfer_id, Generation(entry.generation));
                let told = self.wind_downs.entry(place).or_insert(entry.wind_down_usd);
                *told = entry.wind_down_usd.max(*told);
            }
        }
    }

    pub(crate) fn command(&mut self, policy: &Policy, state: &State, step: &Step, now: Timestamp) -> Command {
        self.tell_nodes(policy, state, now);
        let kind = KINDS[step.kind].0;
        let subject = Subject::of(state, kind, step);
        match kind {
            CommandKind::Stage => Command::Stage(self.stage(state, step)),
            CommandKind::Refresh => Command::Refresh(self.refresh(state, &subject, step)),
            CommandKind::Provision => Command::Provision(Provision {
                transfer: subject.id,
                token: self.token(&subject, Operation::ProvisionRuntime, now),
                tier: "sandbox-small".into(),
                budget: amount(step, 4_000_000),
                carve: step.pick.is_multiple_of(2),
                node: None,
            }),
            CommandKind::Activate => {
                let token = self.token(&subject, Operation::Activate, now);
                Command::Activate { transfer: subject.id, token }
            }
            CommandKind::Claim => Command::Claim(self.claim(&subject, step)),
            CommandKind::Reclaim => Command::Reclaim(self.reclaim(state, &subject, step)),
            CommandKind::ReportUsage => {
                let metered = subject.account.map_or(subject.generation, |account| account.generation);
                let told = self.wind_downs.get(&(subject.id, metered)).copied();
                report(policy, &subject, told.unwrap_or(NanoUsd::ZERO), step)
            }
            CommandKind::Return => Command::Return {
                session: SESSION,
                principal: principal(step),
                nonce: IncarnationId::from_u128(u128::from(step.pick % 3)),
                frozen_epoch: subject.epoch,
            },
            CommandKind::Push
            | CommandKind::Receipt
            | CommandKind::Decline
            | CommandKind::Withdraw
            | CommandKind::Renew
            | CommandKind::Checkpoint
            | CommandKind::Rest
            | CommandKind::Wake
            | CommandKind::RecordSpend
            | CommandKind::RaiseBudget
            | CommandKind::Reassign
            | CommandKind::Terminate
            | CommandKind::Expire
            | CommandKind::AbandonSource
            | CommandKind::Observe
            | CommandKind::WriteOff => self.plain(kind, state, &subject, step, now),
        }
    }

    fn plain(
        &mut self,
        kind: CommandKind,
        state: &State,
        subject: &Subject,
        step: &Step,
        now: Timestamp,
    ) -> Command {
        let Subject { id: transfer, node, generation, epoch, incarnation, authorization, snapshot, .. } =
            *subject;
        match kind {
            CommandKind::Push => Command::Push { transfer, checksum: Some(snapshot) },
            CommandKind::Receipt => {
                let missing =
                    if step.pick.is_multiple_of(16) { vec!["env://keys/A".to_owned()] } else { vec![] };
                Command::Receipt { transfer, node, generation, digest: snapshot, missing }
            }
            CommandKind::Decline => {
                Command::Decline { transfer, node, generation, authorization, reason: "no".to_owned() }
            }
            CommandKind::Withdraw => Command::Withdraw { transfer, authorization },
            CommandKind::Renew => Command::Renew { transfer, node, epoch, generation, incarnation },
            CommandKind::Checkpoint => {
                let digest = self.digest();
                let follows = state.session.as_ref().and_then(|session| session.last_snapshot);
                let follows = follows.map(|last| last.digest).filter(|_| !step.stale);
                Command::Checkpoint { transfer, node, epoch, incarnation, digest, follows }
            }
            CommandKind::Rest => Command::Rest { transfer, node, epoch },
            CommandKind::Wake => Command::Wake { session: SESSION },
            CommandKind::RecordSpend => {
                Command::RecordSpend { transfer, cost: amount(step, 50_000), detail: String::new() }
            }
            CommandKind::RaiseBudget => {
                Command::RaiseBudget { transfer, allocated: subject.allocated.plus(amount(step, 1_000_000)) }
            }
            CommandKind::Reassign => {
                Command::Reassign { transfer, serving_since: Timestamp::from_unix_ms(0) }
            }
            CommandKind::Terminate => {
                let grace = step.pick.is_multiple_of(2);
                let reason = EndReason::Requested("enough".to_owned());
                Command::Terminate {
                    transfer,
                    reason: if grace { EndReason::GracePeriodExpired } else { reason },
                }
            }
            CommandKind::Expire => Command::Expire { transfer },
            CommandKind::AbandonSource => Command::AbandonSource { session: SESSION },
            CommandKind::Observe => {
                let states = [ObservedState::Running, ObservedState::Absent, ObservedState::Failed];
                let state = states[usize::from(step.pick) % states.len()];
                // Of a holder that is gone, or of a place that nothing is left of.
                let incarnation = Some(incarnation).filter(|_| step.amount.is_multiple_of(2));
                let last_alive = Some(now);
                Command::Observe { transfer, node, generation, state, last_alive, incarnation }
            }
            CommandKind::WriteOff => Command::WriteOff { transfer, epoch },
            other => unreachable!("{other} carries more than this"),
        }
    }

    fn digest(&mut self) -> Digest {
        Digest::of(&self.mint().to_be_bytes())
    }

    fn token(&mut self, subject: &Subject, operation: Operation, now: Timestamp) -> TokenClaims {
        TokenClaims {
            id: TokenId::from_u128(self.mint()),
            transfer: subject.id,
            operation,
            issued_at: now,
            expires_at: now.plus_ms(300_000),
            max_budget: None,
            tier: None,
        }
    }

    fn stage(&mut self, state: &State, step: &Step) -> Stage {
        let session = state.session.as_ref();
        let held = session.is_none_or(|session| matches!(session.holder, Holder::Source { .. }));
        let own = held && !step.pick.is_multiple_of(4);
        Stage {
            transfer: TransferId::from_u128(self.mint()),
            session: SESSION,
            project: ProjectId::from_u128(1),
            principal: principal(step),
            expected_epoch: session.map(|session| session.epoch),
            snapshot: (own || session.is_none()).then(|| self.digest()),
            is_final: step.amount.is_multiple_of(2),
            abandon_source: step.pick.is_multiple_of(8),
            labels: Labels::default(),
        }
    }

    fn refresh(&mut self, state: &State, subject: &Subject, step: &Step) -> Refresh {
        let holder = state.session.as_ref().map(|session| &session.holder);
        let by = match holder {
            Some(Holder::Incarnation { node, incarnation, .. }) => {
                RefreshBy::Incarnation(*node, *incarnation)
            }
            Some(Holder::Source { .. } | Holder::None) | None => RefreshBy::Principal(principal(step)),
        };
        let asks = step.pick.is_multiple_of(5);
        let snapshot = if asks { None } else { Some(self.digest()) };
        let is_final = !step.pick.is_multiple_of(3);
        Refresh { transfer: subject.id, by, expected_epoch: Some(subject.epoch), snapshot, is_final }
    }

    fn claim(&mut self, subject: &Subject, step: &Step) -> Claim {
        let fresh = IncarnationId::from_u128(1000 + self.mint());
        Claim {
            transfer: subject.id,
            node: subject.node,
            generation: subject.generation,
            authorization: subject.authorization,
            incarnation: if step.stale { subject.incarnation } else { fresh },
            digest: subject.snapshot,
        }
    }

    fn reclaim(&mut self, state: &State, subject: &Subject, step: &Step) -> Reclaim {
        let last = state.session.as_ref().and_then(|session| session.last_snapshot);
        let claim = self.claim(subject, step);
        Reclaim {
            transfer: claim.transfer,
            node: claim.node,
            generation: claim.generation,
            incarnation: claim.incarnation,
            digest: last.map_or(claim.digest, |last| last.digest),
        }
    }
}

fn principal(step: &Step) -> String {
    if step.stale { "stranger".to_owned() } else { "laptop".to_owned() }
}

fn amount(step: &Step, most: i64) -> NanoUsd {
    NanoUsd::from_nano(most * i64::from(step.amount) / i64::from(u16::MAX))
}

/// The transfer that a command is about, with what it must name.
struct Subject {
    id: TransferId,
    node: NodeId,
    generation: Generation,
    epoch: Epoch,
    incarnation: IncarnationId,
    authorization: TokenId,
    snapshot: Digest,
    allocated: NanoUsd,
    account: Option<handoff_core::transfer::EpochAccount>,
    /// What the assignment of that epoch has charged to the wind-down.
    wound: NanoUsd,
}

impl Subject {
    fn of(state: &State, kind: CommandKind, step: &Step) -> Self {
        let session = state.session.as_ref();
        let wanted = |found: &&Transfer| kind.legal_from().contains(&found.status);
        let legal: Vec<&Transfer> = state.transfers.values().filter(wanted).collect();
        let all: Vec<&Transfer> = state.transfers.values().collect();
        let pool = if legal.is_empty() || step.stale { &all } else { &legal };
        let found = pool.get(usize::from(step.pick) % pool.len().max(1)).copied();
        let mut epoch = session.map_or(Epoch::FIRST, |session| session.epoch);
        if matches!(kind, CommandKind::ReportUsage | CommandKind::WriteOff) || step.stale {
            let epochs: Vec<Epoch> = found.map_or(Vec::new(), |found| found.epochs.keys().copied().collect());
            epoch = epochs.get(usize::from(step.amount) % epochs.len().max(1)).copied().unwrap_or(epoch);
        }
        let assignment = found.and_then(|found| found.assignment);
        let account = found.and_then(|found| found.epochs.get(&epoch)).copied();
        let holder = match session.map(|session| &session.holder) {
            Some(Holder::Incarnation { incarnation, .. }) => *incarnation,
            Some(Holder::Source { .. } | Holder::None) | None => IncarnationId::from_u128(0),
        };
        let budget = found.and_then(|found| found.budget);
        let metered = account.map(|account| account.generation);
        let wound = found.map_or(NanoUsd::ZERO, |found| {
            let own = found.epochs.values().filter(|other| Some(other.generation) == metered);
            own.map(|account| account.totals.wind_down_usd).sum()
        });
        Self {
            id: found.map_or(TransferId::from_u128(0), |found| found.id),
            node: assignment.map_or(NodeId::from_u128(1), |found| found.node),
            generation: assignment.map_or(Generation::FIRST, |found| found.generation),
            epoch,
            incarnation: account.filter(|_| step.stale).map_or(holder, |account| account.incarnation),
            authorization: found
                .and_then(|found| found.authorization.as_ref())
                .map_or(TokenId::from_u128(0), |open| open.id),
            snapshot: found.map_or(Digest::of(b""), |found| found.snapshot),
            allocated: budget.map_or(NanoUsd::ZERO, |budget| budget.allocated),
            account,
            wound,
        }
    }
}

/// An honest meter's report: within the limit, and within the wind-down.
fn report(policy: &Policy, subject: &Subject, reserve: NanoUsd, step: &Step) -> Command {
    let account = subject.account;
    let mut totals = account.map_or_else(Default::default, |account| account.totals);
    let room = account.map_or(NanoUsd::ZERO, |account| account.limit).minus(totals.spendable());
    let everything = step.pick.is_multiple_of(2);
    let more = if everything { room } else { amount(step, 400_000).min(room) };
    totals.model_usd = totals.model_usd.plus(more);
    totals.wind_down_usd = totals.wind_down_usd.plus(amount(step, 200_000).min(reserve.minus(subject.wound)));
    totals.run_ms += policy.tick_ms;
    let seq = account.map_or(0, |account| account.seq);
    let usage = Usage {
        epoch: subject.epoch.0,
        seq: if step.stale { seq } else { seq + 1 },
        totals,
        closing: step.pick.is_multiple_of(7),
        exhausted: everything,
        limit_usd: None,
        prev_hash: None,
    };
    let node = account.map_or(subject.node, |account| account.node);
    let body = Digest::of(format!("{usage:?}").as_bytes());
    Command::ReportUsage { transfer: subject.id, node, usage, body }
}
