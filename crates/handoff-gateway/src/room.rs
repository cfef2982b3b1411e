//! How much one destination may have under way at a time, by the policy in force.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Semaphore;

use crate::policy::Limits;

/// The counts of one policy's limits.
#[derive(Debug)]
pub(crate) struct Room {
    limits: Limits,
    pub(crate) calls: Arc<Semaphore>,
    /// Bytes of requests that may still be taken in.
    pub(crate) bodies: Arc<Semaphore>,
    /// Abandoned calls that are read to their end.
    pub(crate) drains: Arc<Semaphore>,
}

impl Room {
    fn new(limits: Limits) -> Self {
        let of = |count| Arc::new(Semaphore::new(count));
        let (calls, bodies, drains) = (of(limits.calls), of(limits.bodies_bytes), of(limits.drains));
        Self { limits, calls, bodies, drains }
    }
}

/// A destination's room. Under new limits it is a new one: what is under way in the old one ends there.
#[derive(Debug)]
pub(crate) struct Rooms(Mutex<Arc<Room>>);

impl Rooms {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self(Mutex::new(Arc::new(Room::new(*limits))))
    }

    /// The room under these limits.
    pub(crate) fn under(&self, limits: &Limits) -> Arc<Room> {
        let mut room = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if room.limits != *limits {
            *room = Arc::new(Room::new(*limits));
        }
        Arc::clone(&room)
    }
}
