//! What tests share: contract suites, a fixed clock, waiting for a condition, and worlds that fail on leftovers.

pub mod clock;
pub mod contract;
pub mod rounds;
pub mod wait;
