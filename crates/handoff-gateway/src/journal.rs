//! The holds journal: one append-only file per transfer and generation, written by one task.
//!
//! Records that arrive while a write is under way leave together with the next one, with one `fdatasync`. A
//! record that somebody waits for is durable when the wait ends well. Where the disk refuses, a hold is given
//! back to whoever waits for it and never written later; everything else is kept, in order, and written again.

mod disk;
mod format;
#[cfg(test)]
pub(crate) mod tape;

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use crate::meter::Record;

pub(crate) use disk::{Disk, FileDisk};
pub(crate) use format::JournalError;

/// A journal is written anew, as one record, once it has grown beyond this and to twice what it was then.
const COMPACT_BYTES: u64 = 4 << 20;
/// Between two tries on a disk that refuses.
const RETRY: Duration = Duration::from_millis(250);
/// Records that leave together at the most.
const BATCH: usize = 1024;

/// The writing end of one journal.
#[derive(Debug, Clone)]
pub(crate) struct Journal {
    inbox: mpsc::UnboundedSender<Entry>,
    state: Arc<State>,
}

#[derive(Debug, Default)]
struct State {
    /// It has grown enough to be written anew.
    large: AtomicBool,
    /// Why the last write was refused, until one succeeds.
    refused: Mutex<Option<JournalError>>,
}

/// Ends when what it was given for is durable, or cannot be made so now.
pub(crate) type Durable = oneshot::Receiver<Result<(), JournalError>>;

#[derive(Debug)]
enum Entry {
    /// Must be written, sooner or later.
    Kept { bytes: Vec<u8>, done: Option<oneshot::Sender<Result<(), JournalError>>> },
    /// Must be written now or never.
    Hold { bytes: Vec<u8>, done: oneshot::Sender<Result<(), JournalError>> },
    /// Takes the place of all that was written before.
    Compacted { bytes: Vec<u8> },
}

/// The records of a journal, and the disk to go on with. A torn tail is cut off.
///
/// # Errors
/// When the file cannot be read or is not a journal.
pub(crate) fn open(path: &Path) -> Result<(Vec<Record>, FileDisk), JournalError> {
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(error.into()),
    };
    let (records, good) = format::read(&bytes)?;
    if good < bytes.len() {
        tracing::warn!(path = %path.display(), cut = bytes.len() - good, "torn tail of a journal cut off");
    }
    let disk = FileDisk::open(path, good as u64)?;
    Ok((records, disk))
}

/// Removes a journal; one that is not there is removed already.
///
/// # Errors
/// When the file or its folder cannot be changed.
pub(crate) fn forget(path: &Path) -> Result<(), JournalError> {
    match std::fs::remove_file(path) {
        Ok(()) => Ok(disk::sync_folder(path)?),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error.into()),
    }
}

impl Journal {
    /// Starts the task that writes to `disk`. It ends once this journal is dropped and all is written.
    pub(crate) fn start(disk: Box<dyn Disk>) -> Self {
        let (inbox, entries) = mpsc::unbounded_channel();
        let state = Arc::new(State::default());
        tokio::spawn(
            Writer { disk: Some(disk), compacted: Some(0), entries, state: Arc::clone(&state) }.run(),
        );
        Self { inbox, state }
    }

    /// Writes records in this order, after all that was given before.
    pub(crate) fn append(&self, records: &[Record]) {
        if !records.is_empty() {
            self.send(Entry::Kept { bytes: format::write(records), done: None });
        }
    }

    /// The same, and says when they are durable. Without records: when all that was given before is.
    pub(crate) fn append_durably(&self, records: &[Record]) -> Durable {
        let (done, durable) = oneshot::channel();
        self.send(Entry::Kept { bytes: format::write(records), done: Some(done) });
        durable
    }

    /// Writes a hold now or never.
    pub(crate) fn append_hold(&self, records: &[Record]) -> Durable {
        let (done, durable) = oneshot::channel();
        self.send(Entry::Hold { bytes: format::write(records), done });
        durable
    }

    /// Whether the journal should be written anew; says so once per time that it has grown.
    pub(crate) fn is_large(&self) -> bool {
        self.state.large.swap(false, Ordering::Relaxed)
    }

