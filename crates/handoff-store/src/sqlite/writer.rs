//! The writer: one thread, one connection, one transaction for all commands that wait.
//!
//! A durable commit costs the disk's flush, however much it carries. So whatever waits when the last flush is
//! done shares the next one, and nothing waits for more to come. Answers are sent after the commit.

use std::sync::Arc;

use handoff_core::Policy;
use handoff_core::ledger::{Applied, AuditEntry, Envelope, LedgerError};
use rusqlite::{Connection, TransactionBehavior};
use tokio::sync::{mpsc, oneshot};

use super::cache::Cache;
use super::write::{self, Heads};
use super::{clock_row, load};
use crate::clock::StoreTime;
use crate::failure::Failure;
use crate::fold::{self, Folded, Wanted};
use crate::guard;
use crate::refusals::Refusals;
use crate::revision::Revision;
use crate::rows::Row;

/// Commands of one transaction at most: a bound on how long the first of them waits for the last.
const BATCH: usize = 1024;

pub(super) type Answers = Vec<Result<Applied, LedgerError>>;

/// What the writer is asked to do.
pub(super) enum Job {
    /// Commands to be decided.
    Apply {
        /// In order.
        commands: Vec<Envelope>,
        /// Gets one answer for each.
        answer: oneshot::Sender<Answers>,
    },
    /// An audit row that no command writes.
    Record {
        /// What it says.
        entry: AuditEntry,
        /// Gets the outcome.
        answer: oneshot::Sender<Result<(), Failure>>,
    },
    /// Another write, in a transaction of its own. It touches no session, transfer or chain.
    Write(Box<dyn FnOnce(&mut Connection) + Send>),
}

pub(super) struct Writer {
    pub(super) connection: Connection,
    pub(super) policy: Policy,
    pub(super) time: Arc<StoreTime>,
    pub(super) revision: Arc<Revision>,
    pub(super) refusals: Refusals,
    pub(super) cache: Cache,
}

impl Writer {
    /// Works until nobody can ask any more; what was asked before that is done.
    pub(super) fn run(mut self, mut jobs: mpsc::Receiver<Job>) {
        while let Some(first) = jobs.blocking_recv() {
            let mut waiting = Vec::new();
            let mut next = Some(first);
            let mut commands = 0;
            while let Some(job) = next.take() {
                match job {
                    Job::Apply { commands: more, answer } => {
                        commands += more.len();
                        waiting.push((more, answer));
                        if commands < BATCH {
                            next = jobs.try_recv().ok();
                        }
                    }
                    Job::Record { entry, answer } => {
                        self.apply(std::mem::take(&mut waiting));
                        let row = Row::of_entry(entry, self.time.now());
                        let _ = answer.send(guard::run(|| self.record(&[row])));
                    }
                    Job::Write(work) => {
                        self.apply(std::mem::take(&mut waiting));
                        work(&mut self.connection);
                    }
                }
            }
            self.apply(waiting);
        }
    }

    /// Applies what several callers asked for as one batch, and answers each.
    fn apply(&mut self, waiting: Vec<(Vec<Envelope>, oneshot::Sender<Answers>)>) {
        if waiting.is_empty() {
            return;
        }
        let (mut envelopes, mut callers) = (Vec::new(), Vec::new());
        for (commands, answer) in waiting {
            callers.push((commands.len(), answer));
            envelopes.extend(commands);
        }
        let mut answers = self.batch(&envelopes).into_iter();
        for (count, answer) in callers {
            // A caller that went away does not need it: what was applied stays applied.
            let _ = answer.send(answers.by_ref().take(count).collect());
        }
    }

    /// One transaction for all; where that fails for a reason that may be one command's, one for each, so that
    /// none can fail the others.
    fn batch(&mut self, envelopes: &[Envelope]) -> Answers {
        match self.attempt(envelopes) {
            Ok(answers) => answers,
            Err(failure) if envelopes.len() == 1 => vec![Err(write::answer(failure))],
            Err(failure) if failure.may_be_one_command() => {
                tracing::warn!(error = %failure, commands = envelopes.len(), "a batch failed: each is tried alone");
                envelopes.iter().flat_map(|envelope| self.batch(std::slice::from_ref(envelope))).collect()
            }
            Err(failure) => {
                tracing::error!(error = %failure, commands = envelopes.len(), "a batch was not applied");
                let unknown = || LedgerError::Unavailable(failure.to_string().into());
                envelopes.iter().map(|_| Err(unknown())).collect()
            }
        }
    }

    fn attempt(&mut self, envelopes: &[Envelope]) -> Result<Answers, Failure> {
        let (folded, heads) = match guard::run(|| self.transact(envelopes)) {
            Ok(done) => done,
            Err(failure) => {
                self.cache.clear();
                return Err(failure);
            }
        };
        if folded.changes.is_seen() {
            self.revision.raise();
        }
        let mut refused = Vec::new();
        for (envelope, answer) in envelopes.iter().zip(&folded.answers) {
            if let Err(error) = answer {
                let named = folded.named(envelope);
                refused.extend(self.refusals.row(envelope, error, named, folded.changes.at));
            }
        }
        self.cache.put(folded.states);
        self.cache.put_heads(heads);
        if !refused.is_empty()
            && let Err(failure) = self.record(&refused)
        {
            tracing::warn!(error = %failure, "refusals could not be recorded");
        }
        Ok(folded.answers)
    }

    /// Loads, decides and writes in one transaction. An error rolls it back.
    fn transact(&mut self, envelopes: &[Envelope]) -> Result<(Folded, Heads), Failure> {
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let loaded = load::load(&transaction, &Wanted::of(envelopes), &mut self.cache)?;
        // Read after the lock is held, so that decisions and times have the same order.
        let now = self.time.now();
        let folded = fold::fold(&self.policy, now, loaded, envelopes);
        if folded.changes.is_empty() {
            return Ok((folded, Heads::new()));
        }
        let heads = write::write(&transaction, &folded.changes, &self.cache)?;
        clock_row::commit(transaction, &self.time)?;
        Ok((folded, heads))
    }

    fn record(&mut self, rows: &[Row]) -> Result<(), Failure> {
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let heads = write::record(&transaction, rows, &self.cache)?;
        clock_row::commit(transaction, &self.time)?;
        self.cache.put_heads(heads);
        Ok(())
    }
}
