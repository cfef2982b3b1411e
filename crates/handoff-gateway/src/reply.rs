//! An answer on its way from the task that makes a call to the connection that waits for it. The task outlives
//! the connection: whoever leaves does not stop a call that is being charged. Nor does whoever reads slowly, or
//! stands frozen: a whole answer of usual size fits in between, so that its call can settle.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Response, response};
use hyper::body::{Body, Frame, SizeHint};
use tokio::sync::{Semaphore, mpsc};

/// Bytes that may be waiting for a slow reader.
const WAITING_BYTES: usize = 2 << 20;

#[derive(Debug)]
enum Piece {
    Whole(Response<Bytes>),
    Head(response::Parts),
    Data(Bytes),
    End,
}

/// The caller has left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Gone;

/// The end that the answer is put into. Dropped before it is complete, the caller sees the answer break off.
#[derive(Debug)]
pub(crate) struct Reply {
    pieces: mpsc::UnboundedSender<Piece>,
    room: Arc<Semaphore>,
}

/// The end that the answer comes out of.
#[derive(Debug)]
pub(crate) struct Coming {
    pieces: mpsc::UnboundedReceiver<Piece>,
    room: Arc<Semaphore>,
}

/// Both ends.
pub(crate) fn channel() -> (Reply, Coming) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let room = Arc::new(Semaphore::new(WAITING_BYTES));
    (Reply { pieces: sender, room: Arc::clone(&room) }, Coming { pieces: receiver, room })
}

impl Reply {
    /// Answers all at once.
    pub(crate) fn whole(&self, response: Response<Bytes>) -> Result<(), Gone> {
        self.put(Piece::Whole(response))
    }

    /// Begins an answer whose body follows.
    pub(crate) fn head(&self, parts: response::Parts) -> Result<(), Gone> {
        self.put(Piece::Head(parts))
    }

    /// The next bytes of the body, once there is room for them.
    pub(crate) async fn data(&self, bytes: Bytes) -> Result<(), Gone> {
        if bytes.is_empty() {
            return Ok(());
        }
        let room = tokio::select! {
            room = self.room.acquire_many(length(&bytes)) => room.map_err(|_| Gone)?,
            () = self.gone() => return Err(Gone),
        };
        room.forget();
        self.put(Piece::Data(bytes))
    }

    /// The body is complete.
    pub(crate) fn end(&self) -> Result<(), Gone> {
        self.put(Piece::End)
    }

    /// Ends when the caller has left.
    pub(crate) async fn gone(&self) {
        self.pieces.closed().await;
    }

    /// Whether the caller has left.
    pub(crate) fn is_gone(&self) -> bool {
        self.pieces.is_closed()
    }

    fn put(&self, piece: Piece) -> Result<(), Gone> {
        self.pieces.send(piece).map_err(|_| Gone)
    }
}

impl Coming {
    /// The answer, once it has begun.
    ///
    /// # Errors
    /// When the call's task ended without one.
    pub(crate) async fn response(mut self) -> io::Result<Response<DoorBody>> {
        match self.pieces.recv().await {
            Some(Piece::Whole(response)) => Ok(response.map(DoorBody::whole)),
            Some(Piece::Head(parts)) => Ok(Response::from_parts(parts, DoorBody::Coming(self))),
            Some(Piece::Data(_) | Piece::End) | None => Err(broke_off()),
        }
    }
}

/// How much room bytes take; more than there is takes all of it.
fn length(bytes: &Bytes) -> u32 {
    u32::try_from(bytes.len().min(WAITING_BYTES)).expect("a few megabytes")
}

fn broke_off() -> io::Error {
    io::Error::from(io::ErrorKind::UnexpectedEof)
}

/// The body of an answer at the door.
#[derive(Debug)]
pub(crate) enum DoorBody {
    /// All of it, until it is taken.
    Whole(Option<Bytes>),
    /// As it comes.
    Coming(Coming),
    /// It broke off; what came before is on its way out.
    BrokenOff,
    /// Nothing more.
    Over,
}

