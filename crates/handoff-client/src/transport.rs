//! How a request reaches the control plane: one connection per request, so that a control plane that went away
//! and came back leaves no dead connection behind.

use std::path::PathBuf;

use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;

use crate::ClientError;

/// Where a control plane listens.
#[derive(Debug, Clone)]
pub(crate) enum Transport {
    /// On a Unix socket.
    Unix(PathBuf),
}

/// An answer in memory.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Transport {
    /// The address, for errors.
    pub(crate) fn at(&self) -> String {
        match self {
            Self::Unix(path) => path.display().to_string(),
        }
    }

    /// Sends one request and reads its answer, of at most `most` bytes.
    pub(crate) async fn send(
        &self,
        request: Request<Full<Bytes>>,
        most: usize,
    ) -> Result<Answer, ClientError> {
        let stream = match self {
            Self::Unix(path) => UnixStream::connect(path).await,
        };
        let stream = stream.map_err(|error| self.unreachable(false, error))?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| self.unreachable(false, error))?;
        let driver = tokio::spawn(connection);
        let answer = async {
            let answer = sender.send_request(request).await.map_err(|error| self.unreachable(true, error))?;
            let (head, body) = answer.into_parts();
            let body = Limited::new(body, most)
                .collect()
                .await
                .map_err(|source| ClientError::Unreachable { at: self.at(), sent: true, source })?;
            Ok(Answer { status: head.status, headers: head.headers, body: body.to_bytes() })
        }
        .await;
        // The connection is not used again; its end is not waited for.
        driver.abort();
        answer
    }

    fn unreachable(&self, sent: bool, source: impl std::error::Error + Send + Sync + 'static) -> ClientError {
        ClientError::Unreachable { at: self.at(), sent, source: Box::new(source) }
    }
}
