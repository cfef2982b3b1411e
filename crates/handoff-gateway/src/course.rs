//! How long a call may take, and what becomes of it when its caller leaves: it is read to its end, within
//! bounds of time and number, because that is how its cost becomes known.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep_until};

use crate::policy::Limits;
use crate::reply::Reply;

/// The call is given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stopped {
    /// It took too long.
    TimedOut,
    /// Its caller has left, and too many such calls are being read already.
    NotDrained,
}

/// One call's time.
#[derive(Debug)]
pub(crate) struct Course<'r> {
    reply: &'r Reply,
    limits: Limits,
    deadline: Instant,
    drains: Arc<Semaphore>,
    draining: Option<OwnedSemaphorePermit>,
}

impl<'r> Course<'r> {
    pub(crate) fn new(reply: &'r Reply, limits: Limits, drains: Arc<Semaphore>) -> Self {
        Self { reply, limits, deadline: Instant::now() + limits.call(), drains, draining: None }
    }

    /// Does one step of the call, within its own limit and that of the whole.
    pub(crate) async fn within<T>(
        &mut self,
        limit: Duration,
        step: impl Future<Output = T>,
    ) -> Result<T, Stopped> {
        let mut step = pin!(step);
        let limit = Instant::now() + limit;
        loop {
            let reply = self.reply;
            tokio::select! {
                biased;
                done = &mut step => return Ok(done),
                () = reply.gone(), if self.draining.is_none() => self.abandoned()?,
                () = sleep_until(limit.min(self.deadline)) => return Err(Stopped::TimedOut),
            }
        }
    }

    /// Whether the caller has left.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.draining.is_some()
    }

    /// Nobody reads the answer any more.
    pub(crate) fn abandoned(&mut self) -> Result<(), Stopped> {
        if self.draining.is_none() {
            let permit = Arc::clone(&self.drains).try_acquire_owned().map_err(|_| Stopped::NotDrained)?;
            self.draining = Some(permit);
            self.deadline = self.deadline.min(Instant::now() + self.limits.drain());
        }
        Ok(())
    }
}
