//! The contract that every store adapter keeps, told as stories in a [`World`] with a conscience.
//!
//! An adapter takes part by one line in a test binary:
//!
//! ```ignore
//! handoff_testkit::contract_suite!(sqlite, SqliteStore::new());
//! ```
//!
//! which makes a test of every story. To add a story: an `async fn name(world: &World)` under `stories/`, and its
//! name in [`contract_suite!`]. After each one the world looks at everything that is stored: events without gaps,
//! chains that compute, money that adds up, one pending and one live transfer at most, requests that are answered
//! again, and, where the store outlives its process, the same contents after opening it anew.

mod acts;
mod conscience;
pub mod moves;
pub mod stories;
pub mod world;

use std::sync::Arc;

use handoff_core::Policy;
use handoff_core::ledger::Ledger;

use crate::clock::ManualClock;

pub use moves::Move;
pub use world::World;

/// How the suite opens the adapter that is looked at. One value stands for one store.
pub trait Store: Send {
    /// Opens it; a second time after everything from the first has been dropped.
    fn open(&mut self, policy: Policy, clock: &ManualClock) -> Arc<dyn Ledger>;

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
