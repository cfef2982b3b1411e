//! An answer on its way from the task that makes a call to the connection that waits for it. The task outlives
//! the connection: whoever leaves does not stop a call that is being charged.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Response, response};
use hyper::body::{Body, Frame, SizeHint};
use tokio::sync::mpsc;

/// Pieces that may be waiting for a slow reader.
const PIECES: usize = 32;

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
    pieces: mpsc::Sender<Piece>,
}

/// The end that the answer comes out of.
#[derive(Debug)]
pub(crate) struct Coming {
    pieces: mpsc::Receiver<Piece>,
}

/// Both ends.
pub(crate) fn channel() -> (Reply, Coming) {
    let (sender, receiver) = mpsc::channel(PIECES);
    (Reply { pieces: sender }, Coming { pieces: receiver })
}

impl Reply {
    /// Answers all at once.
    pub(crate) async fn whole(&self, response: Response<Bytes>) -> Result<(), Gone> {
        self.put(Piece::Whole(response)).await
    }

    /// Begins an answer whose body follows.
    pub(crate) async fn head(&self, parts: response::Parts) -> Result<(), Gone> {
        self.put(Piece::Head(parts)).await
    }

    /// The next bytes of the body.
    pub(crate) async fn data(&self, bytes: Bytes) -> Result<(), Gone> {
        if bytes.is_empty() { Ok(()) } else { self.put(Piece::Data(bytes)).await }
    }

    /// The body is complete.
    pub(crate) async fn end(&self) -> Result<(), Gone> {
        self.put(Piece::End).await
    }

    /// Ends when the caller has left.
    pub(crate) async fn gone(&self) {
        self.pieces.closed().await;
    }

    /// Whether the caller has left.
    pub(crate) fn is_gone(&self) -> bool {
        self.pieces.is_closed()
    }

    async fn put(&self, piece: Piece) -> Result<(), Gone> {
        self.pieces.send(piece).await.map_err(|_| Gone)
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
            Some(Piece::Data(bytes)) => Poll::Ready(Some(Ok(Frame::data(bytes)))),
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
