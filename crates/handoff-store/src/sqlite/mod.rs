//! The registry in one SQLite file.
//!
//! One thread writes, a few read; both hold their connections for life. Everything that changes a session goes
//! through [`writer`], which decides and commits in one transaction.

mod assignment_row;
mod authorization_row;
mod blobs;
mod budget_row;
mod cache;
mod cells;
mod clock_row;
mod engine;
mod epoch_row;
#[cfg(test)]
mod guards;
mod ledger;
mod list;
mod load;
mod node_row;
mod open;
mod project_row;
mod readers;
mod record_row;
mod request_row;
#[cfg(test)]
mod round_trip;
mod session_row;
mod snapshot_row;
mod token_row;
mod transfer_row;
mod write;
mod writer;

pub use blobs::{BlobLimits, SqliteBlobs};
pub use ledger::SqliteLedger;
pub use open::OpenOptions;
