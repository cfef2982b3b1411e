//! What meters and orchestrators ask of the control plane about money, and what they see of it.

use handoff_core::command::{Claim, Provision, Reclaim, Stage};
use handoff_core::token::TokenClaims;
use handoff_core::transfer::{Closing, EndReason};
use handoff_core::{Command, Epoch, Generation, Policy, Refusal, Reply, State, Transfer};
use handoff_protocol::money::PicoUsd;
use handoff_protocol::node::Usage;
use handoff_protocol::request::Operation;
use handoff_protocol::{
    Digest, IncarnationId, NanoUsd, NodeId, ProjectId, SessionId, Status, Tier, Timestamp, TokenId, Totals,
    TransferId,
};

use crate::plane::{LONG_AGO, NOW, Plane, Questions, snapshot};

/// How many epochs there may be. The first one with money is the second of its session.
pub(crate) const EPOCHS: usize = 3;
const FIRST: u64 = 2;

const SESSION: SessionId = SessionId::from_u128(1);
const MOVED: TransferId = TransferId::from_u128(1);
const SUCCESSOR: TransferId = TransferId::from_u128(2);
const NODE: NodeId = NodeId::from_u128(1);

/// A tick costs 1, a call at most 2, the wind-down 1.
pub(crate) const TICK: u8 = 1;
pub(crate) const CALL: u8 = 2;
pub(crate) const RESERVE: u8 = 1;

/// A question. Epochs are counted from 0; amounts are nano-USD.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Ask {
    Report(Report),
    /// The lease is over, and another incarnation takes the session.
    NextEpoch,
    Raise {
        by: u8,
    },
    Terminate,
    Record {
        cost: u8,
    },
    WriteOff {
        epoch: u8,
    },
    /// Five minutes pass.
    WaitEnds,
    /// A successor is staged and paid for out of this transfer's budget; and it ends unclaimed.
    Carve {
        amount: u8,
    },
    GiveBack,
    /// Nothing of an epoch is under way: which number its last report had does not matter.
    Forget {
        epoch: u8,
    },
}

/// A meter's report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Report {
    pub(crate) epoch: u8,
    pub(crate) seq: u8,
    pub(crate) spent: u8,
    pub(crate) closing: bool,
    pub(crate) exhausted: bool,
    /// The limit that the meter knew.
    pub(crate) limit: u8,
}

/// An epoch in the books.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Account {
    pub(crate) limit: u8,
    pub(crate) spent: u8,
    /// By its closing report, or written off.
    pub(crate) closed: Option<bool>,
    pub(crate) seq: u8,
}

/// What can be seen of a core state.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View {
    pub(crate) status: Status,
    /// The present epoch.
    pub(crate) epoch: u8,
    pub(crate) accounts: [Account; EPOCHS],
    pub(crate) allocated: u8,
    pub(crate) recorded: u8,
    pub(crate) charged: u8,
    pub(crate) spent: u8,
    pub(crate) waiting: bool,
    pub(crate) successor: bool,
}

/// The questions about money.
pub(crate) struct Money;

impl Money {
    /// A policy with small round prices.
    pub(crate) fn policy() -> Policy {
        let tier = Tier {
            name: "tiny".into(),
            cpu_millis: 1,
            memory_bytes: 1,
            pids: 1,
            egress_bits_per_second: 1,
            run_price: PicoUsd::from_pico(1000),
            frozen_price: PicoUsd::from_pico(0),
        };
        let wind_down = NanoUsd::from_nano(i64::from(RESERVE));
        Policy {
            tick_ms: u64::from(TICK),
            final_snapshot_cost: wind_down,
            tiers: vec![tier],
            ..Policy::default()
        }
    }

