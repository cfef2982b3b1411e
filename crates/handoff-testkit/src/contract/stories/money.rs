//! Money: what is granted never passes what there is, and what was spent is the sum of what was reported.

use handoff_core::command::Command;
use handoff_core::reply::Reply;
use handoff_protocol::node::UsageCommand;
use handoff_protocol::{ErrorCode, NanoUsd, Status};

use crate::contract::world::fresh;
use crate::contract::{Move, World};

/// Twenty reports of one epoch at once, each asking for more, in two epochs one after the other: the highest
/// counts, all that there is can be had, and not a nano-USD beyond it.
pub async fn case_m01_twenty_reports_ask_for_more_than_there_is(world: &World) {
    let moved = Move { budget: NanoUsd::from_nano(10_000_000), ..world.fresh_move() };
    let mut moved = world.active_with(world.pushed_with(world.provisioned_with(moved).await).await).await;
    let first = twenty_reports_up_to_the_limit(world, &moved).await;
    world.accept(moved.report(21, first.spent).closing().send()).await;
    world.clock.advance(world.policy.lease_ms);
    moved.incarnation = fresh();
    world.take(moved.reclaim(), &mut moved).await;
    let second = twenty_reports_up_to_the_limit(world, &moved).await;
    let found = world.found(moved.transfer).await.transfer;
    let budget = found.budget.expect("it is provisioned");
    let most = budget.allocated.minus(budget.reserve).nano();
    assert_eq!((found.spent().nano(), found.free(&world.policy)), (most, NanoUsd::ZERO), "all of it was had");
    assert!(first.granted.iter().all(|limit| *limit <= most), "{:?}", first.granted);
    let beyond = |limit: &&i64| first.spent + **limit > most;
    assert_eq!(second.granted.iter().find(beyond), None, "beyond what the first epoch left");
}

/// What twenty reports said was spent, and what each of them was granted.
struct Granted {
    spent: i64,
    granted: Vec<i64>,
}

async fn twenty_reports_up_to_the_limit(world: &World, moved: &Move) -> Granted {
    let limit = world.found(moved.transfer).await.transfer.epochs[&moved.epoch].limit.nano();
    let reports = (1..=20u32)
        .map(|seq| moved.report(u64::from(seq), limit * i64::from(seq) / 20).exhausted().send())
        .map(|report| world.envelope(report))
        .collect();
    let mut accepted = Vec::new();
    for answer in world.race(reports).await {
        match answer.expect("reports are answered").reply {
            Reply::Usage { accepted_seq, limit, .. } => accepted.push((accepted_seq, limit.nano())),
            other => panic!("a report was answered with {other:?}"),
        }
    }
    assert_eq!(accepted.iter().map(|(seq, _)| *seq).max(), Some(20));
    let account = world.found(moved.transfer).await.transfer.epochs[&moved.epoch];
    assert_eq!((account.seq, account.totals.spendable().nano()), (20, limit));
    Granted { spent: limit, granted: accepted.into_iter().map(|(_, limit)| limit).collect() }
}

/// A spent budget grants nothing more, also after the store was opened anew.
/// H-85
pub async fn case_m02_a_spent_budget_stays_spent(world: &World) {
    let moved = world.active().await;
    let (seq, spent) = world.spend_all(&moved).await;
    world.reopen().await;
    let limit = world.found(moved.transfer).await.transfer.epochs[&moved.epoch].limit;
    assert_eq!(limit.nano(), spent);
    for seq in seq + 1..seq + 4 {
        let reply = world.accept(moved.report(seq, spent).exhausted().send()).await;
        let command = UsageCommand::Insolvent;
        assert_eq!(reply, Reply::Usage { accepted_seq: seq, limit, command });
        world.reopen().await;
    }
    assert_eq!(world.status(moved.transfer).await, Status::Insolvent);
}

/// Zero is an amount, not "unset": nothing runs on it, and nothing is taken from it.
pub async fn case_m03_a_budget_of_zero_is_refused(world: &World) {
    let moved = Move { budget: NanoUsd::ZERO, ..world.staged().await };
    assert_eq!(world.code(world.provision(&moved)).await, ErrorCode::BudgetTooSmall);
    assert_eq!(world.found(moved.transfer).await.transfer.budget, None);
    let active = world.active().await;
    assert_eq!(world.code(active.raise(0)).await, ErrorCode::InvalidArgument);
}

/// Spent is the sum of the ledger after each of these, and what is granted never passes the budget.
pub async fn case_m09_spent_is_the_sum_of_the_ledger_all_the_way(world: &World) {
    let moved = world.active().await;
    let steps: Vec<Command> = vec![
        moved.report(1, 1_000).send(),
        moved.report(3, 3_000).send(),
        moved.report(2, 2_000).send(),
        moved.record_spend(77),
        moved.report(4, 4_000).exhausted().send(),
        moved.raise(2 * moved.budget.nano()),
        moved.terminate(),
        moved.report(5, 5_000).closing().send(),
    ];
    for step in steps {
        world.accept(step).await;
        world.check().await;
    }
    assert_eq!(world.found(moved.transfer).await.transfer.spent().nano(), 5_077);
}

/// Money that a successor carved out comes back when it ends unclaimed.
pub async fn what_was_carved_out_comes_back(world: &World) {
    let moved = world.active().await;
    let successor = world.successor(&moved).await;
    let Command::Provision(provision) = world.provision(&successor) else {
        unreachable!("a provision is one")
    };
    let amount = NanoUsd::from_nano(1_000_000_000);
    let carved = handoff_core::command::Provision { carve: true, budget: amount, ..provision };
    world.accept(Command::Provision(carved)).await;
    let allocated = async || world.found(moved.transfer).await.transfer.budget.map(|budget| budget.allocated);
    assert_eq!(allocated().await, Some(moved.budget.minus(amount)));
    world.reopen().await;
    world.accept(successor.terminate()).await;
    assert_eq!(allocated().await, Some(moved.budget));
}
