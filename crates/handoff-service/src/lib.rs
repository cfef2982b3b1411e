//! Use-cases over the ports: tokens, waiting, approvals and the reaper.
//!
//! A surface (HTTP, later MCP) finds out who asks, parses what is asked, and calls one method of [`Service`]
//! here. The method checks access, prepares what the machine may not do itself (bytes, signatures, random ids),
//! gives one command to the ledger, waits where the use-case waits, and answers with a view.
//!
//! Where to look: one file per command or family; `authorize` and `approval` for what lets provision and
//! activate happen; `wait` for all waiting; `reaper` for what ends because time passes, `serving`
//! for when that is held against nobody.

pub mod access;
mod activate;
mod approval;
mod asked;
mod audit;
mod authorize;
pub mod config;
mod desired;
mod error;
mod money;
mod node;
mod provision;
mod push;
mod reaper;
mod receipt;
mod reply;
mod service;
mod serving;
mod session;
mod snapshot;
mod stage;
mod status;
pub mod token;
mod view;
mod wait;
mod words;

pub use access::Principal;
pub use asked::Call;
pub use config::{ApprovalPolicy, AutoApproval, DEFAULT_PROJECT, ServiceConfig};
pub use error::ServiceError;
pub use handoff_core::Role;
pub use handoff_core::ledger::Ledger;
pub use node::report_digest;
pub use service::Service;
pub use token::TokenKeys;
