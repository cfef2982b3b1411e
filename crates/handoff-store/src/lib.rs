//! The registry's adapters: SQLite and memory behind one port, with the group-commit writer.
//!
//! Every adapter does the same three steps under its own lock: it loads what a batch of commands names
//! (`fold::Wanted`, `fold::Loaded`), lets `fold` decide them one after the other, and writes what changed
//! (`changes::Changes`). The state machine stands in `handoff_core::decide` alone; an adapter neither decides
//! nor knows a status rule. Another adapter writes those loads and writes for its database, and takes its place
//! in `tests/contract` by one line.
//!
//! Where to look: the SQL is in `sqlite/*_row.rs`, one file per table or two that belong together; the schema in
//! `migrations/`; the writer in `sqlite/writer.rs`; hash chains in `chain.rs`.

mod anchor;
mod chain;
mod changes;
mod clock;
mod failure;
mod fold;
mod guard;
mod memory;
mod refusals;
mod revision;
mod rows;
mod sqlite;
mod words;

pub use anchor::Reading;
pub use clock::{StoreClock, SystemClock};
pub use failure::OpenError;
pub use memory::MemoryLedger;
pub use sqlite::{BlobLimits, OpenOptions, SqliteBlobs, SqliteLedger};
