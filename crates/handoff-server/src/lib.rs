//! The gatehouse: `/v1` on the state socket, access, and the one error mapping.
//!
//! It finds out who asks (`http::caller`), refuses what is too large, too deep or not understood before anything
//! looks at it (`http::document`), calls one method of the service, and maps what comes back in one place
//! (`http::problem`). It decides nothing. The router does not know on which kind of listener it runs: whoever
//! accepts a connection says who is at its other end ([`Peer`]).

mod http;
mod serve;
mod socket;

pub use crate::http::caller::Peer;
pub use crate::http::router::router;
pub use serve::{ServeError, ServeOptions, Server, serve};
pub use socket::listener::SocketError;
