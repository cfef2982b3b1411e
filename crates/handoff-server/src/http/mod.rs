//! `/v1` over HTTP: one route, one handler, one method of the service.

mod answer;
mod blob_memory;
mod blobs;
pub(crate) mod caller;
mod document;
mod health;
mod misfit;
mod nodes;
mod problem;
pub(crate) mod router;
mod sessions;
mod tokens;
mod transfers;
