//! The product's own `decide`, model-checked: no copy too many, no work lost, no money too much.
//!
//! Two models, since one would be too large: [`moves`] is about who runs, [`money`] about what it costs. Each
//! keeps every promise over all orders of events within its bounds, and each finds what happens when one rule is
//! taken out, or when somebody around the control plane does not keep one: a mutant that nothing finds would
//! mean that the model looks the other way.

mod money;
mod moves;
mod plane;

use std::fmt::Debug;
use std::hash::Hash;

use handoff_core::Rule;
use money::{Ask, MoneyModel};
use moves::{ANY, MoveModel};
use stateright::{Checker, Expectation, HasDiscoveries, Model};

const ONE_COPY: &str = "at most one copy runs";
const NO_STRAY: &str = "only the holder's state changes are accepted";
const NOTHING_LOST: &str = "accepted work is never lost";
const FINAL_STAYS: &str = "what is final stays final until it is claimed or ends";
const NEVER_STUCK: &str = "somebody can always run again";
const WITHIN_BUDGET: &str = "what gateways buy stays within the budget";
const IN_THE_BOOKS: &str = "what an epoch cost is in the books once it closed";
const INSOLVENT: &str = "insolvent only when a tick does not fit";

#[expect(clippy::print_stdout, reason = "how much was looked at is what a reader wants to know")]
fn say(line: &str) {
    println!("{line}");
}

/// Looks at every state there is: every promise holds in each, and all of this was reached, in at least so many.
fn holds<M>(name: &str, model: M, reached: &[&str], least: usize)
where
    M: Model + Send + Sync + 'static,
    M::State: Clone + Debug + Hash + PartialEq + Send + Sync + 'static,
    M::Action: Clone + Debug + PartialEq + Send + Sync + 'static,
{
    let checker = model.checker().threads(2).finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
    let (states, steps) = (checker.unique_state_count(), checker.state_count());
    say(&format!("{name}: {states} states, {steps} steps, depth {}", checker.max_depth()));
    let found = checker.discoveries();
    for property in checker.model().properties() {
        let path = found.get(property.name);
        match property.expectation {
            Expectation::Always | Expectation::Eventually => {
                let actions = path.map(|path| path.clone().into_actions());
                assert!(actions.is_none(), "not true: {}\n{actions:#?}", property.name);
            }
            Expectation::Sometimes if reached.contains(&property.name) => {
                assert!(path.is_some(), "never reached: {}", property.name);
            }
            Expectation::Sometimes => {}
        }
    }
    assert!(states >= least, "{states} states are fewer than the {least} that there were: what is missing?");
}

