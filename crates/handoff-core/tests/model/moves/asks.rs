//! What the parties of a move ask of the control plane, and what they see of it.

use handoff_core::command::{Claim, Provision, Reclaim, Refresh, RefreshBy, Stage};
use handoff_core::token::TokenClaims;
use handoff_core::transfer::{EndReason, Ground, Outcome, Push};
use handoff_core::{Command, Epoch, Generation, Holder, Policy, Refusal, Reply, Session, State, Transfer};
use handoff_protocol::node::{ObservedState, Usage};
use handoff_protocol::request::Operation;
use handoff_protocol::{
    IncarnationId, NanoUsd, NodeId, ProjectId, SessionId, Status, Timestamp, TokenId, Totals, TransferId,
};

use crate::plane::{LONG_AGO, NOW, Plane, Questions, snapshot, work_in};

const SESSION: SessionId = SessionId::from_u128(1);
const SOURCE: &str = "source";
/// The authorisation that is open, and one that was withdrawn.
const OPEN: TokenId = TokenId::from_u128(1);
const WITHDRAWN: TokenId = TokenId::from_u128(2);

/// A question. Transfers, nodes and incarnations are small numbers; `epoch` is what the asking party believes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Ask {
    /// The source stages its snapshot.
    Stage {
        transfer: u8,
        epoch: u8,
        work: u8,
        is_final: bool,
    },
    /// An operator stages from the last accepted snapshot.
    Resume {
        transfer: u8,
    },
    Provision {
        transfer: u8,
    },
    /// The source refreshes its transfer.
    Refresh {
        transfer: u8,
        epoch: u8,
        work: u8,
        is_final: bool,
    },
    /// An operator asks the live holder for its final.
    WantFinal {
        transfer: u8,
    },
    /// The live holder's node refreshes the successor.
    Final {
        transfer: u8,
        node: u8,
        copy: u8,
        epoch: u8,
        work: u8,
    },
    Push {
        transfer: u8,
    },
    Receipt {
        transfer: u8,
    },
    Activate {
        transfer: u8,
    },
    Withdraw {
        transfer: u8,
    },
    Claim {
        transfer: u8,
        node: u8,
        generation: u8,
        copy: u8,
        work: u8,
        open: bool,
    },
    Reclaim {
        transfer: u8,
        node: u8,
        generation: u8,
        copy: u8,
        work: u8,
    },
    Renew {
        transfer: u8,
        node: u8,
        generation: u8,
        copy: u8,
        epoch: u8,
    },
    Checkpoint {
        transfer: u8,
        node: u8,
        copy: u8,
        epoch: u8,
        work: u8,
        follows: Option<u8>,
    },
    /// A node proves that a copy is gone.
    Absent {
        transfer: u8,
        node: u8,
        generation: u8,
        copy: u8,
    },
    /// A node closes the epoch of a copy that stands still, and lets it rest.
    Rest {
        transfer: u8,
        node: u8,
        epoch: u8,
    },
    Wake,
    Reassign {
        transfer: u8,
    },
    Terminate {
        transfer: u8,
    },
    Return {
        epoch: u8,
    },
    AbandonSource,
    /// Time passes until the last lease is over.
    LeaseEnds,
}

/// Who holds the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Who {
    Source,
    Copy(u8),
    Nobody,
}

/// A pending transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pending {
    pub(crate) transfer: u8,
    pub(crate) status: Status,
    pub(crate) node: u8,
    pub(crate) generation: u8,
    pub(crate) work: u8,
    /// The epoch of its final mark.
    pub(crate) mark: Option<u8>,
    /// Its holder stopped for it.
    pub(crate) quiesced: bool,
    pub(crate) pushed: bool,
    pub(crate) asked: bool,
    pub(crate) authorized: bool,
}

/// A live transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Live {
    pub(crate) transfer: u8,
    pub(crate) node: u8,
    pub(crate) generation: u8,
    /// It was resumed from the last accepted snapshot.
    pub(crate) resumed: bool,
    pub(crate) resting: bool,
}

