//! Requests that no client of ours would send.

use std::path::Path;

use handoff_protocol::ErrorCode;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;

use crate::world::{PATIENCE, World};

/// An answer as it stands on the wire.
#[derive(Debug)]
pub(crate) struct RawAnswer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl RawAnswer {
    /// The code of the problem that the body must be.
    pub(crate) fn code(&self) -> ErrorCode {
        assert!(self.head.contains("content-type: application/problem+json"), "{self:?}");
        let problem: handoff_protocol::Problem = serde_json::from_str(&self.body).expect("a problem");
        assert_eq!(problem.code.http_status(), self.status);
        problem.code
    }
}

/// Sends these bytes and reads until the server closes or has answered.
pub(crate) async fn exchange(socket: &Path, request: &[u8]) -> RawAnswer {
    let talk = async {
        let mut stream = UnixStream::connect(socket).await.expect("connects");
        let (mut reads, mut writes) = stream.split();
        // The server may answer and close before it has read everything.
        let send = async {
            let _ = writes.write_all(request).await;
        };
        let mut answer = Vec::new();
        let receive = async {
            let _ = reads.read_to_end(&mut answer).await;
        };
        tokio::join!(send, receive);
        answer
    };
    let answer = tokio::time::timeout(PATIENCE, talk).await.expect("an answer in time");
    let text = String::from_utf8(answer).expect("text");
    let (head, body) = text.split_once("\r\n\r\n").expect("a head");
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    RawAnswer { status, head: head.to_ascii_lowercase(), body: body.to_owned() }
}

impl World {
    /// Sends a request with this body.
    pub(crate) async fn raw(&self, method: &str, path: &str, headers: &str, body: &[u8]) -> RawAnswer {
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {}\r\n{headers}\r\n",
            body.len()
        );
        exchange(&self.socket(), &[head.as_bytes(), body].concat()).await
    }

    /// Posts JSON.
    pub(crate) async fn post(&self, path: &str, body: &str) -> RawAnswer {
        self.raw("POST", path, "content-type: application/json\r\n", body.as_bytes()).await
    }
}