    /// Puts one record in the place of all that was given before.
    pub(crate) fn compact(&self, record: &Record) {
        self.send(Entry::Compacted { bytes: format::write(std::slice::from_ref(record)) });
    }

    /// Why the last write was refused, until one succeeds.
    pub(crate) fn refusal(&self) -> Option<JournalError> {
        self.state.refused.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn send(&self, entry: Entry) {
        // The writer ends only when this sender is gone, or with the whole runtime.
        let _ = self.inbox.send(entry);
    }
}

impl State {
    fn set_refused(&self, refused: Option<JournalError>) {
        *self.refused.lock().unwrap_or_else(PoisonError::into_inner) = refused;
    }
}

struct Writer {
    /// Away only while a batch is being written.
    disk: Option<Box<dyn Disk>>,
    /// Its length when it was last written anew, or could not be; unknown until the next write after that.
    compacted: Option<u64>,
    entries: mpsc::UnboundedReceiver<Entry>,
    state: Arc<State>,
}

impl Writer {
    async fn run(mut self) {
        let mut backlog = Vec::new();
        loop {
            if backlog.is_empty() && self.entries.recv_many(&mut backlog, BATCH).await == 0 {
                return;
            }
            backlog = match self.write(backlog).await {
                Ok(rest) => rest,
                Err(refused) => self.refused(refused).await,
            };
        }
    }

    /// Writes a batch up to the first compaction in it; the rest comes next.
    async fn write(&mut self, mut batch: Vec<Entry>) -> Result<Vec<Entry>, (Vec<Entry>, JournalError)> {
        if let [Entry::Compacted { .. }, ..] = batch.as_slice() {
            let Entry::Compacted { bytes } = batch.remove(0) else { return Ok(batch) };
            if let Err(bytes) = self.compact(bytes).await {
                batch.insert(0, Entry::Kept { bytes, done: None });
            }
            return Ok(batch);
        }
        let compaction = batch.iter().position(|entry| matches!(entry, Entry::Compacted { .. }));
        let rest = batch.split_off(compaction.unwrap_or(batch.len()));
        let joined = batch.iter().flat_map(Entry::bytes).copied().collect::<Vec<u8>>();
        let outcome = self.on_disk(move |disk| disk.append(&joined)).await;
        match outcome {
            Ok(length) => {
                self.state.set_refused(None);
                let before = *self.compacted.get_or_insert(length);
                if length > COMPACT_BYTES.max(2 * before) {
                    self.state.large.store(true, Ordering::Relaxed);
                }
                batch.into_iter().for_each(|entry| entry.tell(Ok(())));
                Ok(rest)
            }
            Err(error) => {
                batch.extend(rest);
                Err((batch, error.into()))
            }
        }
    }

    /// Compaction only saves room: where it fails the old file goes on, and gives the record back to be added
    /// to it. Records behind it may end holds that stand in this record and nowhere else.
    async fn compact(&mut self, bytes: Vec<u8>) -> Result<(), Vec<u8>> {
        let length = bytes.len() as u64;
        let copy = bytes.clone();
        match self.on_disk(move |disk| disk.replace(&copy)).await {
            Ok(()) => {
                self.compacted = Some(length);
                Ok(())
            }
            Err(error) => {
                tracing::warn!(%error, "a journal could not be written anew");
                self.compacted = None;
                Err(bytes)
            }
        }
    }

    /// Tells everybody who waits, keeps what must not be lost, and waits before the next try.
    async fn refused(&mut self, (batch, error): (Vec<Entry>, JournalError)) -> Vec<Entry> {
        tracing::warn!(%error, "the journal cannot be written; no call leaves until it can");
        self.state.set_refused(Some(error.clone()));
        let mut kept: Vec<Entry> = batch.into_iter().filter_map(|entry| entry.keep(&error)).collect();
        tokio::time::sleep(RETRY).await;
        while let Ok(entry) = self.entries.try_recv() {
            kept.push(entry);
        }
        kept
    }

    async fn on_disk<T: Send + 'static>(
        &mut self,
        work: impl FnOnce(&mut dyn Disk) -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let mut disk = self.disk.take().expect("one batch is written at a time");
        let written = tokio::task::spawn_blocking(move || {
            let outcome = work(disk.as_mut());
            (disk, outcome)
        });
        let (disk, outcome) = written.await.map_err(io::Error::other)?;
        self.disk = Some(disk);
        outcome
    }
}

