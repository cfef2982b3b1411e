//! What is behind an open file: the threads and how to ask them.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

use handoff_core::Policy;
use handoff_core::ledger::{AuditEntry, Envelope, LedgerError};
use rusqlite::{Connection, TransactionBehavior};
use tokio::sync::{mpsc, oneshot};

use super::cache::Cache;
use super::clock_row;
use super::open::{self, OpenOptions, Opened};
use super::readers::Readers;
use super::writer::{Answers, Job, Writer};
use crate::clock::StoreTime;
use crate::failure::{Failure, OpenError};
use crate::guard;
use crate::refusals::Refusals;
use crate::revision::Revision;

/// Jobs that wait for the writer before callers have to wait to ask.
const QUEUE: usize = 4096;

/// An open store. Dropping the last handle finishes what was asked, closes the file and lets its lock go.
pub(super) struct Engine {
    pub(super) path: PathBuf,
    pub(super) time: Arc<StoreTime>,
    pub(super) revision: Arc<Revision>,
    pub(super) readers: Readers,
    jobs: Option<mpsc::Sender<Job>>,
    writer: Option<JoinHandle<()>>,
    /// Last, so that the file is closed before somebody else can open it.
    _lock: File,
}

impl Engine {
    pub(super) fn open(path: &Path, policy: Policy, options: &OpenOptions) -> Result<Self, OpenError> {
        let Opened { writer, readers, lock, anchor, high_water } = open::open(path, options)?;
        let time = Arc::new(StoreTime::new(Arc::clone(&options.clock), anchor, high_water));
        let revision = Arc::new(Revision::starting_at(time.now()));
        let unavailable = |error: std::io::Error| OpenError::Unavailable {
            path: path.display().to_string(),
            source: Box::new(error),
        };
        let readers = Readers::start(readers).map_err(unavailable)?;
        let (jobs, waiting) = mpsc::channel(QUEUE);
        let writer = Writer {
            connection: writer,
            policy,
            time: Arc::clone(&time),
            revision: Arc::clone(&revision),
            refusals: Refusals::default(),
            cache: Cache::default(),
        };
        let builder = std::thread::Builder::new().name("handoff-store-writer".to_owned());
        let writer = builder.spawn(move || writer.run(waiting)).map_err(unavailable)?;
        let (jobs, writer) = (Some(jobs), Some(writer));
        Ok(Self { path: path.to_owned(), time, revision, readers, jobs, writer, _lock: lock })
    }

    /// Has commands applied. They are applied even if the caller goes away.
    pub(super) async fn apply(&self, commands: Vec<Envelope>) -> Answers {
        let count = commands.len();
        let (answer, answered) = oneshot::channel();
        let sent = self.send(Job::Apply { commands, answer }).await;
        match (sent, answered.await) {
            (Ok(()), Ok(answers)) => answers,
            (Ok(()) | Err(_), _) => (0..count).map(|_| Err(Failure::Closed.into())).collect(),
        }
    }

    /// Records what no command did.
    pub(super) async fn record(&self, entry: AuditEntry) -> Result<(), LedgerError> {
        let (answer, answered) = oneshot::channel();
        self.send(Job::Record { entry, answer }).await?;
        Ok(answered.await.map_err(|_| Failure::Closed)??)
    }

    /// Writes something that is about no session or chain, in a transaction of its own.
    pub(super) async fn write<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, LedgerError> {
        let (answer, answered) = oneshot::channel();
        let time = Arc::clone(&self.time);
        let job = move |connection: &mut Connection| {
            let _ = answer.send(guard::run(|| transact(connection, &time, work)));
        };
        self.send(Job::Write(Box::new(job))).await?;
        Ok(answered.await.map_err(|_| Failure::Closed)??)
    }

    async fn send(&self, job: Job) -> Result<(), Failure> {
        let jobs = self.jobs.as_ref().ok_or(Failure::Closed)?;
        jobs.send(job).await.map_err(|_| Failure::Closed)
    }
}

fn transact<T>(
    connection: &mut Connection,
    time: &StoreTime,
    work: impl FnOnce(&Connection) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let done = work(&transaction)?;
    clock_row::commit(transaction, time)?;
    Ok(done)
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(writer) = self.writer.take() {
            // The writer catches panics of its jobs; one that ended all the same has nothing to say here.
            let _ = writer.join();
        }
    }
}
