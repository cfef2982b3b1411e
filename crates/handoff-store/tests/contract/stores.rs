//! The adapters as the suite opens them.

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use handoff_core::Policy;
use handoff_core::ledger::Ledger;
use handoff_store::{MemoryLedger, OpenOptions, SqliteLedger};
use handoff_testkit::clock::ManualClock;
use handoff_testkit::contract::Store;
use tempfile::TempDir;

/// The registry in memory.
pub(crate) struct MemoryStore;

#[async_trait]
impl Store for MemoryStore {
    async fn open(&mut self, policy: Policy, clock: &ManualClock) -> Arc<dyn Ledger> {
        Arc::new(MemoryLedger::new(policy, Arc::new(clock.reader())))
    }

    fn is_durable(&self) -> bool {
        false
    }
}

/// The registry in a file of a folder of its own.
pub(crate) struct SqliteStore {
    folder: TempDir,
}

impl Default for SqliteStore {
    fn default() -> Self {
        Self { folder: TempDir::new().expect("a folder for a test") }
    }
}

impl SqliteStore {
    /// The store's file.
    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("handoff.db")
    }
}

#[async_trait]
impl Store for SqliteStore {
    async fn open(&mut self, policy: Policy, clock: &ManualClock) -> Arc<dyn Ledger> {
        let options = OpenOptions { clock: Arc::new(clock.reader()), ..OpenOptions::default() };
        Arc::new(SqliteLedger::open(self.path(), policy, options).expect("the store opens"))
    }

    fn is_durable(&self) -> bool {
        true
    }
}