/// What can be seen of a core state.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View {
    pub(crate) epoch: u8,
    pub(crate) holder: Who,
    pub(crate) holder_gone: bool,
    pub(crate) leased: bool,
    pub(crate) last: u8,
    /// The last accepted snapshot is the source's own final of the present epoch.
    pub(crate) own_final: bool,
    pub(crate) pending: Option<Pending>,
    pub(crate) live: Option<Live>,
}

fn id(transfer: u8) -> TransferId {
    TransferId::from_u128(u128::from(transfer))
}

fn small(number: u128) -> u8 {
    u8::try_from(number).expect("a model counts to ten")
}

fn node(node: u8) -> NodeId {
    NodeId::from_u128(u128::from(node))
}

fn incarnation(copy: u8) -> IncarnationId {
    IncarnationId::from_u128(u128::from(copy))
}

fn epoch(epoch: u8) -> Epoch {
    Epoch(u64::from(epoch))
}

fn generation(generation: u8) -> Generation {
    Generation(u64::from(generation))
}

/// The questions of a move.
pub(crate) struct Moves;

impl Questions for Moves {
    type Ask = Ask;
    type View = View;

    fn perform(&self, plane: &Plane<Self>, state: &State, ask: Ask) -> Result<(State, Reply), Refusal> {
        let mut state = state.clone();
        match ask {
            Ask::LeaseEnds => {
                if let Some(session) = &mut state.session {
                    session.lease_until = Some(LONG_AGO);
                }
                return Ok((state, Reply::Done));
            }
            Ask::Reassign { transfer } => {
                let assigned = state.transfers.get(&id(transfer)).and_then(|found| found.assignment);
                let silent = assigned.and_then(|assigned| state.rooms.get_mut(&assigned.node));
                if let Some(room) = silent {
                    room.seen_at = LONG_AGO;
                }
            }
            Ask::Rest { transfer, node, epoch } => {
                state = plane.command(&state, &closing_report(transfer, node, epoch))?.0;
            }
            _ => {}
        }
        plane.command(&state, &command(&state, ask))
    }

    /// Keeps what a decision may depend on, with every time put back.
    fn normalize(&self, state: &mut State) {
        let Some(session) = &mut state.session else { return };
        let lease = Policy::default().lease_ms;
        session.version = 0;
        session.lease_until =
            session.lease_until.map(|until| if until > NOW { NOW.plus_ms(lease) } else { LONG_AGO });
        let held = match session.holder {
            Holder::Incarnation { transfer, .. } => Some(transfer),
            Holder::Source { .. } | Holder::None => None,
        };
        state.transfers.retain(|id, found| !found.status.is_terminal() || Some(*id) == held);
        for found in state.transfers.values_mut() {
            forget(found, session.epoch);
        }
        state.rooms.values_mut().for_each(|room| room.seen_at = NOW);
    }

    fn view(&self, state: &State) -> View {
        let session = state.session.as_ref().expect("a model begins with a session");
        let of = |id: Option<TransferId>| id.map(|id| &state.transfers[&id]);
        let last = session.last_snapshot.expect("a staged session has a snapshot");
        let own = matches!(last.standing, handoff_core::Standing::Final) && last.epoch == session.epoch;
        View {
            epoch: u8::try_from(session.epoch.0).expect("epochs are few"),
            holder: match &session.holder {
                Holder::Source { .. } => Who::Source,
                Holder::Incarnation { incarnation, .. } => Who::Copy(small(incarnation.as_u128())),
                Holder::None => Who::Nobody,
            },
            holder_gone: session.holder_gone,
            leased: !handoff_core::lease::is_over(session, NOW),
            last: work_in(last.digest),
            own_final: own,
            pending: of(session.pending).map(pending),
            live: of(session.live).map(live),
        }
    }
}

