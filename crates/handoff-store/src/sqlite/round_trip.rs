//! Whatever a session or transfer can be reads back as it was written, field by field.

use std::collections::{BTreeMap, BTreeSet};

use handoff_core::state::{Accepted, Epoch, Generation, Holder, LastReturn, Session, Standing};
use handoff_core::transfer::{
    Assignment, Authorization, Budget, Carved, Closing, EndReason, Ended, EpochAccount, FinalMark, Ground,
    Outcome, Push, Transfer,
};
use handoff_protocol::money::PicoUsd;
use handoff_protocol::node::ObservedState;
use handoff_protocol::request::Labels;
use handoff_protocol::totals::Tokens;
use handoff_protocol::{Digest, NanoUsd, ProjectId, Status, Tier, TierName, Timestamp, Totals};
use proptest::collection::{btree_map, btree_set, vec};
use proptest::option;
use proptest::prelude::*;
use rusqlite::Connection;

use super::{assignment_row, authorization_row, budget_row, epoch_row, load, open, project_row, session_row};
use super::{token_row, transfer_row};
use crate::changes::{AuthorizationChange, SessionChange, SpentToken, TransferChange};

pub(super) const PROJECT: ProjectId = ProjectId::from_u128(1);
pub(super) const AT: Timestamp = Timestamp::from_unix_ms(1_000);

/// A database with the present schema and one project.
pub(super) fn database() -> Connection {
    let mut connection = Connection::open_in_memory().expect("memory");
    connection.pragma_update(None, "foreign_keys", true).expect("a known setting");
    open::migrate(&mut connection).expect("the schema is made");
    project_row::touch(&connection, PROJECT, AT).expect("a project");
    connection
}

/// A session that a source holds.
pub(super) fn session() -> Session {
    Session {
        id: handoff_protocol::SessionId::from_u128(1),
        project: PROJECT,
        labels: Labels::new(),
        epoch: Epoch(2),
        holder: Holder::None,
        pending: None,
        live: None,
        lease_until: None,
        holder_gone: false,
        last_snapshot: None,
        last_return: None,
        version: 3,
    }
}

/// A transfer of it with a budget and a lease.
pub(super) fn transfer(session: &Session) -> Transfer {
    let id = handoff_protocol::TransferId::from_u128(2);
    let mut transfer = Transfer::staged(id, session.id, Digest::of(b"a"), None, AT, AT);
    let nano = NanoUsd::from_nano;
    transfer.budget =
        Some(Budget { allocated: nano(100), reserve: nano(5), recorded: nano(0), carved: None });
    let account = EpochAccount {
        node: handoff_protocol::NodeId::from_u128(1),
        generation: Generation::FIRST,
        incarnation: handoff_protocol::IncarnationId::from_u128(1),
        limit: nano(50),
        totals: Totals::default(),
        seq: 0,
        body: None,
        closed: None,
    };
    transfer.epochs = [(Epoch(2), account)].into();
    transfer
}

/// Writes a transfer with all that hangs on it.
pub(super) fn write(connection: &Connection, before: Option<&Transfer>, after: &Transfer) {
    let change = TransferChange { project: PROJECT, before: before.cloned(), after: after.clone() };
    transfer_row::write(connection, &change, AT).expect("the transfer is written");
    budget_row::write(connection, &change).expect("its budget is written");
    epoch_row::write(connection, &change, AT).expect("its epochs are written");
    assignment_row::write(connection, &change).expect("its assignments are written");
    if let Some(authorization) = after.authorization.clone() {
        let change = AuthorizationChange { project: PROJECT, transfer: after.id, authorization };
        authorization_row::write(connection, &change).expect("its authorisation is written");
    }
    for token in &after.spent_tokens {
        let operation = handoff_protocol::request::Operation::Activate;
        let (project, transfer, token, expires_at) = (PROJECT, after.id, *token, AT);
        let spent = SpentToken { project, transfer, token, operation, expires_at };
        token_row::write(connection, &spent, AT).expect("its tokens are spent");
    }
}

fn id<T: From<uuid::Uuid> + std::fmt::Debug>() -> impl Strategy<Value = T> {
    any::<u128>().prop_map(|bits| T::from(uuid::Uuid::from_u128(bits)))
}

fn time() -> impl Strategy<Value = Timestamp> {
    any::<i64>().prop_map(Timestamp::from_unix_ms)
}

fn nano() -> impl Strategy<Value = NanoUsd> {
    (0..i64::MAX).prop_map(NanoUsd::from_nano)
}

fn digest() -> impl Strategy<Value = Digest> {
    any::<[u8; 32]>().prop_map(Digest::from_bytes)
}

fn epoch() -> impl Strategy<Value = Epoch> {
    any::<u64>().prop_map(Epoch)
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![any::<String>(), Just("moved".to_owned()), Just("a\u{0}b'\"\\".to_owned())]
}

