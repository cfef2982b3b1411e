//! The native agent loop: events in, effects out as data, with a thin driver.
//!
//! The same code runs at a source, at once, and in a sandbox, after `go`. [`machine`] decides and does nothing;
//! [`run`] does what it says. The session is the directory of `handoff_protocol::session_dir`, durable after every
//! step: whoever starts an agent on it goes on exactly where the last one was.
//!
//! What a model or a snapshot said is stored as its own bytes. Only the copy that is sent to a model is mended
//! where a provider would refuse it.

mod answer;
pub mod control;
mod driver;
mod durable;
mod error;
mod journal;
pub mod machine;
mod message;
mod model;
mod options;
mod outgoing;
pub mod registry;
mod retry;
mod self_snapshot;
mod session;
mod sse;
pub mod standing;
mod tools;

pub use driver::run;
pub use error::AgentError;
pub use machine::ExitReason;
pub use message::{INTERRUPTED, ToolCall};
pub use model::{Bearer, Endpoint, Reach};
pub use options::{AgentOptions, Observer, Place, Register};
pub use retry::Failure;
pub use session::{KIND, NewSession, new_session};
pub use tools::ToolLimits;