/// Puts back what no decision of a move depends on: when things happened, how often, and money.
fn forget(found: &mut Transfer, epoch: Epoch) {
    (found.version, found.event_seq) = (0, 0);
    (found.staged_at, found.expires_at) = (LONG_AGO, LONG_AGO);
    found.spent_tokens.clear();
    found.former_assignments.clear();
    found.epochs.retain(|of, _| *of == epoch);
    found.ledger_closed = false;
    if let Some(ended) = &mut found.ended {
        (ended.reason, ended.at) = (EndReason::Moved, LONG_AGO);
    }
    if let Some(assignment) = &mut found.assignment {
        (assignment.observed, assignment.last_alive) = (None, None);
    }
    found.authorization = found.authorization.take().filter(|open| open.outcome == Outcome::Open);
}

fn place(found: &Transfer) -> (u8, u8) {
    let assignment = found.assignment.map(|assigned| (assigned.node.as_u128(), assigned.generation.0));
    assignment.map_or((0, 0), |(node, generation)| (small(node), small(u128::from(generation))))
}

fn pending(found: &Transfer) -> Pending {
    let (node, generation) = place(found);
    Pending {
        transfer: small(found.id.as_u128()),
        status: found.status,
        node,
        generation,
        work: work_in(found.snapshot),
        mark: found.mark.map(|mark| small(u128::from(mark.epoch.0))),
        quiesced: found.mark.is_some_and(|mark| mark.ground == Ground::Quiesced),
        pushed: matches!(found.push, Some(Push::Requested { .. })) && !found.receipt,
        asked: found.final_requested,
        authorized: found.open_authorization().is_some(),
    }
}

fn live(found: &Transfer) -> Live {
    let (node, generation) = place(found);
    let resumed = found.mark.is_some_and(|mark| mark.ground == Ground::LastAccepted);
    Live { transfer: small(found.id.as_u128()), node, generation, resumed, resting: found.resting }
}

fn token(transfer: u8, operation: Operation) -> TokenClaims {
    TokenClaims {
        id: OPEN,
        transfer: id(transfer),
        operation,
        issued_at: NOW,
        expires_at: NOW.plus_ms(1000),
        max_budget: None,
        tier: None,
    }
}

fn stage(state: &State, transfer: u8, named: u8, own: Option<(u8, bool)>) -> Command {
    Command::Stage(Stage {
        transfer: id(transfer),
        session: SESSION,
        project: ProjectId::from_u128(1),
        principal: if own.is_some() { SOURCE } else { "operator" }.to_owned(),
        expected_epoch: state.session.is_some().then_some(epoch(named)),
        snapshot: own.map(|(work, _)| snapshot(work)),
        is_final: own.is_some_and(|(_, is_final)| is_final),
        abandon_source: false,
        labels: Default::default(),
    })
}

fn refresh(transfer: u8, by: RefreshBy, named: u8, work: Option<u8>, is_final: bool) -> Command {
    let (transfer, expected_epoch, snapshot) = (id(transfer), Some(epoch(named)), work.map(snapshot));
    Command::Refresh(Refresh { transfer, by, expected_epoch, snapshot, is_final })
}

/// Stopped, with nothing spent and no hold open.
fn closing_report(transfer: u8, at: u8, of: u8) -> Command {
    let usage = Usage {
        epoch: u64::from(of),
        seq: 1,
        totals: Totals::default(),
        closing: true,
        exhausted: false,
        limit_usd: None,
        prev_hash: None,
    };
    Command::ReportUsage { transfer: id(transfer), node: node(at), usage, body: snapshot(0) }
}

