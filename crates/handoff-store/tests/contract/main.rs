//! The contract suite over every adapter, and what is particular to each.

mod bytes;
mod clock;
mod damage;
mod files;
mod full;
mod kill;
mod stores;
mod twins;

use stores::{MemoryStore, SqliteStore};

handoff_testkit::contract_suite!(memory, MemoryStore);
handoff_testkit::contract_suite!(sqlite, SqliteStore::default());
