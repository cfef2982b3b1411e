//! A disk in memory that can be full: for tests of whatever stands on a journal.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use super::{Disk, format};
use crate::meter::Record;

#[derive(Default, Clone)]
pub(crate) struct Tape {
    written: Arc<Mutex<Vec<u8>>>,
    full: Arc<AtomicBool>,
    irreplaceable: Arc<AtomicBool>,
    /// Whether writes wait, and whether one does.
    gate: Arc<(Mutex<(bool, bool)>, Condvar)>,
    syncs: Arc<AtomicUsize>,
}

impl Disk for Tape {
    fn append(&mut self, bytes: &[u8]) -> io::Result<u64> {
        let (gate, moved) = &*self.gate;
        let mut state = gate.lock().expect("no panic");
        while state.0 {
            state.1 = true;
            state = moved.wait(state).expect("no panic");
        }
        drop(state);
        if self.full.load(Ordering::Relaxed) {
            return Err(io::Error::from(io::ErrorKind::StorageFull));
        }
        self.syncs.fetch_add(1, Ordering::Relaxed);
        let mut written = self.written.lock().expect("no panic");
        written.extend_from_slice(bytes);
        Ok(written.len() as u64)
    }

    fn replace(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.full.load(Ordering::Relaxed) || self.irreplaceable.load(Ordering::Relaxed) {
            return Err(io::Error::from(io::ErrorKind::StorageFull));
        }
        *self.written.lock().expect("no panic") = bytes.to_vec();
        Ok(())
    }
}

impl Tape {
    /// Whether the next writes are refused.
    pub(crate) fn fill(&self, full: bool) {
        self.full.store(full, Ordering::Relaxed);
    }

    /// From now on nothing is written anew.
    pub(crate) fn refuse_replacing(&self) {
        self.irreplaceable.store(true, Ordering::Relaxed);
    }

    /// Whether the next writes wait.
    pub(crate) fn hold_up(&self, wait: bool) {
        self.gate.0.lock().expect("no panic").0 = wait;
        self.gate.1.notify_all();
    }

    /// Whether a write waits.
    pub(crate) fn is_held_up(&self) -> bool {
        self.gate.0.lock().expect("no panic").1
    }

    /// How often it was written to.
    pub(crate) fn syncs(&self) -> usize {
        self.syncs.load(Ordering::Relaxed)
    }

    /// What a restart would find.
    pub(crate) fn records(&self) -> Vec<Record> {
        let bytes = [format::MAGIC, self.written.lock().expect("no panic").as_slice()].concat();
        format::read(&bytes).expect("a journal").0
    }
}
