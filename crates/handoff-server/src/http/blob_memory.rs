//! How much memory blobs on their way take. What counts is bytes that are held, for as long as they are: of an
//! answer until its reader has it, of an upload as it arrives. So a peer that is slow holds up nobody by asking.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use handoff_protocol::ErrorCode;
use handoff_protocol::limits::BLOB_BYTES;
use http_body_util::channel::Channel;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::problem::Failure;

/// What each direction may hold: four of the largest blobs.
const BUDGET_BYTES: u64 = 4 * BLOB_BYTES;
/// What is counted in one unit.
const UNIT_BYTES: u64 = 4096;
/// Bytes that a connection is handed at once. They are copied, so that a connection which nobody reads from holds
/// no more than these.
const FRAME_BYTES: usize = 64 << 10;
/// How long a reader may take for one blob.
const READING: Duration = Duration::from_secs(120);

/// The memory of all blobs on their way.
#[derive(Clone)]
pub(super) struct BlobMemory {
    going: Arc<Semaphore>,
    coming: Arc<Semaphore>,
    /// One upload at a time goes on when the budget is used up; else several that are half there could wait for
    /// each other.
    beyond: Arc<Semaphore>,
}

/// Bytes that are accounted for until it is dropped.
#[derive(Default)]
pub(super) struct Held {
    units: Vec<OwnedSemaphorePermit>,
    beyond: Option<OwnedSemaphorePermit>,
    /// Bytes that the last unit has left.
    left: u64,
}

fn units(bytes: u64) -> u32 {
    u32::try_from(bytes.div_ceil(UNIT_BYTES)).unwrap_or(u32::MAX)
}

fn stopping<E>(_: E) -> Failure {
    Failure::new(ErrorCode::StoreUnavailable, "the control plane is stopping", "ask again")
}

impl Default for BlobMemory {
    fn default() -> Self {
        Self::of(BUDGET_BYTES)
    }
}

impl BlobMemory {
    fn of(bytes: u64) -> Self {
        let budget = || Arc::new(Semaphore::new(units(bytes) as usize));
        Self { going: budget(), coming: budget(), beyond: Arc::new(Semaphore::new(1)) }
    }

    /// Waits for the memory of a whole blob that is about to be read.
    pub(super) async fn for_answer(&self, bytes: u64) -> Result<Held, Failure> {
        let most = units(bytes.min(BLOB_BYTES));
        let permit = Arc::clone(&self.going).acquire_many_owned(most).await.map_err(stopping)?;
        Ok(Held { units: vec![permit], ..Held::default() })
    }

    /// Waits for the memory of so many more bytes of an upload.
    pub(super) async fn more(&self, held: &mut Held, bytes: usize) -> Result<(), Failure> {
        let bytes = bytes as u64;
        if held.beyond.is_some() || bytes <= held.left {
            held.left = held.left.saturating_sub(bytes);
            return Ok(());
        }
        let more = units(bytes - held.left);
        held.left = held.left + u64::from(more) * UNIT_BYTES - bytes;
        tokio::select! {
            biased;
            permit = Arc::clone(&self.coming).acquire_many_owned(more) => {
                held.units.push(permit.map_err(stopping)?);
            }
            permit = Arc::clone(&self.beyond).acquire_owned() => {
                held.beyond = Some(permit.map_err(stopping)?);
            }
        }
        Ok(())
    }
}

/// A body of these bytes. They stay accounted for until the reader has them, has gone, or took too long.
pub(super) fn answer(bytes: Bytes, held: Held) -> Body {
    answer_within(READING, bytes, held)
}

fn answer_within(reading: Duration, bytes: Bytes, held: Held) -> Body {
    let (mut sender, body) = Channel::<Bytes, Infallible>::new(1);
    tokio::spawn(async move {
        let mut rest = bytes;
        let sending = async {
            while !rest.is_empty() {
                let frame = rest.split_to(rest.len().min(FRAME_BYTES));
                if sender.send_data(Bytes::copy_from_slice(&frame)).await.is_err() {
                    return;
                }
            }
        };
        // A body that ends before its length breaks the connection, which is what its reader has to learn.
        if tokio::time::timeout(reading, sending).await.is_err() {
            tracing::debug!("a blob was not read in time");
        }
        drop((rest, held));
    });
    Body::new(body)
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;

    use super::*;

    #[tokio::test]
    async fn an_answer_is_accounted_for_until_it_is_read_or_its_reader_is_gone() {
        let memory = BlobMemory::of(2 * UNIT_BYTES);
        let bytes = Bytes::from(vec![7; 2 * FRAME_BYTES + 1]);
        for reads in [true, false] {
            let held = memory.for_answer(2 * UNIT_BYTES).await.expect("room");
            let body = answer(bytes.clone(), held);
            assert_eq!(memory.going.available_permits(), 0);
            if reads {
                assert_eq!(body.collect().await.expect("read").to_bytes(), bytes);
            } else {
                drop(body);
            }
            drop(memory.for_answer(2 * UNIT_BYTES).await.expect("room again"));
        }
    }

    #[tokio::test]
    async fn a_reader_that_reads_nothing_is_given_up() {
        let memory = BlobMemory::of(UNIT_BYTES);
        let held = memory.for_answer(1).await.expect("room");
        let bytes = Bytes::from(vec![7; 4 * FRAME_BYTES]);
        let body = answer_within(Duration::from_millis(20), bytes, held);
        drop(memory.for_answer(1).await.expect("room after the time for reading"));
        let read = body.collect().await.expect("it ends early").to_bytes();
        assert!(read.len() < 4 * FRAME_BYTES);
    }

    #[tokio::test]
    async fn uploads_take_what_has_arrived_and_one_goes_on_beyond() {
        let memory = BlobMemory::of(2 * UNIT_BYTES);
        let (mut slow, mut first, mut second) = (Held::default(), Held::default(), Held::default());
        for _ in 0..10 {
            memory.more(&mut slow, 100).await.expect("little by little");
        }
        assert_eq!(memory.coming.available_permits(), 1, "ten small parts fit into one unit");
        memory.more(&mut first, 4096).await.expect("the rest");
        memory.more(&mut first, 1 << 20).await.expect("beyond");
        let waits = memory.more(&mut second, 1);
        let waited = tokio::time::timeout(Duration::from_millis(1), waits).await;
        assert!(waited.is_err(), "one at a time");
        drop(first);
        memory.more(&mut second, 1).await.expect("now there is room");
    }
}
