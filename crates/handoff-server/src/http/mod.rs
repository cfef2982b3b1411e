//! `/v1` over HTTP: one route, one handler, one method of the service.

mod answer;
mod blobs;
pub(crate) mod caller;
mod document;
mod health;
mod nodes;
mod problem;
pub(crate) mod router;
mod sessions;
mod tokens;
mod transfers;
