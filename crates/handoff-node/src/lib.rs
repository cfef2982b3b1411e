//! The yard: a node reconciles its destinations towards what the store says, and reports what is.
//!
//! One task per destination repeats: look at what is wanted, look at what is there, take the next step
//! ([`plan`]). A crash anywhere is repaired by the next round; nothing is undone. Absence from the list removes
//! nothing: only `gone` does.

pub mod identity;
mod init_link;
mod kept;
mod meter_task;
mod node;
mod place;
pub mod plan;
pub mod record;
mod shared;
mod step_error;

pub use node::{NodeError, run};
pub use shared::NodeOptions;
