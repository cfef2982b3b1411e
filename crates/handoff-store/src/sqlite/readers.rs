//! Readers: a few threads with a connection each, so that a long list never holds up a commit.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use handoff_core::ledger::LedgerError;
use rusqlite::Connection;
use tokio::sync::oneshot;

use crate::failure::Failure;
use crate::guard;

type Job = Box<dyn FnOnce(&Connection) + Send>;

pub(super) struct Readers {
    jobs: Option<Sender<Job>>,
    threads: Vec<JoinHandle<()>>,
}

impl Readers {
    /// Starts one thread for each connection.
    pub(super) fn start(connections: Vec<Connection>) -> std::io::Result<Self> {
        let (jobs, waiting) = channel::<Job>();
        let waiting = Arc::new(Mutex::new(waiting));
        let start = |connection| {
            let waiting = Arc::clone(&waiting);
            let name = "handoff-store-reader".to_owned();
            std::thread::Builder::new().name(name).spawn(move || serve(&connection, &waiting))
        };
        let threads = connections.into_iter().map(start).collect::<std::io::Result<_>>()?;
        Ok(Self { jobs: Some(jobs), threads })
    }

    /// Reads something on one of them, as of the last commit.
    pub(super) async fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, LedgerError> {
        let (answer, answered) = oneshot::channel();
        let job: Job = Box::new(move |connection| {
            let _ = answer.send(guard::run(|| whole(connection, work)));
        });
        let sent = self.jobs.as_ref().is_some_and(|jobs| jobs.send(job).is_ok());
        let closed = || LedgerError::from(Failure::Closed);
        if !sent {
            return Err(closed());
        }
        Ok(answered.await.map_err(|_| closed())??)
    }
}

/// In one transaction, so that all its statements see the same moment.
fn whole<T>(
    connection: &Connection,
    work: impl FnOnce(&Connection) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let transaction = connection.unchecked_transaction()?;
    work(&transaction)
}

fn serve(connection: &Connection, waiting: &Mutex<Receiver<Job>>) {
    loop {
        // Held while waiting: the others wait for the lock instead of the queue, in the same order.
        let job = waiting.lock().unwrap_or_else(PoisonError::into_inner).recv();
        match job {
            Ok(job) => job(connection),
            Err(_) => return,
        }
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        self.jobs = None;
        for thread in self.threads.drain(..) {
            // A reader catches panics of its jobs; one that ended all the same has nothing to say here.
            let _ = thread.join();
        }
    }
}
