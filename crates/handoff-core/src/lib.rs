//! The study: decides, and does nothing else.
//!
//! [`decide`] takes what the store knows of one session, a command and the store's time, and answers with
//! facts and a reply, or with a refusal. [`State::apply`] is the only way a state changes, and it takes facts:
//! folding the facts of a session from the first one gives its present state. No clock, no I/O, no randomness,
//! no floats, no bytes of a session.
//!
//! Where to look:
//! - which transitions are legal: [`grid`], and one file per command under `machine/`;
//! - who may run again, and who may not: [`lease`];
//! - where money goes: [`budget`].

pub mod apply;
pub mod budget;
pub mod command;
pub mod desired;
pub mod fact;
pub mod grid;
pub mod lease;
mod least;
pub mod ledger;
pub mod machine;
pub mod placement;
pub mod policy;
pub mod refusal;
pub mod reply;
pub mod state;
pub mod token;
pub mod transfer;

pub use command::{Actor, Command, Role};
pub use fact::Fact;
pub use least::Least;
pub use machine::{Decision, decide};
pub use policy::{InvalidPolicy, OutOfRange, Policy, Rule, Rules};
pub use refusal::Refusal;
pub use reply::Reply;
pub use state::{Accepted, Epoch, Generation, Holder, Session, Standing, State};
pub use transfer::Transfer;
