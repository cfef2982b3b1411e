//! The client against servers that answer badly, late, or not at all.

use std::path::PathBuf;
use std::time::Duration;

use handoff_client::{Client, ClientError};
use handoff_protocol::request::Push;
use handoff_protocol::{ErrorCode, TransferId};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc;

const PROBLEM: &str = r#"{"code":"store_unavailable","message":"away","retryable":true,"hint":"wait"}"#;
const HEALTH: &str = r#"{"control_plane":"cp","version":"1"}"#;

/// A server that gives each connection one of these answers in turn, and hands out what it was sent.
struct Script {
    socket: PathBuf,
    received: mpsc::UnboundedReceiver<String>,
    _home: TempDir,
}

impl Script {
    fn playing(answers: Vec<String>) -> Self {
        let home = tempfile::tempdir().expect("a directory");
        let socket = home.path().join("s");
        let listener = UnixListener::bind(&socket).expect("binds");
        let (sent, received) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            for answer in answers {
                let (mut stream, _) = listener.accept().await.expect("accepts");
                let _ = sent.send(read_request(&mut stream).await);
                stream.write_all(answer.as_bytes()).await.expect("answers");
            }
            // Whoever comes later waits for ever.
            let (stream, _) = listener.accept().await.expect("accepts");
            std::future::pending::<()>().await;
            drop(stream);
        });
        Self { socket, received, _home: home }
    }

    fn client(&self) -> Client {
        Client::unix(&self.socket)
    }

    async fn request(&mut self) -> String {
        self.received.recv().await.expect("a request")
    }
}

/// Reads a head and as much body as it announces.
async fn read_request(stream: &mut UnixStream) -> String {
    let mut bytes = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let read = stream.read(&mut buffer).await.expect("reads");
        bytes.extend_from_slice(&buffer[..read]);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let announced = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let announced: usize = announced.map_or(0, |length| length.parse().expect("a number"));
        if body.len() >= announced {
            return text;
        }
    }
}

fn answer(status: u16, body: &str) -> String {
    format!("HTTP/1.1 {status} x\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

fn request_id(request: &str) -> &str {
    let (_, rest) = request.split_once(r#""request_id":""#).expect("a request id");
    rest.split('"').next().expect("its end")
}

#[tokio::test]
async fn a_busy_control_plane_is_asked_again_under_the_same_request_id() {
    let mut script = Script::playing(vec![answer(503, PROBLEM), answer(503, PROBLEM), answer(404, "{}")]);
    let client = script.client().retrying(Duration::from_secs(10));
    let pushed = client.push(TransferId::from_u128(1), Push::default()).await;
    assert!(matches!(pushed, Err(ClientError::Unreadable { status: 404, .. })), "{pushed:?}");
    let requests = [script.request().await, script.request().await, script.request().await];
    assert!(requests.iter().all(|request| request_id(request) == request_id(&requests[0])));
}

#[tokio::test]
async fn without_patience_and_for_calls_that_are_not_repeatable_once_is_all() {
    let script = Script::playing(vec![answer(503, PROBLEM), answer(200, HEALTH)]);
    let refused = script.client().health().await.expect_err("away");
    assert_eq!(refused.code(), Some(ErrorCode::StoreUnavailable));

    let script = Script::playing(vec![answer(503, PROBLEM), answer(200, HEALTH)]);
    let body = handoff_protocol::request::IssueToken {
        transfer_id: TransferId::from_u128(1),
        operation: handoff_protocol::request::Operation::Activate,
        ttl_ms: None,
        max_budget_usd: None,
        tier: None,
    };
    let minted = script.client().retrying(Duration::from_secs(10)).issue_token(body).await;
    assert_eq!(minted.expect_err("not sent twice").code(), Some(ErrorCode::StoreUnavailable));
}

#[tokio::test]
async fn an_answer_that_breaks_off_leaves_the_outcome_open() {
    for broken in ["", "HTTP/1.1 200 x\r\ncontent-length: 100\r\n\r\n{\"control"] {
        let script = Script::playing(vec![broken.to_owned()]);
        let error = script.client().push(TransferId::from_u128(1), Push::default()).await.expect_err("cut");
        assert!(matches!(error, ClientError::Unreachable { sent: true, .. }), "{error}");
        assert!(error.outcome_unknown() && error.is_unreachable());
    }
}

#[tokio::test]
async fn a_late_answer_is_not_waited_for_beyond_the_deadline() {
    let script = Script::playing(Vec::new());
    let client = script.client().with_deadline(Duration::from_millis(30));
    let error = client.health().await.expect_err("late");
    assert!(matches!(error, ClientError::TimedOut { .. }) && error.outcome_unknown(), "{error}");
}

#[tokio::test]
async fn another_program_on_the_socket_is_recognised() {
    let script = Script::playing(vec![answer(200, "hello"), answer(500, "<html>")]);
    for status in [200, 500] {
        let error = script.client().health().await.expect_err("not ours");
        assert!(matches!(error, ClientError::Unreadable { status: found, .. } if found == status), "{error}");
        assert!(!error.is_transient());
    }
}

#[tokio::test]
async fn who_speaks_and_on_which_condition_stands_in_the_headers() {
    let mut script = Script::playing(vec![answer(200, HEALTH), answer(200, HEALTH)]);
    let node = handoff_protocol::NodeId::from_u128(5);
    script.client().as_node(node).if_version(7).health().await.expect("answered");
    let request = script.request().await;
    for line in ["x-handoff-role: node", &format!("x-handoff-node: {node}"), "if-match: \"7\""] {
        assert!(request.contains(line), "{line}: {request}");
    }
    script.client().as_node(node).in_role("viewer").health().await.expect("answered");
    let request = script.request().await;
    assert!(request.contains("x-handoff-role: viewer") && !request.contains("x-handoff-node"), "{request}");
}

#[tokio::test]
async fn an_answer_without_a_body_is_read_from_its_status() {
    let there = "HTTP/1.1 200 x\r\ncontent-length: 3\r\n\r\n".to_owned();
    let away = "HTTP/1.1 503 x\r\ncontent-length: 90\r\n\r\n".to_owned();
    let script = Script::playing(vec![away.clone(), away, there]);
    let digest = handoff_protocol::Digest::of(b"abc");
    let client = script.client().retrying(Duration::from_secs(10));
    let size = client.blob_size(digest).await.expect("it is asked again");
    assert_eq!(size, Some(3));
    for (status, code) in [(403, ErrorCode::Forbidden), (507, ErrorCode::StorageFull)] {
        let script = Script::playing(vec![format!("HTTP/1.1 {status} x\r\ncontent-length: 0\r\n\r\n")]);
        let error = script.client().blob_size(digest).await.expect_err("refused");
        assert_eq!(error.code(), Some(code));
    }
}

#[tokio::test]
async fn one_that_is_away_is_started_before_it_is_asked_again() {
    let home = tempfile::tempdir().expect("a directory");
    let socket = home.path().join("s");
    let (away, mut found_away) = mpsc::unbounded_channel();
    let client = Client::unix(&socket).retrying(Duration::from_secs(10));
    let client = client.when_away(move || away.send(()).expect("somebody starts it"));
    let starts = async {
        found_away.recv().await.expect("it is away");
        let listener = UnixListener::bind(&socket).expect("binds");
        let (mut stream, _) = listener.accept().await.expect("accepts");
        read_request(&mut stream).await;
        stream.write_all(answer(200, HEALTH).as_bytes()).await.expect("answers");
    };
    let (health, ()) = tokio::join!(client.health(), starts);
    assert_eq!(health.expect("answered").control_plane, "cp");
}
