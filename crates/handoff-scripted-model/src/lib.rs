//! A model server that plays scripts in the real wire format of Chat Completions, streaming and not, and says
//! in every answer that it is scripted.
//!
//! It keeps no conversation: which step of the script answers follows from the number of assistant messages
//! in the request alone, so a session that moved goes on exactly where it was. Requests are judged as strictly
//! as by the strictest compatible provider, usage is counted from bytes, and a request log lets a test say what
//! reached the model, when and in which epoch.

mod answer;
mod builtin;
mod failure;
mod record;
mod reply;
mod request;
mod script;
mod server;
mod stream;
mod validate;

pub use builtin::builtin;
pub use failure::Failure;
pub use record::{LogError, Record, read_log};
pub use reply::{CompletionDetails, PromptDetails, Usage};
pub use script::{AtEnd, Script, ScriptError, ScriptedCall, StatedUsage, Step};
pub use server::{Address, Listen, Options, Running, ScriptedModel, StartError, run};

/// The header that every answer carries, with the value `true`.
pub const SCRIPTED_HEADER: &str = "x-handoff-scripted";
/// The header in which a gateway or an agent says the session's epoch.
pub const EPOCH_HEADER: &str = "x-handoff-epoch";
/// The model that is served unless options name others.
pub const MODEL: &str = "scripted";
