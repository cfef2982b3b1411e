//! The contract that every store adapter keeps, told as stories in a [`World`] with a conscience.
//!
//! An adapter takes part by one line in a test binary:
//!
//! ```text
//! handoff_testkit::contract_suite!(sqlite, SqliteStore::new());
//! ```
//!
//! which makes a test of every story. To add a story: an `async fn name(world: &World)` under `stories/`, and its
//! name in [`contract_suite!`](crate::contract_suite). After each one the world looks at everything that is
//! stored: events without gaps, chains that compute, money that adds up, one pending and one live transfer at
//! most, requests that are answered again, and, where the store outlives its process, the same contents after
//! opening it anew.

mod acts;
mod conscience;
pub mod moves;
pub mod script;
pub mod stories;
pub mod world;

use std::sync::Arc;

use async_trait::async_trait;
use handoff_core::Policy;
use handoff_core::ledger::Ledger;

use crate::clock::ManualClock;

pub use moves::Move;
pub use world::World;

/// How the suite opens the adapter that is looked at. One value stands for one store.
#[async_trait]
pub trait Store: Send {
    /// Opens it; a second time after everything from the first has been dropped.
    async fn open(&mut self, policy: Policy, clock: &ManualClock) -> Arc<dyn Ledger>;

    /// Whether its contents outlive it.
    fn is_durable(&self) -> bool;
}

/// Makes a test of every story for one adapter: the name of a module, and an expression that makes a [`Store`].
#[macro_export]
macro_rules! contract_suite {
    ($name:ident, $store:expr) => {
        mod $name {
            #[allow(unused_imports, reason = "the store may be named by a path of its own")]
            use super::*;

            $crate::contract_stories! { $store;
                walk::a_session_walks_through_every_status,
                every::every_command_is_kept_once_it_is_accepted,
                every::every_command_that_is_refused_changes_nothing,
                requests::the_same_request_is_answered_again,
                requests::another_body_under_a_known_id_is_a_conflict,
                requests::a_refused_request_id_may_be_used_again,
                requests::a_request_id_is_its_callers_and_its_commands_own,
                requests::a_repetition_at_the_same_moment_is_applied_once,
                requests::a_version_that_has_moved_on_is_refused,
                requests::the_id_of_a_transfer_is_taken_once,
                races::one_token_is_spent_once,
                races::a_tokens_id_is_spent_once_in_all,
                races::two_activates_have_one_winner,
                races::withdraw_against_claim,
                races::reaper_against_claim,
                races::terminate_against_report,
                races::raise_against_reaper,
                races::twenty_increments_on_a_budget_for_ten,
                races::twenty_claims_by_one_authorization,
                races::twenty_destinations_on_a_node_for_ten,
                races::two_stages_of_one_session,
                money::case_m01_twenty_reports_ask_for_more_than_there_is,
                money::case_m02_a_spent_budget_stays_spent,
                money::case_m03_a_budget_of_zero_is_refused,
                money::case_m09_spent_is_the_sum_of_the_ledger_all_the_way,
                money::what_was_carved_out_comes_back,
                batches::a_batch_builds_on_itself,
                batches::one_refusal_does_not_stop_the_others,
                batches::many_sessions_in_one_batch,
                batches::a_whole_hop_in_one_batch,
                batches::two_authorizations_in_one_batch,
                batches::an_empty_batch_is_answered_with_nothing,
                keeping::time_never_steps_back,
                keeping::a_change_wakes_whoever_waits,
                keeping::projects_do_not_see_each_other,
                keeping::a_session_is_opened_in_its_callers_project,
                lists::transfers_are_found_by_what_is_known_of_them,
                lists::a_node_sees_its_present_and_former_assignments,
                lists::sessions_come_page_by_page,
                lists::events_come_after_a_cursor,
                lists::what_is_unknown_is_not_there,
                records::an_audit_entry_joins_its_chain,
                records::refusals_are_recorded_within_bounds,
                records::a_node_keeps_its_key,
                records::a_place_is_given_back_when_it_is_proved_absent,
                records::a_snapshot_is_kept_once,
            }
        }
    };
}

/// The tests themselves. Only [`contract_suite!`] calls it.
#[doc(hidden)]
#[macro_export]
macro_rules! contract_stories {
    ($store:expr; $($file:ident :: $story:ident,)*) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $story() {
            let world = $crate::contract::World::start(Box::new($store)).await;
            $crate::contract::stories::$file::$story(&world).await;
            world.finish().await;
        }
    )*};
}
