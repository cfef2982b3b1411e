//! Races with real tasks: whoever comes first, what is stored is one of the outcomes that the protocol knows.

use handoff_core::command::Command;
use handoff_core::reply::Reply;
use handoff_core::token::TokenClaims;
use handoff_core::transfer::{EndReason, Outcome};
use handoff_protocol::node::Capacity;
use handoff_protocol::request::{EventType, Operation};
use handoff_protocol::{ErrorCode, NanoUsd, Status};

use crate::contract::world::{fresh, refusal};
use crate::contract::{Move, World};

/// How often a race between two is run: its outcome may go either way.
const ROUNDS: usize = 8;

/// One token, eight callers: one is let in, the others are told that it is spent.
/// H-23
pub async fn one_token_is_spent_once(world: &World) {
    let moved = world.pushed().await;
    let token = world.token(moved.transfer, Operation::Activate);
    let activate = || Command::Activate { transfer: moved.transfer, token: token.clone() };
    let answers = world.race((0..8).map(|_| world.envelope(activate())).collect()).await;
    let codes: Vec<_> = answers.iter().filter_map(refusal).collect();
    assert_eq!(codes, [ErrorCode::TokenUsed; 7]);
    world.reopen().await;
    assert_eq!(world.code(activate()).await, ErrorCode::TokenUsed);
}

/// A token's id is spent once in all, whatever it was made out for.
pub async fn a_tokens_id_is_spent_once_in_all(world: &World) {
    let (first, second) = (world.pushed().await, world.pushed().await);
    let token = world.token(first.transfer, Operation::Activate);
    let twin = TokenClaims { transfer: second.transfer, ..token.clone() };
    world.accept(Command::Activate { transfer: first.transfer, token }).await;
    let activate = Command::Activate { transfer: second.transfer, token: twin.clone() };
    assert_eq!(world.code(activate).await, ErrorCode::TokenUsed);
    world.reopen().await;
    let activate = Command::Activate { transfer: second.transfer, token: twin };
    assert_eq!(world.code(activate).await, ErrorCode::TokenUsed);
}

/// Two activates with a token each: one is let in, and the other's token is not spent.
/// H-23
pub async fn two_activates_have_one_winner(world: &World) {
    for _ in 0..ROUNDS {
        let moved = world.pushed().await;
        let activates: Vec<_> = (0..2).map(|_| world.envelope(world.activate(&moved))).collect();
        let answers = world.race(activates.clone()).await;
        let codes: Vec<_> = answers.iter().map(refusal).collect();
        let loser = codes.iter().position(Option::is_some).expect("one loses");
        assert_eq!(codes[loser], Some(ErrorCode::AlreadyAuthorized));
        let winner = 1 - loser;
        let Reply::Authorized { authorization } = answers[winner].as_ref().expect("one wins").reply else {
            panic!("activate was answered otherwise")
        };
        world.accept(moved.withdraw(authorization)).await;
        let again = world.apply(activates[loser].clone()).await;
        assert_eq!(refusal(&again), None, "a refused activation leaves its token unspent");
    }
}

/// The claim comes, or the authorisation is withdrawn: never both, never neither.
pub async fn withdraw_against_claim(world: &World) {
    for _ in 0..ROUNDS {
        let moved = world.pushed().await;
        let authorization = world.authorize(&moved).await;
        let commands = [moved.withdraw(authorization), moved.claim(authorization)];
        let answers = world.race(commands.map(|command| world.envelope(command)).into()).await;
        let found = world.found(moved.transfer).await.transfer;
        let outcome = found.authorization.expect("there was one").outcome;
        match (refusal(&answers[0]), refusal(&answers[1])) {
            (Some(ErrorCode::WrongStatus), None) => {
                assert_eq!((found.status, outcome), (Status::Active, Outcome::Claimed));
            }
            (None, Some(ErrorCode::LeaseOver)) => {
                assert_eq!((found.status, outcome), (Status::Pushed, Outcome::Withdrawn));
            }
            other => panic!("{other:?}"),
        }
    }
}

/// The reaper's withdraw and expire against a claim after the time to live: one of three outcomes.
pub async fn reaper_against_claim(world: &World) {
    for _ in 0..ROUNDS {
        let moved = world.pushed().await;
        world.clock.advance(world.policy.time_to_live_ms - 10_000);
        let authorization = world.authorize(&moved).await;
        world.clock.advance(20_000);
        world.ledger().see_node(world.node).await.expect("the store answers");
        let commands = [moved.expire(), moved.withdraw(authorization), moved.claim(authorization)];
        let answers = world.race(commands.map(|command| world.envelope(command)).into()).await;
        let codes: Vec<_> = answers.iter().map(refusal).collect();
        let status = world.status(moved.transfer).await;
        match (codes[0], codes[1], codes[2]) {
            (Some(_), Some(_), None) => assert_eq!(status, Status::Active),
            (None, None, Some(_)) => assert_eq!(status, Status::Expired),
            (Some(_), None, Some(_)) => assert_eq!(status, Status::Pushed),
            other => panic!("{other:?}"),
        }
    }
}

