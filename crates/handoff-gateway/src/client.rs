//! The node's side of the control socket.

use std::io;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use handoff_protocol::Problem;
use http::{Method, Request, header};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;

use crate::control::Ask;
use crate::socket;

/// Why a question has no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The gateway refuses.
    #[error(transparent)]
    Refused(#[from] Problem),
    /// The gateway does not run, or went away. Whether it heard the question is unknown; every verb may be
    /// said again.
    #[error("the gateway does not answer at {path}")]
    Unreachable {
        /// Its control socket.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Whoever answers is no gateway of this version.
    #[error("the answer is not one of a gateway of this version")]
    Unreadable(#[source] serde_json::Error),
}

/// Asks a gateway over its control socket, one connection per question, so that a restarted gateway is found
/// without ado.
#[derive(Debug, Clone)]
pub struct GatewayClient {
    path: PathBuf,
}

impl GatewayClient {
    /// A client of the gateway whose control socket is at `path`.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// The control socket.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Asks and waits for the answer: `client.ask(&Admit { … }).await?`.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn ask<A: Ask + Sync>(&self, ask: &A) -> Result<A::Reply, ClientError> {
        let body = serde_json::to_vec(ask).map_err(ClientError::Unreadable)?;
        let (ok, bytes) = self
            .post(A::PATH, body.into())
            .await
            .map_err(|source| ClientError::Unreachable { path: self.path.clone(), source })?;
        if ok {
            serde_json::from_slice(&bytes).map_err(ClientError::Unreadable)
        } else {
            Err(serde_json::from_slice::<Problem>(&bytes).map_err(ClientError::Unreadable)?.into())
        }
    }

    async fn post(&self, path: &str, body: Bytes) -> io::Result<(bool, Bytes)> {
        let stream = socket::connect(&self.path).await?;
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
        let request = Request::builder()
            .method(Method::POST)
            .uri(path)
            .header(header::HOST, "gateway")
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::new(body))
            .map_err(io::Error::other)?;
        let connection = tokio::spawn(connection);
        let answer = async {
            let answer = sender.send_request(request).await?;
            let ok = answer.status().is_success();
            Ok::<_, hyper::Error>((ok, answer.into_body().collect().await?.to_bytes()))
        };
        let answer = answer.await.map_err(io::Error::other);
        connection.abort();
        answer
    }
}
