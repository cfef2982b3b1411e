//! The words everyone shares: ids, money, time, digests, statuses, wire shapes and error codes.
//!
//! Nothing here does anything. Types parse what arrives, refuse what is malformed with a reason, and print
//! exactly one form. No runtime, no database, no clock: whoever needs the time takes it as an argument.

pub mod digest;
pub mod document;
pub mod error;
pub mod header;
pub mod id;
pub mod json;
pub mod limits;
pub mod listing;
pub mod manifest;
pub mod money;
pub mod node;
pub mod port;
pub mod reference;
pub mod request;
pub mod scan;
pub mod session_dir;
pub mod status;
pub mod tier;
pub mod time;
pub mod totals;
pub mod view;

pub use digest::Digest;
pub use error::{ErrorCode, Problem};
pub use id::{
    ApprovalId, AuthorizationId, CallId, EventId, IncarnationId, NodeId, ProjectId, SessionId, TokenId,
    TransferId, UploadId,
};
pub use money::NanoUsd;
pub use status::Status;
pub use tier::{Tier, TierName};
pub use time::Timestamp;
pub use totals::Totals;
