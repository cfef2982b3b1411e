//! The scripted model over real connections: what a client sees, and what the log says of it.

use std::time::Duration;

use handoff_protocol::Digest;
use handoff_scripted_model::{
    AtEnd, Failure, Listen, Options, Running, Script, ScriptedModel, StartError, StatedUsage, Step, Usage,
    read_log,
};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

fn client() -> reqwest::Client {
    // The second installation in one process is refused, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::new()
}

async fn start(script: Script) -> Running {
    ScriptedModel::start(Options::of(script)).await.expect("a free port")
}

async fn post(running: &Running, body: &Value) -> reqwest::Response {
    let url = format!("{}/chat/completions", running.base_url());
    let request = client().post(url).header("content-type", "application/json").body(body.to_string());
    request.send().await.expect("an answer")
}

fn body(stream: bool) -> Value {
    json!({
        "model": "scripted",
        "stream": stream,
        "messages": [{"role": "user", "content": "go on"}],
        "tools": [{"type": "function", "function": {"name": "note", "parameters": {"type": "object"}}}],
    })
}

fn chunks(text: &str) -> Vec<Value> {
    let data = text.split("\n\n").filter_map(|event| event.strip_prefix("data: "));
    data.filter(|data| *data != "[DONE]").map(|data| serde_json::from_str(data).expect("a chunk")).collect()
}