fn one_of<T: Copy + std::fmt::Debug + 'static>(values: &'static [T]) -> impl Strategy<Value = T> {
    prop::sample::select(values)
}

fn any_session() -> impl Strategy<Value = Session> {
    let holder = prop_oneof![
        text().prop_map(|principal| Holder::Source { principal }),
        (id(), id(), id(), any::<u64>()).prop_map(|(incarnation, transfer, node, generation)| {
            Holder::Incarnation { incarnation, transfer, node, generation: Generation(generation) }
        }),
        Just(Holder::None),
    ];
    let standing = one_of(&[Standing::Draft, Standing::Final, Standing::Checkpoint]);
    let accepted = (digest(), epoch(), standing).prop_map(|(digest, epoch, standing)| Accepted {
        digest,
        epoch,
        standing,
    });
    let last_return = (id(), epoch()).prop_map(|(nonce, epoch)| LastReturn { nonce, epoch });
    let who = (id(), btree_map(text(), text(), 0..4), epoch(), holder, any::<u64>());
    let what = (
        option::of(id()),
        option::of(id()),
        option::of(time()),
        any::<bool>(),
        option::of(accepted),
        option::of(last_return),
    );
    (who, what).prop_map(|((id, labels, epoch, holder, version), what)| {
        let (pending, live, lease_until, holder_gone, last_snapshot, last_return) = what;
        let project = PROJECT;
        Session {
            id,
            project,
            labels,
            epoch,
            holder,
            pending,
            live,
            lease_until,
            holder_gone,
            last_snapshot,
            last_return,
            version,
        }
    })
}

fn any_tier() -> impl Strategy<Value = Tier> {
    let figures = (any::<u32>(), any::<u64>(), any::<u32>(), any::<u64>(), any::<u64>(), any::<u64>());
    (text(), figures).prop_map(|(name, (cpu_millis, memory_bytes, pids, egress, run, frozen))| Tier {
        name: TierName(name),
        cpu_millis,
        memory_bytes,
        pids,
        egress_bits_per_second: egress,
        run_price: PicoUsd::from_pico(run),
        frozen_price: PicoUsd::from_pico(frozen),
    })
}

fn any_budget() -> impl Strategy<Value = Budget> {
    let carved = (id(), nano()).prop_map(|(from, amount)| Carved { from, amount });
    (nano(), nano(), nano(), option::of(carved)).prop_map(|(allocated, reserve, recorded, carved)| Budget {
        allocated,
        reserve,
        recorded,
        carved,
    })
}

fn any_totals() -> impl Strategy<Value = Totals> {
    let counts = any::<[u64; 9]>();
    ((nano(), nano(), nano(), nano()), counts).prop_map(|((model, compute, egress, wind_down), counts)| {
        let [input, cache_read, cache_write_5m, cache_write_1h, output, reasoning, run_ms, frozen_ms, bytes] =
            counts;
        Totals {
            model_usd: model,
            compute_usd: compute,
            egress_usd: egress,
            wind_down_usd: wind_down,
            tokens: Tokens { input, cache_read, cache_write_5m, cache_write_1h, output, reasoning },
            run_ms,
            frozen_ms,
            egress_bytes: bytes,
        }
    })
}

fn any_account() -> impl Strategy<Value = EpochAccount> {
    let closed = option::of(one_of(&[Closing::Reported, Closing::WrittenOff]));
    let report = option::of((1..u64::MAX, digest(), any_totals()));
    let place = (id(), any::<u64>().prop_map(Generation));
    (place, id(), nano(), report, closed).prop_map(|(place, incarnation, limit, report, closed)| {
        let (node, generation) = place;
        let (seq, body, totals) = match report {
            Some((seq, body, totals)) => (seq, Some(body), totals),
            None => (0, None, Totals::default()),
        };
        EpochAccount { node, generation, incarnation, limit, totals, seq, body, closed }
    })
}

/// Generations rise, and the present one is the last.
fn any_assignments()
-> impl Strategy<Value = (Option<Assignment>, BTreeMap<Generation, handoff_protocol::NodeId>)> {
    let states = &[
        ObservedState::Warm,
        ObservedState::Prepared,
        ObservedState::Running,
        ObservedState::Frozen,
        ObservedState::Resting,
        ObservedState::Absent,
        ObservedState::Failed,
    ];
    let present = (id(), option::of(one_of(states)), option::of(time()));
    option::of((present, vec(id(), 0..3))).prop_map(|found| {
        let Some(((node, observed, last_alive), former)) = found else { return (None, BTreeMap::new()) };
        let generation = Generation(former.len() as u64 + 1);
        let former = former.into_iter().zip(1..).map(|(node, number)| (Generation(number), node)).collect();
        (Some(Assignment { node, generation, observed, last_alive }), former)
    })
}