impl DoorBody {
    /// A body that is there.
    pub(crate) fn whole(bytes: Bytes) -> Self {
        Self::Whole(Some(bytes).filter(|bytes| !bytes.is_empty()))
    }
}

impl Body for DoorBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let coming = match &mut *self {
            Self::Whole(bytes) => return Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Self::Over => return Poll::Ready(None),
            Self::BrokenOff => {
                *self = Self::Over;
                return Poll::Ready(Some(Err(broke_off())));
            }
            Self::Coming(coming) => coming,
        };
        let Poll::Ready(piece) = coming.pieces.poll_recv(context) else { return Poll::Pending };
        match piece {
            Some(Piece::Data(bytes)) => {
                coming.room.add_permits(length(&bytes) as usize);
                Poll::Ready(Some(Ok(Frame::data(bytes))))
            }
            Some(Piece::End) => {
                *self = Self::Over;
                Poll::Ready(None)
            }
            Some(Piece::Whole(_) | Piece::Head(_)) | None => {
                // The server drops what it has not written when a body fails, and writes when one is pending.
                *self = Self::BrokenOff;
                context.waker().wake_by_ref();
                Poll::Pending
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Whole(None) | Self::Over)
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
            Self::Over => SizeHint::with_exact(0),
            Self::Coming(_) | Self::BrokenOff => SizeHint::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    async fn read(body: &mut DoorBody) -> Option<io::Result<Bytes>> {
        let frame = poll_fn(|context| Pin::new(&mut *body).poll_frame(context)).await?;
        Some(frame.map(|frame| frame.into_data().expect("no trailers")))
    }

    async fn begun() -> (Reply, DoorBody) {
        let (reply, coming) = channel();
        reply.head(Response::new(()).into_parts().0).expect("somebody waits");
        (reply, coming.response().await.expect("a head").into_body())
    }

    #[tokio::test]
    async fn an_answer_of_usual_size_needs_no_reader() {
        let (reply, mut body) = begun().await;
        let piece = Bytes::from(vec![7; WAITING_BYTES / 4]);
        for _ in 0..4 {
            reply.data(piece.clone()).await.expect("room");
        }
        {
            let mut next = std::pin::pin!(reply.data(piece.clone()));
            let waits = poll_fn(|context| Poll::Ready(next.as_mut().poll(context).is_pending())).await;
            assert!(waits, "there is no more room");
            assert_eq!(read(&mut body).await.expect("a piece").expect("no error"), piece);
            next.await.expect("room again");
        }
        reply.end().expect("somebody waits");
        for _ in 0..4 {
            read(&mut body).await.expect("a piece").expect("no error");
        }
        assert!(read(&mut body).await.is_none());
    }

    #[tokio::test]
    async fn a_piece_that_is_larger_than_all_room_passes() {
        let (reply, mut body) = begun().await;
        let huge = Bytes::from(vec![7; WAITING_BYTES * 2]);
        reply.data(huge.clone()).await.expect("room");
        assert_eq!(read(&mut body).await.expect("a piece").expect("no error"), huge);
        reply.data(huge.clone()).await.expect("room again");
    }

    #[tokio::test]
    async fn an_answer_without_its_end_breaks_off_and_one_that_nobody_waits_for_is_noticed() {
        let (reply, mut body) = begun().await;
        reply.data(Bytes::from_static(b"x")).await.expect("room");
        drop(reply);
        assert!(read(&mut body).await.expect("a piece").is_ok());
        assert!(read(&mut body).await.expect("an error").is_err());
        let (reply, body) = begun().await;
        reply.data(Bytes::from(vec![7; WAITING_BYTES])).await.expect("room");
        drop(body);
        reply.gone().await;
        assert_eq!(reply.data(Bytes::from_static(b"x")).await, Err(Gone));
    }
}