/// Looks for a way to break this promise, and finds one.
fn breaks<M>(name: &str, model: M, promise: &'static str)
where
    M: Model + Send + Sync + 'static,
    M::State: Clone + Debug + Hash + PartialEq + Send + Sync + 'static,
    M::Action: Clone + Debug + PartialEq + Send + Sync + 'static,
{
    let enough = HasDiscoveries::AllOf([promise].into());
    let checker = model.checker().finish_when(enough).target_state_count(6_000_000).spawn_bfs().join();
    let states = checker.unique_state_count();
    let Some(path) = checker.discovery(promise) else {
        panic!("{name}: nothing breaks \"{promise}\" in {states} states");
    };
    let steps = path.into_actions();
    say(&format!("{name}: broken after {} steps, {states} states: {promise}\n  {steps:?}", steps.len()));
}

mod moves_hold {
    use super::*;
    use moves::Bounds;

    const ANY_FAULTS: Bounds = Bounds {
        transfers: 2,
        epochs: 4,
        work: 1,
        crashes: ANY,
        losses: ANY,
        duplicates: ANY,
        delays: ANY,
        net: 1,
        reassigns_pending: false,
        rests: false,
    };

    const EVERYDAY: &[&str] = &[
        "a source returned",
        "a re-claim",
        "a resume of a session whose transfer ended",
        "assigned anew with the old copy alive",
        "a source was abandoned and its session runs",
        "a holder that stopped for a successor goes on",
    ];

    /// H-54, H-62 to H-72: any number of crashes, losses, repetitions and delays, one message late at a time.
    #[test]
    fn with_any_number_of_faults() {
        holds("moves, any faults", MoveModel::new(ANY_FAULTS, None, moves::Fault::None), EVERYDAY, 2_000_000);
    }

    #[test]
    fn with_two_messages_under_way() {
        let bounds = Bounds { duplicates: 1, delays: 1, net: 2, ..ANY_FAULTS };
        holds("moves, two late", MoveModel::new(bounds, None, moves::Fault::None), EVERYDAY, 1_700_000);
    }

    #[test]
    fn over_three_hops() {
        let bounds = Bounds { transfers: 3, delays: 0, ..ANY_FAULTS };
        let reached = &["a source returned", "a re-claim", "three hops"];
        holds("moves, three hops", MoveModel::new(bounds, None, moves::Fault::None), reached, 1_200_000);
        let bounds = Bounds { transfers: 3, work: 2, losses: 0, duplicates: 0, delays: 0, ..ANY_FAULTS };
        let reached = &["two hops, and work after them", "three hops"];
        holds("moves, work after hops", MoveModel::new(bounds, None, moves::Fault::None), reached, 100_000);
    }

    #[test]
    fn with_rest_and_with_pending_transfers_assigned_anew() {
        let bounds = Bounds { duplicates: 0, delays: 1, reassigns_pending: true, rests: true, ..ANY_FAULTS };
        let reached = &[
            "a session that rested runs again",
            "a resting session was moved without being woken",
            "assigned anew with the old copy alive",
        ];
        holds("moves, rest", MoveModel::new(bounds, None, moves::Fault::None), reached, 1_300_000);
    }

    /// Forgetting what is inert keeps the other searches small. Here nothing is forgotten.
    #[test]
    fn with_nothing_forgotten() {
        let bounds = Bounds { crashes: 1, losses: 0, duplicates: 0, delays: 1, epochs: 3, ..ANY_FAULTS };
        holds("moves, nothing forgotten", MoveModel::remembering(bounds), EVERYDAY, 100_000);
    }
}

mod moves_break {
    use super::*;
    use moves::{Bounds, Fault};

    const SMALL: Bounds = Bounds {
        transfers: 2,
        epochs: 4,
        work: 1,
        crashes: 1,
        losses: 0,
        duplicates: 0,
        delays: 1,
        net: 1,
        reassigns_pending: false,
        rests: false,
    };

    fn without(rule: Rule, promise: &'static str) {
        breaks(&format!("without {rule:?}"), MoveModel::new(SMALL, Some(rule), Fault::None), promise);
    }

    fn where_somebody(fault: Fault, bounds: Bounds, promise: &'static str) {
        breaks(&format!("with {fault:?}"), MoveModel::new(bounds, None, fault), promise);
    }

    #[test]
    fn without_an_epoch_check() {
        without(Rule::EpochCheck, ONE_COPY);
        without(Rule::EpochCheck, NO_STRAY);
    }

    #[test]
    fn where_a_claim_after_an_end_ignores_the_former_holder_s_lease() {
        without(Rule::ClaimWaitsForLease, ONE_COPY);
    }

    #[test]
    fn where_a_re_claim_ignores_the_former_incarnation_s_lease() {
        without(Rule::ReclaimWaitsForLease, ONE_COPY);
    }

    #[test]
    fn where_a_former_holder_re_claims_under_a_pending_final() {
        without(Rule::FinalSeals, FINAL_STAYS);
    }

    #[test]
    fn where_a_draft_is_resumed_while_its_source_works() {
        without(Rule::ResumeNeedsFinal, ONE_COPY);
    }

    #[test]
    fn where_a_stale_holder_s_snapshot_is_taken_as_final() {
        without(Rule::FinalOnlyFromHolder, NO_STRAY);
        without(Rule::FinalOnlyFromHolder, NOTHING_LOST);
    }

    #[test]
    fn where_a_source_returns_that_holds_nothing() {
        without(Rule::ReturnOnlyByHolder, ONE_COPY);
    }

    #[test]
    fn where_a_lease_is_counted_from_the_grant() {
        where_somebody(Fault::LeaseFromGrant, SMALL, ONE_COPY);
    }

    #[test]
    fn where_a_source_goes_on_when_nobody_resumed() {
        where_somebody(Fault::GoesOnUnasked, SMALL, ONE_COPY);
    }

    #[test]
    fn where_a_delayed_run_is_honored_after_a_final() {
        where_somebody(Fault::HonorsLateRun, SMALL, ONE_COPY);
    }

    #[test]
    fn where_a_checkpoint_does_not_say_what_it_follows() {
        let bounds = Bounds { work: 2, duplicates: 1, ..SMALL };
        where_somebody(Fault::ForgetsWhatItFollows, bounds, NOTHING_LOST);
    }

    #[test]
    fn where_nobody_may_abandon_a_source() {
        where_somebody(Fault::NobodyAbandons, SMALL, NEVER_STUCK);
    }
}

mod money_holds {
    use super::*;
    use money::{Bounds, Fault};

    const PLAIN: Bounds = Bounds { budget: 6, epochs: 2, orders: &[], net: 2 };

    const EVERYDAY: &[&str] = &[
        "an epoch spends while the one before it is unaccounted",
        "an epoch spends what the one before it gave back",
        "insolvent",
        "it waits for an epoch that may give money back",
        "holds of a crash are charged at their most",
        "a late report counts after the end",
        "two copies spend at once",
    ];

    /// H-75 to H-89: two epochs, any number of crashes and lost answers, two messages late at a time.
    #[test]
    fn with_any_number_of_faults() {
        holds("money, any faults", MoneyModel::new(PLAIN, None, Fault::None), EVERYDAY, 200_000);
    }

    #[test]
    fn with_a_raise_and_a_write_off() {
        let orders = &[Ask::Raise { by: 2 }, Ask::WriteOff { epoch: 0 }];
        let bounds = Bounds { budget: 5, orders, net: 1, ..PLAIN };
        let reached = &["active again after a raise", "insolvent"];
        holds(
            "money, raised and written off",
            MoneyModel::new(bounds, None, Fault::None),
            reached,
            2_000_000,
        );
    }

    #[test]
    fn with_an_increment_and_a_carved_successor() {
        let orders = &[Ask::Record { cost: 1 }, Ask::Carve { amount: 2 }];
        let bounds = Bounds { budget: 5, orders, net: 1, ..PLAIN };
        holds("money, recorded and carved", MoneyModel::new(bounds, None, Fault::None), EVERYDAY, 900_000);
    }

    #[test]
    fn over_three_epochs() {
        let bounds = Bounds { budget: 5, epochs: 3, net: 0, ..PLAIN };
        holds("money, three epochs", MoneyModel::new(bounds, None, Fault::None), EVERYDAY, 800_000);
    }
}

mod money_breaks {
    use super::*;
    use money::{Bounds, Fault};

    const SMALL: Bounds = Bounds { budget: 6, epochs: 2, orders: &[], net: 1 };

    fn without(rule: Rule, promise: &'static str) {
        breaks(&format!("without {rule:?}"), MoneyModel::new(SMALL, Some(rule), Fault::None), promise);
    }

    fn where_a_meter(fault: Fault, promise: &'static str) {
        breaks(&format!("with {fault:?}"), MoneyModel::new(SMALL, None, fault), promise);
    }

    #[test]
    fn where_an_old_lease_is_released_at_an_epoch_change() {
        without(Rule::OldLeaseStaysCharged, WITHIN_BUDGET);
    }

    #[test]
    fn where_epoch_and_seq_are_one_order() {
        without(Rule::ReportsPerEpoch, IN_THE_BOOKS);
    }

    #[test]
    fn where_a_limit_on_its_way_does_not_count() {
        without(Rule::InsolventOnlyByTick, INSOLVENT);
    }

    #[test]
    fn where_a_refused_call_makes_insolvent() {
        where_a_meter(Fault::RefusedCallIsExhaustion, INSOLVENT);
    }

    #[test]
    fn where_holds_of_a_crash_are_released() {
        where_a_meter(Fault::ReleasesHolds, WITHIN_BUDGET);
        where_a_meter(Fault::ReleasesHolds, IN_THE_BOOKS);
    }

    #[test]
    fn where_an_epoch_closes_with_a_hold_open() {
        where_a_meter(Fault::ClosesTooEarly, IN_THE_BOOKS);
    }
}