fn calling() -> Script {
    Script::of(
        "t",
        vec![Step { text: "é 木 😀 said".into(), ..Step::call("note", r#"{"text":"ünï {step}"}"#) }],
    )
}

#[tokio::test]
async fn the_streamed_answer_is_the_whole_one_in_pieces() {
    let running = start(calling()).await;
    let whole: Value =
        serde_json::from_str(&post(&running, &body(false)).await.text().await.expect("a body"))
            .expect("a document");
    let message = &whole["choices"][0]["message"];
    assert_eq!(message["content"], "é 木 😀 said");
    let mut asked = body(true);
    asked["stream_options"] = json!({"include_usage": true});
    let response = post(&running, &asked).await;
    assert_eq!(response.headers()["x-handoff-scripted"], "true");
    let text = response.text().await.expect("a body");
    assert!(text.ends_with("data: [DONE]\n\n"));
    let chunks = chunks(&text);
    let delta = |chunk: &Value, at: &str| chunk.pointer(at).and_then(Value::as_str).unwrap_or("").to_owned();
    let said: String = chunks.iter().map(|chunk| delta(chunk, "/choices/0/delta/content")).collect();
    let arguments = "/choices/0/delta/tool_calls/0/function/arguments";
    let pieces: Vec<_> = chunks.iter().map(|chunk| delta(chunk, arguments)).collect();
    assert_eq!(said, message["content"]);
    assert_eq!(pieces.concat(), message["tool_calls"][0]["function"]["arguments"]);
    assert!(pieces.iter().filter(|piece| !piece.is_empty()).count() > 0);
    let last = chunks.last().expect("chunks");
    assert_eq!(last["choices"], json!([]));
    let streamed: Usage = serde_json::from_value(last["usage"].clone()).expect("usage");
    let stated: Usage = serde_json::from_value(whole["usage"].clone()).expect("usage");
    assert_eq!(streamed, stated);
    assert!(chunks.iter().all(|chunk| chunk["system_fingerprint"] == "scripted"));
    running.stop().await;
}

#[tokio::test]
async fn without_include_usage_no_chunk_speaks_of_it() {
    let running = start(calling()).await;
    let text = post(&running, &body(true)).await.text().await.expect("a body");
    assert!(!text.contains("usage"));
    assert!(chunks(&text).iter().all(|chunk| chunk["choices"].as_array().is_some_and(|all| all.len() == 1)));
}

#[tokio::test]
async fn the_step_follows_from_the_assistant_messages_alone() {
    let mut script = Script::of("t", vec![Step::say("a"), Step::say("b")]);
    script.at_end = AtEnd::Idle { text: "done".into() };
    let running = start(script).await;
    for (answered, expected) in [(2, "done"), (0, "a"), (1, "b"), (0, "a")] {
        let mut asked = body(false);
        let turn = [json!({"role": "assistant", "content": "x"}), json!({"role": "user", "content": "y"})];
        let messages = asked["messages"].as_array_mut().expect("messages");
        (0..answered).for_each(|_| messages.extend(turn.clone()));
        let text = post(&running, &asked).await.text().await.expect("a body");
        let answer: Value = serde_json::from_str(&text).expect("a document");
        assert_eq!(answer["choices"][0]["message"]["content"], expected);
    }
}

#[tokio::test]
async fn split_surrogates_arrive_in_two_chunks() {
    let step = Step { split_surrogates: true, ..Step::say("😀") };
    let running = start(Script::of("t", vec![step])).await;
    let text = post(&running, &body(true)).await.text().await.expect("a body");
    assert!(text.contains(r#""content":"\ud83d""#) && text.contains(r#""content":"\ude00""#));
}

#[tokio::test]
async fn failures_come_before_the_answer_and_only_so_often() {
    let step = Step::say("a long enough text to have several chunks in it")
        .failing(Failure::Refuse { status: 429, retry_after_s: Some(2), times: 1 })
        .failing(Failure::Cut { after_chunks: 2, times: 1 });
    let running = start(Script::of("t", vec![step])).await;
    let refused = post(&running, &body(true)).await;
    assert_eq!(
        (refused.status().as_u16(), &refused.headers()["retry-after"]),
        (429, &"2".parse().expect("v"))
    );
    let error: Value = serde_json::from_str(&refused.text().await.expect("a body")).expect("an error");
    assert_eq!(error["error"]["type"], "rate_limit_error");
    let mut cut = post(&running, &body(true)).await;
    let mut arrived = String::new();
    let ended = loop {
        match cut.chunk().await {
            Ok(Some(bytes)) => arrived.push_str(std::str::from_utf8(&bytes).expect("text")),
            other => break other,
        }
    };
    assert!(ended.is_err(), "the connection breaks off");
    assert_eq!(arrived.matches("data: ").count(), 2);
    let good = post(&running, &body(true)).await.text().await.expect("a body");
    assert!(good.contains("[DONE]"));
}

#[tokio::test]
async fn a_hanging_answer_does_not_keep_the_server_from_stopping() {
    let step = Step::say("never").failing(Failure::Hang { after_chunks: 0, times: 1 });
    let running = start(Script::of("t", vec![step])).await;
    let mut hanging = post(&running, &body(true)).await;
    tokio::time::timeout(Duration::from_secs(10), running.stop()).await.expect("it stops");
    assert!(hanging.chunk().await.is_err());
}

#[tokio::test]
async fn what_is_invalid_gets_the_error_body_of_the_real_api() {
    let running = start(calling()).await;
    let mut unknown_model = body(false);
    unknown_model["model"] = json!("other");
    let mut unknown_field = body(false);
    unknown_field["surprise"] = json!(1);
    let mut open_call = body(false);
    open_call["messages"] = json!([{"role": "tool", "tool_call_id": "a", "content": "x"}]);
    let mut zero = body(false);
    zero["max_tokens"] = json!(0);
    for (asked, status, code) in [
        (unknown_model, 404, json!("model_not_found")),
        (unknown_field, 400, Value::Null),
        (open_call, 400, Value::Null),
        (zero, 400, Value::Null),
    ] {
        let refused = post(&running, &asked).await;
        assert_eq!(refused.status().as_u16(), status, "{asked}");
        let text = refused.text().await.expect("a body");
        let error: Value = serde_json::from_str(&text).expect("an error body");
        assert_eq!(
            (&error["error"]["type"], &error["error"]["code"]),
            (&json!("invalid_request_error"), &code)
        );
    }
}

#[tokio::test]
async fn stated_usage_and_its_absence_are_passed_on() {
    let stated =
        StatedUsage { prompt_tokens: 128, completion_tokens: 9, cached_tokens: 64, reasoning_tokens: 3 };
    let steps =
        vec![Step { usage: Some(stated), ..Step::say("a") }, Step { omit_usage: true, ..Step::say("b") }];
    let running = start(Script::of("t", steps)).await;
    let first: Value =
        serde_json::from_str(&post(&running, &body(false)).await.text().await.expect("a body"))
            .expect("json");
    assert_eq!(first["usage"]["prompt_tokens_details"]["cached_tokens"], 64);
    assert_eq!(first["usage"]["total_tokens"], 137);
    let mut later = body(true);
    later["stream_options"] = json!({"include_usage": true});
    later["messages"].as_array_mut().expect("messages").push(json!({"role": "assistant", "content": "a"}));
    let text = post(&running, &later).await.text().await.expect("a body");
    assert!(chunks(&text).iter().all(|chunk| chunk["usage"].is_null()));
}

#[tokio::test]
async fn the_log_holds_digests_and_no_secret() {
    let dir = tempfile::tempdir().expect("a directory");
    let log = dir.path().join("requests.jsonl");
    let mut options = Options::of(calling());
    options.log = Some(log.clone());
    options.authorization = Some(Digest::of(b"Bearer sesame"));
    let running = ScriptedModel::start(options).await.expect("a free port");
    let asked = body(false).to_string();
    let send = |bearer: &'static str| {
        let url = format!("{}/chat/completions", running.base_url());
        let request = client().post(url).header("content-type", "application/json");
        request.bearer_auth(bearer).header("x-handoff-epoch", "3").body(asked.clone()).send()
    };
    assert_eq!(send("wrong").await.expect("an answer").status().as_u16(), 401);
    assert_eq!(send("sesame").await.expect("an answer").status().as_u16(), 200);
    let records = read_log(&log).expect("a log");
    let [refused, good] = &records[..] else { panic!("two records, not {}", records.len()) };
    assert_eq!((refused.status, good.status), (401, 200));
    assert_eq!((good.epoch.as_deref(), good.authorization), (Some("3"), true));
    assert_eq!(good.body_digest, Digest::of(asked.as_bytes()));
    let first = body(false)["messages"][0].to_string();
    assert_eq!(good.message_digests, [Digest::of(first.as_bytes())]);
    assert_eq!((good.messages, good.step, good.stream), (1, Some(0), false));
    assert!(good.usage.is_some_and(|usage| usage.prompt_tokens > 0));
    let text = std::fs::read_to_string(&log).expect("a log");
    assert!(!text.contains("sesame") && !text.contains("go on"));
}

#[tokio::test]
async fn a_script_that_cannot_be_played_does_not_start() {
    let mut script = Script::of("t", Vec::new());
    script.at_end = AtEnd::LoopFrom { step: 0 };
    assert!(matches!(ScriptedModel::start(Options::of(script)).await, Err(StartError::Script(_))));
}

#[tokio::test]
async fn it_is_served_on_a_unix_socket_too() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("model.sock");
    let options = Options { listen: Listen::Unix(path.clone()), ..Options::of(calling()) };
    let running = ScriptedModel::start(options).await.expect("a socket");
    let mut stream = tokio::net::UnixStream::connect(&path).await.expect("connected");
    let request = b"GET /v1/models HTTP/1.1\r\nhost: model\r\nconnection: close\r\n\r\n";
    stream.write_all(request).await.expect("written");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 200 OK") && answer.contains(r#""id":"scripted""#));
    running.stop().await;
    assert!(!path.exists());
}
