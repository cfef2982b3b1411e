//! An upstream that a test plays by hand, byte by byte.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::timeout;

/// Nothing in a test takes longer.
pub(crate) const DEADLINE: Duration = Duration::from_secs(20);

/// Requests arrive here, one after the other.
pub(crate) struct Upstream {
    pub(crate) address: SocketAddr,
    arrived: mpsc::UnboundedReceiver<Asked>,
    accepting: tokio::task::JoinHandle<()>,
}

/// A request that waits for its answer.
pub(crate) struct Asked {
    pub(crate) path: String,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: Vec<u8>,
    stream: TcpStream,
}

impl Upstream {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let (arrivals, arrived) = mpsc::unbounded_channel();
        let accepting = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let arrivals = arrivals.clone();
                tokio::spawn(async move {
                    if let Some(asked) = read(stream).await {
                        let _ = arrivals.send(asked);
                    }
                });
            }
        });
        Self { address, arrived, accepting }
    }

    /// The next request.
    pub(crate) async fn asked(&mut self) -> Asked {
        timeout(DEADLINE, self.arrived.recv()).await.expect("a request in time").expect("it runs")
    }

    /// Whether no request is waiting.
    pub(crate) fn is_idle(&mut self) -> bool {
        self.arrived.try_recv().is_err()
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn read(mut stream: TcpStream) -> Option<Asked> {
    let mut bytes = Vec::new();
    let head = loop {
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break end + 4;
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let text = String::from_utf8(bytes[..head].to_vec()).ok()?;
    let mut lines = text.lines();
    let path = lines.next()?.split(' ').nth(1)?.to_owned();
    let headers: BTreeMap<String, String> = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
        .collect();
    let length: usize = headers.get("content-length").map_or(Some(0), |text| text.parse().ok())?;
    while bytes.len() < head + length {
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    }
    Some(Asked { path, headers, body: bytes[head..].to_vec(), stream })
}

impl Asked {
    /// The request as JSON.
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).expect("JSON")
    }

    /// Answers all at once.
    pub(crate) async fn answer(mut self, status: u16, headers: &str, body: &str) {
        let length = body.len();
        let head = format!("HTTP/1.1 {status} X\r\ncontent-length: {length}\r\nconnection: close\r\n");
        self.write(format!("{head}{headers}\r\n{body}").as_bytes()).await;
    }

    /// Answers as Chat Completions do, with this usage.
    pub(crate) async fn used(self, input: u64, output: u64) {
        let body = format!(
            "{{\"choices\":[{{\"message\":{{\"content\":\"x\"}}}}],\
             \"usage\":{{\"prompt_tokens\":{input},\"completion_tokens\":{output}}}}}"
        );
        self.answer(200, "content-type: application/json\r\n", &body).await;
    }

    /// Begins a stream of events.
    pub(crate) async fn begin_stream(&mut self) {
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
        self.write(head.as_bytes()).await;
    }

    /// Sends some bytes of a stream.
    pub(crate) async fn send(&mut self, bytes: &[u8]) {
        let mut chunk = format!("{:x}\r\n", bytes.len()).into_bytes();
        chunk.extend_from_slice(bytes);
        chunk.extend_from_slice(b"\r\n");
        self.write(&chunk).await;
    }

    /// Ends a stream as it should end.
    pub(crate) async fn end_stream(mut self) {
        self.write(b"0\r\n\r\n").await;
    }

    /// Sends bytes as they are. A gateway that has hung up is no fault of the test's.
    pub(crate) async fn write(&mut self, bytes: &[u8]) {
        let _ = self.stream.write_all(bytes).await;
    }

    /// Waits until the gateway hangs up.
    pub(crate) async fn hung_up(mut self) {
        let mut rest = [0; 64];
        let closed = async { while !matches!(self.stream.read(&mut rest).await, Ok(0) | Err(_)) {} };
        timeout(DEADLINE, closed).await.expect("it hangs up in time");
    }
}
