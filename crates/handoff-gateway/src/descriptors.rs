//! Open files, shared out among doors. A process has only so many, and whoever sits behind a door may open
//! connections until there are none: then no door, no upstream and no node would be served.
//!
//! A third of them is for doors, and as much again for the calls that come through, one upstream connection
//! each; the rest is for the control socket, journals and listeners. A door takes another one only while it
//! has fewer than are free. So one greedy door gets half, two get a third each, and there is always as much
//! left for the next one as any of them has.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::sync::watch;

/// Connections of one door at the most, however many are free: calls, and those kept for the next one.
const MOST: usize = 512;
/// With fewer nobody is served at all.
const LEAST: usize = 8;

/// What all doors of a gateway share.
#[derive(Debug)]
pub(crate) struct Descriptors {
    free: watch::Sender<usize>,
}

/// One door's part.
#[derive(Debug)]
pub(crate) struct Share {
    all: Arc<Descriptors>,
    taken: Arc<AtomicUsize>,
}

/// One connection's. Given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Taken {
    all: Arc<Descriptors>,
    taken: Arc<AtomicUsize>,
}

impl Descriptors {
    /// Those of this process, of which it may use all from now on: the soft limit is a default for programs
    /// that cannot count beyond 1024.
    pub(crate) fn of_this_process() -> Arc<Self> {
        let limit = getrlimit(Resource::Nofile);
        let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
        let usable = match setrlimit(Resource::Nofile, raised) {
            Ok(()) => limit.maximum,
            Err(error) => {
                tracing::warn!(%error, "the limit of open files could not be raised");
                limit.current
            }
        };
        let usable = usable.map_or(usize::MAX, |usable| usize::try_from(usable).unwrap_or(usize::MAX));
        Self::for_doors(usable / 3)
    }

    fn for_doors(connections: usize) -> Arc<Self> {
        Arc::new(Self { free: watch::Sender::new(connections.max(LEAST)) })
    }

    /// The part of a door, of which nothing is taken yet.
    pub(crate) fn share(self: &Arc<Self>) -> Share {
        Share { all: Arc::clone(self), taken: Arc::default() }
    }
}

impl Share {
    /// Waits until this door may have another connection.
    pub(crate) async fn take(&self) -> Taken {
        let mut free = self.all.free.subscribe();
        while !self.try_take() {
            free.changed().await.expect("the sender lives in what this borrows");
        }
        Taken { all: Arc::clone(&self.all), taken: Arc::clone(&self.taken) }
    }

    fn try_take(&self) -> bool {
        self.all.free.send_if_modified(|free| {
            let fits = self.taken.load(Ordering::Relaxed) < MOST.min(*free);
            if fits {
                *free -= 1;
                self.taken.fetch_add(1, Ordering::Relaxed);
            }
            fits
        })
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.taken.fetch_sub(1, Ordering::Relaxed);
        self.all.free.send_modify(|free| *free += 1);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    fn all(share: &Share) -> Vec<Taken> {
        std::iter::from_fn(|| share.take().now_or_never()).collect()
    }

    #[test]
    fn greedy_doors_leave_as_much_as_they_take() {
        let descriptors = Descriptors::for_doors(90);
        let doors = [descriptors.share(), descriptors.share(), descriptors.share()];
        let first = all(&doors[0]);
        assert_eq!(first.len(), 45);
        let second = all(&doors[1]);
        assert_eq!(second.len(), 23);
        assert_eq!(all(&doors[2]).len(), 11);
        drop(first);
        assert_eq!(all(&doors[2]).len(), 34);
        assert!(doors[1].take().now_or_never().is_some(), "and there is more for it again");
        assert_eq!(second.len(), 23);
    }

    #[tokio::test]
    async fn whoever_waits_is_woken() {
        let descriptors = Descriptors::for_doors(LEAST);
        let door = descriptors.share();
        let mut taken = all(&door);
        let waits = async { door.take().await };
        let gives = async { drop(taken.pop()) };
        let (another, ()) = tokio::join!(waits, gives);
        drop(another);
        assert!(Descriptors::for_doors(usize::MAX).share().take().now_or_never().is_some());
    }
}
