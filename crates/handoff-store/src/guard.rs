//! A bug in one command's path must not end the writer: it becomes an answer.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::failure::Failure;

/// Runs it, and turns a panic into [`Failure::Broken`]. What it worked on is dropped while unwinding, so an open
/// transaction is rolled back.
pub(crate) fn run<T>(work: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
        tracing::error!("a command could not be decided on what is stored");
        Err(Failure::Broken("a stored state that no command can have led to".to_owned()))
    })
}
