//! The control plane's API as a client: the only way in for CLI, nodes and agents.
//!
//! A [`Client`] is cheap to clone and knows one control plane. Every method is one route of
//! `handoff_protocol::{request, node, listing}`. A mutating call that comes without a `request_id` gets one, so
//! that asking again is always safe; [`Client::retrying`] makes the client do that by itself.

mod blobs;
mod call;
mod client;
mod error;
mod listings;
mod nodes;
mod retry;
mod sessions;
mod transfers;
mod transport;

pub use blobs::ClientBlobs;
pub use client::Client;
pub use error::ClientError;