    /// A transfer that has just become active with this budget.
    pub(crate) fn beginning(plane: &Plane<Self>, budget: u8) -> u32 {
        let room = handoff_core::placement::Room { cpu_millis: 100, memory_bytes: 100, seen_at: NOW };
        let mut state = State { rooms: [(NODE, room)].into(), ..State::default() };
        let stage = Stage { snapshot: Some(snapshot(0)), is_final: true, ..stage(MOVED) };
        let (node, generation, digest) = (NODE, Generation::FIRST, snapshot(0));
        let (incarnation, authorization) = (incarnation(0), TokenId::from_u128(2));
        let transfer = MOVED;
        for command in [
            Command::Stage(stage),
            Command::Provision(provision(MOVED, budget, false)),
            Command::Push { transfer, checksum: None },
            Command::Receipt { transfer, node, generation, digest, missing: Vec::new() },
            Command::Activate { transfer, token: token(MOVED, Operation::Activate, 2) },
            Command::Claim(Claim { transfer, node, generation, authorization, incarnation, digest }),
        ] {
            let done = plane.command(&state, &command);
            state = done.unwrap_or_else(|refusal| panic!("a model can begin: {refusal}")).0;
        }
        plane.number(state)
    }
}

impl Questions for Money {
    type Ask = Ask;
    type View = View;

    fn perform(&self, plane: &Plane<Self>, state: &State, ask: Ask) -> Result<(State, Reply), Refusal> {
        let mut state = state.clone();
        match ask {
            Ask::NextEpoch => {
                if let Some(session) = &mut state.session {
                    session.lease_until = Some(LONG_AGO);
                }
            }
            Ask::WaitEnds => {
                let found = state.transfers.get_mut(&MOVED);
                let waiting = found.and_then(|found| found.waiting_since.as_mut());
                if let Some(since) = waiting {
                    *since = LONG_AGO;
                }
                return Ok((state, Reply::Done));
            }
            Ask::Forget { epoch: of } => {
                let found = state.transfers.get_mut(&MOVED);
                if let Some(account) = found.and_then(|found| found.epochs.get_mut(&epoch(of))) {
                    (account.seq, account.body) = (1, None);
                }
                return Ok((state, Reply::Done));
            }
            Ask::Carve { .. } => {
                let next = Stage { principal: "operator".to_owned(), ..stage(SUCCESSOR) };
                let epoch = state.session.as_ref().map(|session| session.epoch);
                let next = Command::Stage(Stage { expected_epoch: epoch, ..next });
                state = plane.command(&state, &next)?.0;
            }
            Ask::Report(_)
            | Ask::Raise { .. }
            | Ask::Terminate
            | Ask::Record { .. }
            | Ask::WriteOff { .. }
            | Ask::GiveBack => {}
        }
        plane.command(&state, &command(&state, ask))
    }

    fn normalize(&self, state: &mut State) {
        let Some(session) = &mut state.session else { return };
        session.version = 0;
        session.lease_until = session.lease_until.map(|_| NOW.plus_ms(1));
        state.transfers.retain(|id, found| *id == MOVED || !found.status.is_terminal());
        for found in state.transfers.values_mut() {
            (found.version, found.event_seq) = (0, 0);
            (found.staged_at, found.expires_at) = (LONG_AGO, NOW.plus_ms(1));
            found.grace_until = found.grace_until.map(|_| NOW.plus_ms(1));
            let waited = |since: Timestamp| if since == LONG_AGO { LONG_AGO } else { NOW };
            found.waiting_since = found.waiting_since.map(waited);
            found.spent_tokens.clear();
            if let Some(ended) = &mut found.ended {
                (ended.reason, ended.at) = (EndReason::Moved, LONG_AGO);
            }
        }
    }

