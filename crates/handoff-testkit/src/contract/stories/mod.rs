//! The stories.

pub mod batches;
pub mod every;
pub mod keeping;
pub mod lists;
pub mod money;
pub mod races;
pub mod records;
pub mod requests;
pub mod walk;