/// A report counts whether it comes before the end or after it.
pub async fn terminate_against_report(world: &World) {
    for _ in 0..ROUNDS {
        let moved = world.active().await;
        let commands = [moved.terminate(), moved.report(1, 321).closing().send()];
        let answers = world.race(commands.map(|command| world.envelope(command)).into()).await;
        assert_eq!(answers.iter().map(refusal).collect::<Vec<_>>(), [None, None]);
        let found = world.found(moved.transfer).await.transfer;
        assert_eq!((found.status, found.spent().nano()), (Status::Terminated, 321));
        assert_eq!(found.leased(), NanoUsd::ZERO);
    }
}

/// At the end of grace: raised and active again, or terminated.
pub async fn raise_against_reaper(world: &World) {
    for _ in 0..ROUNDS {
        let moved = world.insolvent().await;
        world.clock.advance(world.policy.grace_ms);
        world.ledger().see_node(world.node).await.expect("the store answers");
        let commands = [moved.raise(2 * moved.budget.nano()), moved.reap()];
        let answers = world.race(commands.map(|command| world.envelope(command)).into()).await;
        let found = world.found(moved.transfer).await.transfer;
        match (refusal(&answers[0]), refusal(&answers[1])) {
            (None, Some(ErrorCode::WrongStatus)) => assert_eq!(found.status, Status::Active),
            (Some(ErrorCode::WrongStatus), None) => {
                let reason = found.ended.expect("it ended").reason;
                assert_eq!((found.status, reason), (Status::Terminated, EndReason::GracePeriodExpired));
            }
            other => panic!("{other:?}"),
        }
    }
}

/// Twenty increments of half a dollar on a budget of five: each is a fact, and insolvency is entered once.
pub async fn twenty_increments_on_a_budget_for_ten(world: &World) {
    let moved = Move { budget: NanoUsd::from_nano(5_000_000_000), ..world.fresh_move() };
    let moved = world.active_with(world.pushed_with(world.provisioned_with(moved).await).await).await;
    let spends = (0..20).map(|_| world.envelope(moved.record_spend(500_000_000))).collect();
    let answers = world.race(spends).await;
    assert!(answers.iter().all(|answer| refusal(answer).is_none()));
    let found = world.found(moved.transfer).await.transfer;
    assert_eq!((found.status, found.spent().nano()), (Status::Insolvent, 10_000_000_000));
    let events = world.events(moved.transfer).await;
    let count = |kind| events.iter().filter(|event| event.kind == kind).count();
    assert_eq!((count(EventType::UsageReported), count(EventType::Insolvent)), (20, 1));
}

/// Twenty incarnations claim by one authorisation: one gets the session.
pub async fn twenty_claims_by_one_authorization(world: &World) {
    let moved = world.pushed().await;
    let authorization = world.authorize(&moved).await;
    let claims = (0..20)
        .map(|_| Move { incarnation: fresh(), ..moved.clone() })
        .map(|destination| world.envelope(destination.claim(authorization)))
        .collect();
    let answers = world.race(claims).await;
    assert_eq!(answers.iter().filter(|answer| refusal(answer).is_none()).count(), 1);
    assert_eq!(world.session_of(moved.transfer).await.epoch.0, 2);
}

/// Twenty destinations for a node with room for ten: ten find a place.
/// H-48
pub async fn twenty_destinations_on_a_node_for_ten(world: &World) {
    let node = fresh();
    let small = world.policy.tiers[0].clone();
    let capacity =
        Capacity { cpu_millis: 100 * u64::from(small.cpu_millis), memory_bytes: 10 * small.memory_bytes };
    world.register_with(node, capacity).await;
    let mut provisions = Vec::new();
    for _ in 0..20 {
        let Command::Provision(provision) = world.provision(&world.staged().await) else {
            unreachable!("a provision is one")
        };
        let wanted = handoff_core::command::Provision { node: Some(node), ..provision };
        provisions.push(world.envelope(Command::Provision(wanted)));
    }
    let answers = world.race(provisions).await;
    let codes: Vec<_> = answers.iter().filter_map(refusal).collect();
    assert_eq!(codes, [ErrorCode::NoNode; 10]);
    let rooms = world.ledger().rooms(world.project).await.expect("the store answers");
    assert_eq!(rooms[&node].memory_bytes, 0);
}

/// Two stages of one session: one is pending.
pub async fn two_stages_of_one_session(world: &World) {
    let moved = world.fresh_move();
    let stage = |session| Move { session, ..world.fresh_move() };
    let stages = (0..8).map(|_| world.envelope(world.stage(&stage(moved.session)))).collect();
    let answers = world.race(stages).await;
    let codes: Vec<_> = answers.iter().filter_map(refusal).collect();
    assert_eq!(codes, [ErrorCode::StaleEpoch; 7], "the session is known by then: its epoch must be named");
    let running = world.active().await;
    let stages = (0..8).map(|_| world.envelope(world.stage_successor(&running, fresh()))).collect();
    let answers = world.race(stages).await;
    let codes: Vec<_> = answers.iter().filter_map(refusal).collect();
    assert_eq!(codes, [ErrorCode::SessionBusy; 7]);
}
