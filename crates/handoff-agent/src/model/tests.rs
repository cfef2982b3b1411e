//! Model calls over real connections.

use handoff_scripted_model::{
    Failure as Scripted, Listen, Options, Running, Script, ScriptedModel, Step, read_log,
};

use super::*;

async fn serve(steps: Vec<Step>) -> Running {
    ScriptedModel::start(Options::of(Script::of("t", steps))).await.expect("a free port")
}

fn client(endpoint: &Endpoint) -> Client {
    Client::new(endpoint).expect("a client")
}

fn to(running: &Running) -> Endpoint {
    Endpoint::new(Reach::Url(running.base_url()))
}

fn body() -> Bytes {
    let user = crate::message::user("hi");
    Request::new("scripted".into(), Some(1000)).body("", &user, crate::tools::OFFERED)
}

#[tokio::test]
async fn an_answer_arrives_whole_over_tcp_and_unix_alike() {
    let step =
        Step {
            text: "é 😀".into(), split_surrogates: true, ..Step::call("read_file", r#"{"path":"木"}"#)
        };
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("model.sock");
    let script = Script::of("t", vec![step.clone()]);
    let unix = Options { listen: Listen::Unix(path.clone()), ..Options::of(script) };
    let (tcp, _unix) = (serve(vec![step]).await, ScriptedModel::start(unix).await.expect("a socket"));
    let by_tcp = client(&to(&tcp)).call(body(), None).await.expect("an answer");
    let socket = Endpoint::new(Reach::Socket { path, prefix: "/v1".into() });
    let by_unix = client(&socket).call(body(), None).await.expect("an answer");
    assert_eq!(by_tcp, by_unix);
    assert_eq!(by_tcp.calls[0].arguments, r#"{"path":"木"}"#);
    let parsed: serde_json::Value = serde_json::from_str(&by_tcp.message).expect("JSON");
    assert_eq!(parsed["content"], "é 😀");
    assert!(by_tcp.tokens.is_some_and(|tokens| tokens.prompt > 0 && tokens.completion > 0));
}

#[tokio::test]
async fn failures_mean_what_they_are() {
    let refuse = |status, retry_after_s| Scripted::Refuse { status, retry_after_s, times: 1 };
    let step = Step::say("a text of several chunks, at the end")
        .failing(refuse(429, Some(3)))
        .failing(refuse(503, None))
        .failing(refuse(402, None))
        .failing(refuse(401, None))
        .failing(Scripted::Cut { after_chunks: 0, times: 1 })
        .failing(Scripted::Cut { after_chunks: 2, times: 1 })
        .failing(Scripted::Hang { after_chunks: 1, times: 1 });
    let running = serve(vec![step]).await;
    let client = client(&Endpoint { silence_ms: 300, ..to(&running) });
    let mut failures = Vec::new();
    for _ in 0..7 {
        failures.push(client.call(body(), None).await.expect_err("a failure"));
    }
    assert!(matches!(failures[0], Failure::Transient { retry_after_ms: Some(3000), .. }), "{failures:?}");
    assert!(matches!(failures[1], Failure::Transient { retry_after_ms: None, .. }), "{failures:?}");
    assert!(matches!(failures[2], Failure::OutOfBudget { .. }), "{failures:?}");
    assert!(matches!(failures[3], Failure::Permanent { .. }), "{failures:?}");
    assert!(failures[4..].iter().all(|failure| matches!(failure, Failure::Transient { .. })), "{failures:?}");
    assert!(client.call(body(), None).await.is_ok());
}

#[tokio::test]
async fn nobody_there_is_a_transient_failure() {
    let running = serve(Vec::new()).await;
    let endpoint = to(&running);
    running.stop().await;
    assert!(matches!(client(&endpoint).call(body(), None).await, Err(Failure::Transient { .. })));
    let gone = Endpoint::new(Reach::Socket { path: "/nowhere/gateway.sock".into(), prefix: "/v1".into() });
    assert!(matches!(client(&gone).call(body(), None).await, Err(Failure::Transient { .. })));
}

#[tokio::test]
async fn the_credential_and_the_epoch_are_sent_and_never_printed() {
    let dir = tempfile::tempdir().expect("a directory");
    let (log, key) = (dir.path().join("log"), dir.path().join("key"));
    std::fs::write(&key, "sesame\n").expect("written");
    let mut options = Options::of(Script::of("t", vec![Step::say("x")]));
    options.log = Some(log.clone());
    options.authorization = Some(handoff_protocol::Digest::of(b"Bearer sesame"));
    let running = ScriptedModel::start(options).await.expect("a free port");
    for bearer in [Bearer::File(key), Bearer::Token("sesame".to_owned().into())] {
        let endpoint = Endpoint { bearer, say_epoch: true, ..to(&running) };
        assert!(!format!("{endpoint:?}").contains("sesame"));
        client(&endpoint).call(body(), Some(7)).await.expect("an answer");
    }
    client(&Endpoint { bearer: Bearer::Token("sesame".to_owned().into()), ..to(&running) })
        .call(body(), Some(7))
        .await
        .expect("an answer");
    let epochs: Vec<_> = read_log(&log).expect("a log").into_iter().map(|record| record.epoch).collect();
    assert_eq!(epochs, [Some("7".into()), Some("7".into()), None]);
    let absent = Bearer::Env("HANDOFF_TEST_NO_SUCH_VARIABLE".into());
    assert!(matches!(Client::new(&Endpoint { bearer: absent, ..to(&running) }), Err(AgentError::Options(_))));
}

#[tokio::test]
async fn an_endpoint_that_does_not_stream_is_understood() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("bound");
    let document = r#"{"choices":[{"index":0, "message": {"role":"assistant", "content":"plain"}}]}"#;
    let answer = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{document}",
        document.len()
    );
    let served = tokio::spawn(async move {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let (mut stream, _) = listener.accept().await.expect("a connection");
        let mut seen = Vec::new();
        while !seen.ends_with(b"]}") {
            let mut byte = [0];
            stream.read_exact(&mut byte).await.expect("a request");
            seen.push(byte[0]);
        }
        stream.write_all(answer.as_bytes()).await.expect("written");
    });
    let endpoint = Endpoint::new(Reach::Url(format!("http://{address}/v1/")));
    let answered = client(&endpoint).call(body(), None).await.expect("an answer");
    assert_eq!(answered.message, r#"{"role":"assistant", "content":"plain"}"#);
    served.await.expect("served");
}

#[test]
fn stored_bytes_stand_in_the_body_as_they_are() {
    let message = r#"{"role":"user", "content":"x","n":[1e400,-0]}"#;
    let body = Request::new("m\"".into(), None).body(r#"{"role":"system","content":"s"}"#, message, "[]");
    let text = std::str::from_utf8(&body).expect("text");
    assert_eq!(
        text,
        r#"{"model":"m\"","stream":true,"stream_options":{"include_usage":true},"tools":[],"messages":[{"role":"system","content":"s"},{"role":"user", "content":"x","n":[1e400,-0]}]}"#
    );
}