    fn view(&self, state: &State) -> View {
        let found = &state.transfers[&MOVED];
        let budget = found.budget.expect("an active transfer has a budget");
        let mut accounts = [Account::default(); EPOCHS];
        for (epoch, account) in &found.epochs {
            accounts[usize::from(number(*epoch))] = Account {
                limit: small(account.limit),
                spent: small(account.totals.spendable()),
                closed: account.closed.map(|closed| closed == Closing::Reported),
                seq: u8::try_from(account.seq).expect("reports are few"),
            };
        }
        let session = state.session.as_ref().expect("a model begins with a session");
        View {
            status: found.status,
            epoch: number(session.epoch),
            accounts,
            allocated: small(budget.allocated),
            recorded: small(budget.recorded),
            charged: small(charged(found)),
            spent: small(found.spent()),
            waiting: found.waiting_since.is_some(),
            successor: session.pending.is_some(),
        }
    }
}

/// What the books say with every rule in force, whatever the model left out.
fn charged(found: &Transfer) -> NanoUsd {
    found.charged(&Policy::default())
}

fn number(epoch: Epoch) -> u8 {
    u8::try_from(epoch.0 - FIRST).expect("epochs are few")
}

fn epoch(number: u8) -> Epoch {
    Epoch(u64::from(number) + FIRST)
}

fn small(amount: NanoUsd) -> u8 {
    u8::try_from(amount.nano()).expect("amounts are small")
}

fn nano(amount: u8) -> NanoUsd {
    NanoUsd::from_nano(i64::from(amount))
}

fn incarnation(number: u8) -> IncarnationId {
    IncarnationId::from_u128(u128::from(number))
}

fn token(transfer: TransferId, operation: Operation, id: u128) -> TokenClaims {
    TokenClaims {
        id: TokenId::from_u128(id),
        transfer,
        operation,
        issued_at: NOW,
        expires_at: NOW.plus_ms(1000),
        max_budget: None,
        tier: None,
    }
}

fn stage(transfer: TransferId) -> Stage {
    Stage {
        transfer,
        session: SESSION,
        project: ProjectId::from_u128(1),
        principal: "source".to_owned(),
        expected_epoch: None,
        snapshot: None,
        is_final: false,
        abandon_source: false,
        labels: Default::default(),
    }
}

fn provision(transfer: TransferId, budget: u8, carve: bool) -> Provision {
    let token = token(transfer, Operation::ProvisionRuntime, 1);
    Provision { transfer, token, tier: "tiny".into(), budget: nano(budget), carve, node: None }
}

/// The command that a question is.
fn command(state: &State, ask: Ask) -> Command {
    let transfer = MOVED;
    let present = state.session.as_ref().map_or(0, |session| number(session.epoch));
    match ask {
        Ask::Report(report) => Command::ReportUsage {
            transfer,
            node: NODE,
            usage: Usage {
                epoch: epoch(report.epoch).0,
                seq: u64::from(report.seq),
                totals: Totals { model_usd: nano(report.spent), ..Totals::default() },
                closing: report.closing,
                exhausted: report.exhausted,
                limit_usd: Some(nano(report.limit)),
                prev_hash: None,
            },
            body: Digest::of(format!("{report:?}").as_bytes()),
        },
        Ask::NextEpoch => Command::Reclaim(Reclaim {
            transfer,
            node: NODE,
            generation: Generation::FIRST,
            incarnation: incarnation(present + 1),
            digest: snapshot(0),
        }),
        Ask::Raise { by } => {
            let budget = state.transfers[&MOVED].budget.expect("an active transfer has a budget");
            Command::RaiseBudget { transfer, allocated: budget.allocated.plus(nano(by)) }
        }
        Ask::Terminate => Command::Terminate { transfer, reason: EndReason::Requested(String::new()) },
        Ask::Record { cost } => Command::RecordSpend { transfer, cost: nano(cost), detail: String::new() },
        Ask::WriteOff { epoch: of } => Command::WriteOff { transfer, epoch: epoch(of) },
        Ask::Carve { amount } => Command::Provision(provision(SUCCESSOR, amount, true)),
        Ask::GiveBack => {
            Command::Terminate { transfer: SUCCESSOR, reason: EndReason::Requested(String::new()) }
        }
        Ask::WaitEnds | Ask::Forget { .. } => unreachable!("neither is a command"),
    }
}