/// The command that a question is.
fn command(state: &State, ask: Ask) -> Command {
    let present = state.session.as_ref().map_or(1, |session: &Session| small(u128::from(session.epoch.0)));
    match ask {
        Ask::Stage { transfer, epoch, work, is_final } => {
            stage(state, transfer, epoch, Some((work, is_final)))
        }
        Ask::Resume { transfer } => stage(state, transfer, present, None),
        Ask::Provision { transfer } => Command::Provision(Provision {
            transfer: id(transfer),
            token: token(transfer, Operation::ProvisionRuntime),
            tier: "sandbox-small".into(),
            budget: NanoUsd::from_nano(10_000_000),
            carve: false,
            node: None,
        }),
        Ask::Refresh { transfer, epoch, work, is_final } => {
            refresh(transfer, RefreshBy::Principal(SOURCE.to_owned()), epoch, Some(work), is_final)
        }
        Ask::WantFinal { transfer } => {
            refresh(transfer, RefreshBy::Principal("operator".to_owned()), present, None, true)
        }
        Ask::Final { transfer, node: at, copy, epoch, work } => {
            let by = RefreshBy::Incarnation(node(at), incarnation(copy));
            refresh(transfer, by, epoch, Some(work), true)
        }
        Ask::Push { transfer } => Command::Push { transfer: id(transfer), checksum: None },
        Ask::Receipt { transfer } => {
            let found = &state.transfers[&id(transfer)];
            let assigned = found.assignment.expect("a pushed transfer has a node");
            let (transfer, digest, missing) = (found.id, found.snapshot, Vec::new());
            let (node, generation) = (assigned.node, assigned.generation);
            Command::Receipt { transfer, node, generation, digest, missing }
        }
        Ask::Activate { transfer } => {
            Command::Activate { transfer: id(transfer), token: token(transfer, Operation::Activate) }
        }
        Ask::Withdraw { transfer } => Command::Withdraw { transfer: id(transfer), authorization: OPEN },
        Ask::Reassign { transfer } => {
            Command::Reassign { transfer: id(transfer), serving_since: Timestamp::from_unix_ms(0) }
        }
        Ask::Rest { transfer, node: at, epoch: of } => {
            Command::Rest { transfer: id(transfer), node: node(at), epoch: epoch(of) }
        }
        Ask::Wake => Command::Wake { session: SESSION },
        Ask::Terminate { transfer } => {
            Command::Terminate { transfer: id(transfer), reason: EndReason::Requested(String::new()) }
        }
        Ask::Return { epoch } => give_back(epoch),
        Ask::AbandonSource => Command::AbandonSource { session: SESSION },
        Ask::LeaseEnds => unreachable!("time is no command"),
        Ask::Claim { .. }
        | Ask::Reclaim { .. }
        | Ask::Renew { .. }
        | Ask::Checkpoint { .. }
        | Ask::Absent { .. } => of_node(ask),
    }
}

/// The source takes its session back. Its nonce was made after freezing: one for each epoch it was frozen in.
fn give_back(frozen: u8) -> Command {
    let (nonce, frozen_epoch) = (incarnation(frozen), epoch(frozen));
    Command::Return { session: SESSION, principal: SOURCE.to_owned(), nonce, frozen_epoch }
}

/// The commands of a node about one of its copies.
fn of_node(ask: Ask) -> Command {
    match ask {
        Ask::Claim { transfer, node: at, generation: number, copy, work, open } => Command::Claim(Claim {
            transfer: id(transfer),
            node: node(at),
            generation: generation(number),
            authorization: if open { OPEN } else { WITHDRAWN },
            incarnation: incarnation(copy),
            digest: snapshot(work),
        }),
        Ask::Reclaim { transfer, node: at, generation: number, copy, work } => Command::Reclaim(Reclaim {
            transfer: id(transfer),
            node: node(at),
            generation: generation(number),
            incarnation: incarnation(copy),
            digest: snapshot(work),
        }),
        Ask::Renew { transfer, node: at, generation: number, copy, epoch: of } => Command::Renew {
            transfer: id(transfer),
            node: node(at),
            epoch: epoch(of),
            generation: generation(number),
            incarnation: incarnation(copy),
        },
        Ask::Checkpoint { transfer, node: at, copy, epoch: of, work, follows } => Command::Checkpoint {
            transfer: id(transfer),
            node: node(at),
            epoch: epoch(of),
            incarnation: incarnation(copy),
            digest: snapshot(work),
            follows: follows.map(snapshot),
        },
        Ask::Absent { transfer, node: at, generation: number, copy } => Command::Observe {
            transfer: id(transfer),
            node: node(at),
            generation: generation(number),
            state: ObservedState::Absent,
            last_alive: None,
            incarnation: Some(incarnation(copy)),
        },
        other => unreachable!("{other:?} is not a node's"),
    }
}
