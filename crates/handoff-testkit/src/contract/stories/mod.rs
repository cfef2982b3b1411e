//! The stories.

pub mod walk;
