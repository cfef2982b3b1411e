//! The state socket: a Unix socket that only its owner can reach, and the connections on it.

pub(crate) mod connection;
pub(crate) mod listener;