fn any_authorization() -> impl Strategy<Value = Authorization> {
    let outcome = prop_oneof![
        Just(Outcome::Open),
        Just(Outcome::Claimed),
        Just(Outcome::Withdrawn),
        text().prop_map(|reason| Outcome::Declined { reason }),
    ];
    (id(), time(), outcome).prop_map(|(id, deadline, outcome)| Authorization { id, deadline, outcome })
}

fn any_end() -> impl Strategy<Value = Ended> {
    let reason = prop_oneof![
        Just(EndReason::Moved),
        Just(EndReason::GracePeriodExpired),
        Just(EndReason::TimeToLive),
        text().prop_map(EndReason::Requested),
    ];
    (reason, time()).prop_map(|(reason, at)| Ended { reason, at })
}

fn any_transfer() -> impl Strategy<Value = Transfer> {
    let ground = one_of(&[Ground::Quiesced, Ground::LastAccepted]);
    let mark = (epoch(), ground).prop_map(|(epoch, ground)| FinalMark { epoch, ground });
    let push = prop_oneof![
        digest().prop_map(|digest| Push::Requested { digest }),
        vec(text(), 0..3).prop_map(|missing| Push::Failed { missing }),
    ];
    let flags = any::<[bool; 4]>();
    let base = (id(), one_of(&Status::ALL), any::<u64>(), any::<u64>(), time(), time(), digest(), flags);
    let way = (option::of(mark), option::of(any_tier()), option::of(push), option::of(any_authorization()));
    let money = (option::of(any_budget()), btree_map(epoch(), any_account(), 0..3), btree_set(id(), 0..3));
    let end = (option::of(time()), option::of(time()), option::of(any_end()));
    (base, way, money, any_assignments(), end).prop_map(|(base, way, money, assignments, end)| {
        let (id, status, version, event_seq, staged_at, expires_at, snapshot, flags) = base;
        let (mark, tier, push, authorization) = way;
        let (budget, epochs, spent_tokens): (_, _, BTreeSet<_>) = money;
        let (assignment, former_assignments) = assignments;
        let (waiting_since, grace_until, ended) = end;
        let [final_requested, receipt, resting, ledger_closed] = flags;
        let session = session().id;
        Transfer {
            id,
            session,
            status,
            version,
            event_seq,
            staged_at,
            expires_at,
            snapshot,
            mark,
            final_requested,
            tier,
            budget,
            assignment,
            former_assignments,
            push,
            receipt,
            authorization,
            spent_tokens,
            epochs,
            resting,
            waiting_since,
            grace_until,
            ended,
            ledger_closed,
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128 * handoff_testkit::rounds::rounds()))]

    #[test]
    fn a_session_reads_back_as_it_was_written(first in any_session(), second in any_session()) {
        let connection = database();
        let change = SessionChange { before: None, after: first.clone() };
        session_row::write(&connection, &change, AT).expect("it is written");
        let found = session_row::load(&connection, PROJECT, first.id).expect("it reads");
        prop_assert_eq!(found, Some(first.clone()));
        let after = Session { id: first.id, ..second };
        let change = SessionChange { before: Some(first.version), after: after.clone() };
        session_row::write(&connection, &change, AT).expect("it is changed");
        let found = session_row::load(&connection, PROJECT, first.id).expect("it reads");
        prop_assert_eq!(found, Some(after));
    }

    #[test]
    fn a_transfer_reads_back_as_it_was_written(first in any_transfer(), second in any_transfer()) {
        let connection = database();
        let change = SessionChange { before: None, after: session() };
        session_row::write(&connection, &change, AT).expect("its session is written");
        write(&connection, None, &first);
        let found = load::transfer(&connection, PROJECT, first.id).expect("it reads");
        prop_assert_eq!(found, Some(first.clone()));
        // What hangs on it has rules of its own for what may follow what: scripts of commands test those.
        let after = Transfer {
            id: first.id,
            budget: first.budget,
            epochs: first.epochs.clone(),
            spent_tokens: first.spent_tokens.clone(),
            assignment: first.assignment,
            former_assignments: first.former_assignments.clone(),
            authorization: second.authorization.clone().or(first.authorization.clone()),
            ..second
        };
        let change = TransferChange { project: PROJECT, before: Some(first.clone()), after: after.clone() };
        transfer_row::write(&connection, &change, AT).expect("it is changed");
        if let Some(authorization) = second.authorization {
            let change = AuthorizationChange { project: PROJECT, transfer: first.id, authorization };
            authorization_row::write(&connection, &change).expect("another authorisation is written");
        }
        let found = load::transfer(&connection, PROJECT, first.id).expect("it reads");
        prop_assert_eq!(found, Some(after));
    }
}