impl Entry {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Kept { bytes, .. } | Self::Hold { bytes, .. } | Self::Compacted { bytes } => bytes,
        }
    }

    fn tell(self, outcome: Result<(), JournalError>) {
        let done = match self {
            Self::Kept { done, .. } => done,
            Self::Hold { done, .. } => Some(done),
            Self::Compacted { .. } => None,
        };
        // Whoever gave up waiting does not need to know.
        let _ = done.map(|done| done.send(outcome));
    }

    fn keep(self, error: &JournalError) -> Option<Self> {
        match self {
            Self::Kept { bytes, done } => {
                let _ = done.map(|done| done.send(Err(error.clone())));
                Some(Self::Kept { bytes, done: None })
            }
            Self::Hold { bytes: _, done } => {
                let _ = done.send(Err(error.clone()));
                None
            }
            Self::Compacted { bytes } => Some(Self::Compacted { bytes }),
        }
    }
}

#[cfg(test)]
mod tests {
    use handoff_protocol::{CallId, NanoUsd};

    use super::tape::Tape;
    use super::*;

    fn held(call: u128) -> Record {
        let call_id = CallId::from_u128(call);
        Record::Held { epoch: 2, call_id, amount_usd: NanoUsd::from_nano(7) }
    }

    #[tokio::test]
    async fn records_that_come_together_leave_together_and_in_order() {
        let tape = Tape::default();
        let journal = Journal::start(Box::new(tape.clone()));
        let waits: Vec<_> = (0..100).map(|call| journal.append_hold(&[held(call)])).collect();
        for wait in waits {
            assert_eq!(wait.await, Ok(Ok(())));
        }
        assert_eq!(tape.records(), (0..100).map(held).collect::<Vec<_>>());
        assert!(tape.syncs() < 100);
    }

    #[tokio::test]
    async fn a_full_disk_gives_holds_back_and_keeps_the_rest() {
        let tape = Tape::default();
        let journal = Journal::start(Box::new(tape.clone()));
        tape.fill(true);
        let exhausted = journal.append_durably(&[Record::Exhausted]);
        let hold = journal.append_hold(&[held(1)]);
        assert_eq!(hold.await, Ok(Err(JournalError::Full)));
        assert_eq!(exhausted.await, Ok(Err(JournalError::Full)));
        assert_eq!(journal.refusal(), Some(JournalError::Full));
        tape.fill(false);
        assert_eq!(journal.append_durably(&[Record::Replenished]).await, Ok(Ok(())));
        assert_eq!(tape.records(), [Record::Exhausted, Record::Replenished]);
        assert_eq!(journal.refusal(), None);
    }

    #[tokio::test]
    async fn compaction_takes_the_place_of_what_came_before() {
        let tape = Tape::default();
        let journal = Journal::start(Box::new(tape.clone()));
        journal.append(&[held(1), held(2)]);
        journal.compact(&Record::Exhausted);
        assert_eq!(journal.append_durably(&[held(3)]).await, Ok(Ok(())));
        assert_eq!(tape.records(), [Record::Exhausted, held(3)]);
    }

    #[tokio::test]
    async fn a_compaction_that_fails_keeps_its_place() {
        let tape = Tape::default();
        let journal = Journal::start(Box::new(tape.clone()));
        assert_eq!(journal.append_durably(&[held(1)]).await, Ok(Ok(())));
        tape.refuse_replacing();
        journal.compact(&Record::Exhausted);
        journal.append(&[held(2)]);
        assert_eq!(journal.append_durably(&[]).await, Ok(Ok(())));
        assert_eq!(tape.records(), [held(1), Record::Exhausted, held(2)]);
        // On a disk that is full the same, once there is room.
        tape.fill(true);
        let hold = journal.append_hold(&[held(3)]);
        journal.compact(&Record::Replenished);
        journal.append(&[held(4)]);
        assert_eq!(hold.await, Ok(Err(JournalError::Full)));
        tape.fill(false);
        assert_eq!(journal.append_durably(&[]).await, Ok(Ok(())));
        assert_eq!(tape.records(), [held(1), Record::Exhausted, held(2), Record::Replenished, held(4)]);
    }
}
