//! Bytes come out as they went in, or are refused where they went in.

use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use handoff_protocol::document::{ReportEntry, ReportKind, SnapshotInput, TurnState};
use handoff_protocol::manifest::Part;
use handoff_protocol::port::BlobStore as _;
use handoff_protocol::session_dir;
use handoff_protocol::{Digest, ErrorCode, TransferId};
use handoff_snapshot::{CaptureIndex, CaptureSource, Moment, SealContext, SealError, parse_input, seal};
use proptest::prelude::*;

use crate::world::{World, user};

fn input(messages: &[&str], tool_state: Option<&str>) -> SnapshotInput {
    let state = tool_state.map_or(String::new(), |state| format!(r#","tool_state":{state}"#));
    let text = format!(r#"{{"source_host":"laptop","message_history":[{}]{state}}}"#, messages.join(","));
    parse_input(text.as_bytes()).expect("the minimal input")
}

async fn sealed_there(input: &SnapshotInput) -> World {
    let world = World::new();
    let sealed = seal(input, &SealContext::default()).expect("sealed");
    let digest = sealed.store(&world.blobs).await.expect("stored");
    world.restore(digest).await.expect("restored");
    world
}

fn refused(input: &SnapshotInput) -> SealError {
    seal(input, &SealContext::default()).expect_err("refused")
}

#[tokio::test]
async fn case_s01_lone_surrogates_are_carried_everywhere() {
    let result = r#"{"role":"tool","tool_call_id":"a","content":"\ud83d alone","\ud83d":"\udc00"}"#;
    let mut input = input(&[result], Some(r#"{"\ud83d":1}"#));
    let prompt = r#""be brief \ud83d""#.to_owned();
    input.system_prompt = Some(serde_json::value::RawValue::from_string(prompt.clone()).expect("JSON"));
    let world = sealed_there(&input).await;
    assert_eq!(world.there(session_dir::MESSAGES), [result.as_bytes(), b"\n"].concat());
    assert_eq!(world.there(session_dir::SYSTEM_PROMPT), prompt.as_bytes());
    assert_eq!(world.there(session_dir::TOOL_STATE), br#"{"\ud83d":1}"#);

    world.messages(&[result]);
    world.write_state(session_dir::SYSTEM_PROMPT, prompt.as_bytes());
    let captured = world.capture().await.expect("captured");
    let other = World { blobs: world.blobs.clone(), ..World::new() };
    other.restore(captured.digest).await.expect("restored");
    assert_eq!(other.there(session_dir::MESSAGES), [result.as_bytes(), b"\n"].concat());
}

#[tokio::test]
async fn case_s02_nul_is_carried() {
    let message = r#"{"role":"tool","tool_call_id":"a","content":"a\u0000b"}"#;
    let world = sealed_there(&input(&[message], None)).await;
    assert_eq!(world.there(session_dir::MESSAGES), [message.as_bytes(), b"\n"].concat());
}

#[test]
fn case_s03_the_pending_call_is_recorded() {
    let call = r#"{"role":"assistant","content":null,"tool_calls":[{"id":"c1"},{"id":"c2"}]}"#;
    let result = r#"{"role":"tool","tool_call_id":"c1","content":"done"}"#;
    let sealed = seal(&input(&[&user("go"), call, result], None), &SealContext::default()).expect("sealed");
    assert_eq!(sealed.session.turn, TurnState::ToolsOpen { calls: vec!["c2".to_owned()] });
}

#[tokio::test]
async fn case_s03_a_capture_carries_the_open_calls_of_the_boundary() {
    let world = World::new();
    let call = r#"{"role":"assistant","content":null,"tool_calls":[{"id":"c1"}]}"#;
    let mut boundary = world.messages(&[&user("go"), call]);
    boundary.turn = TurnState::ToolsOpen { calls: vec!["c1".to_owned()] };
    world.boundary(&boundary);
    let (captured, restored) = world.travel().await;
    assert_eq!(captured.session.turn, boundary.turn);
    assert_eq!(restored.boundary, boundary);
}

#[test]
fn case_s04_empty_call_ids_are_refused_with_their_message() {
    let calls = r#"{"role":"assistant","content":null,"tool_calls":[{"id":""},{"id":""}]}"#;
    let error = refused(&input(&[&user("go"), calls], None));
    assert_eq!(error.to_string(), "message_history[1].tool_calls[0].id: the id of a tool call is empty");
    assert_eq!(error.code(), ErrorCode::SnapshotInvalid);
}

#[tokio::test]
async fn case_s04_a_loop_that_lives_with_empty_ids_travels_with_them() {
    let world = World::new();
    let calls = r#"{"role":"assistant","tool_calls":[{"id":""},{"id":""}]}"#;
    let result = r#"{"role":"tool","tool_call_id":"","content":"x"}"#;
    world.messages(&[&user("go"), calls, result, result, r#"{"role":"assistant","reasoning":"r"}"#]);
    let (_, restored) = world.travel().await;
    assert_eq!(
        world.there(session_dir::MESSAGES),
        fs::read(world.path("state/messages.jsonl")).expect("there")
    );
    assert_eq!(restored.boundary.step, 2);
}

#[tokio::test]
async fn case_s05_sealed_reasoning_comes_out_byte_equal() {
    let thinking =
        r#"{"type": "thinking", "thinking": "abc", "signature": "s", "extra": {"z": [], "a": -0}}"#;
    let message = format!(r#"{{"role":"assistant","content":[{thinking},{{"type":"text","text":""}}]}}"#);
    let world = sealed_there(&input(&[&message], None)).await;
    assert_eq!(world.there(session_dir::MESSAGES), format!("{message}\n").into_bytes());
}

#[tokio::test]
async fn case_s10_a_session_that_ends_with_an_answer_waits_for_input() {
    let messages = [user("hi"), r#"{"role":"assistant","content":"hello"}"#.to_owned()];
    let world = sealed_there(&input(&[&messages[0], &messages[1]], None)).await;
    let boundary: session_dir::Boundary =
        serde_json::from_slice(&world.there(session_dir::BOUNDARY)).expect("a boundary");
    assert_eq!((boundary.turn, boundary.messages, boundary.step), (TurnState::Idle, 2, 1));
}

#[tokio::test]
async fn case_s14_numbers_keep_their_bytes_and_hash() {
    let state =
        r#"{"a":117.63331139400017,"b":1.5777777777770001,"c":18446744073709551616,"d":1e400,"e":-0}"#;
    let input = input(&[], Some(state));
    let sealed = seal(&input, &SealContext::default()).expect("sealed");
    let part = sealed.manifest.of(Part::ToolState).next().expect("there").clone();
    let world = sealed_there(&input).await;
    assert_eq!(world.there(session_dir::TOOL_STATE), state.as_bytes());
    assert_eq!(part.logical_size, state.len() as u64);
    assert_eq!(world.blobs.size(part.digest).await.expect("answers"), Some(part.size));
    assert_eq!(seal(&input, &SealContext::default()).expect("sealed").digest, sealed.digest);
}

#[tokio::test]
async fn case_s15_one_depth_limit_at_every_entry_and_no_crash() {
    let nested = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
    let world = World::new();
    for levels in [127, 128] {
        let state = nested(levels);
        seal(&input(&[], Some(&state)), &SealContext::default()).expect("within the limit");
        world.write_state(session_dir::TOOL_STATE, state.as_bytes());
        world.capture().await.expect("within the limit");
    }
    for levels in [129, 5_000, 100_000] {
        let state = nested(levels);
        let error = refused(&input(&[], Some(&state)));
        assert!(error.to_string().contains("nested deeper than 128"), "{error}");
        world.write_state(session_dir::TOOL_STATE, state.as_bytes());
        let error = world.capture().await.expect_err("too deep");
        assert_eq!(error.code(), ErrorCode::SnapshotInvalid);
        let message = format!(r#"{{"role":"user","content":[{{"x":{state}}}]}}"#);
        let error = refused(&input(&[&user("a"), &message], None)).to_string();
        assert!(error.starts_with("message_history[1].content[0].x[0]"), "{error}");
    }
}

#[tokio::test]
async fn case_s16_key_order_is_kept_and_duplicates_are_refused() {
    let ordered = r#"{"role":"user","content":"x","b":1,"a":2}"#;
    let world = sealed_there(&input(&[ordered], Some(r#"{"b":1,"a":2}"#))).await;
    assert_eq!(world.there(session_dir::MESSAGES), format!("{ordered}\n").into_bytes());
    assert_eq!(world.there(session_dir::TOOL_STATE), br#"{"b":1,"a":2}"#);
    let error = refused(&input(&[r#"{"role":"user","content":"x","m":{"a":1,"a":2}}"#], None));
    assert!(error.to_string().starts_with("message_history[0].m.a: the key \"a\" stands twice"), "{error}");
    assert!(matches!(refused(&input(&[], Some(r#"{"a":1,"a":2}"#))), SealError::Json { .. }));
}

#[test]
fn case_s36_the_error_names_what_the_input_really_is() {
    for (bytes, words) in [
        (&b""[..], "empty"),
        (b" \n ", "empty"),
        (b"# Notes\n", "not a JSON object"),
        (b"[]", "not a JSON object"),
        (b"\xff\xfe{\0}\0", "UTF-16"),
        (b"\xef\xbb\xbf{}", "byte order mark"),
        (b"{\"source_host\":\"\xff\"}", "not UTF-8 at byte 16"),
        (b"{\"source_host\":\"x\"}", "message_history"),
        (b"{\"source_host\":\"x\",\"message_history\":[],\"more\":1}", "more"),
    ] {
        let error = parse_input(bytes).expect_err(words).to_string();
        assert!(error.contains(words), "{error} has no '{words}'");
    }
    let large = vec![b' '; handoff_protocol::limits::SNAPSHOT_INPUT_BYTES + 1];
    assert_eq!(parse_input(&large).expect_err("too large").code(), ErrorCode::PayloadTooLarge);
}

#[tokio::test]
async fn a_pretty_printed_message_becomes_one_line_of_the_same_length() {
    let pretty = "{\n  \"role\": \"user\",\r\n  \"content\": \"a\\nb\"\n}";
    let world = sealed_there(&input(&[pretty], None)).await;
    let expected = pretty.replace(['\n', '\r'], " ");
    assert_eq!(world.there(session_dir::MESSAGES), format!("{expected}\n").into_bytes());
}

/// H-35
#[test]
fn a_literal_credential_is_refused_by_place_and_never_shown() {
    let value = ["sk-", "live-a1B2c3D4e5"].concat();
    let text = format!(
        r#"{{"source_host":"x","message_history":[],"mcp_config":[{{"server":"a"}},{{"server":"b","command":["run","--key={value}"]}}]}}"#
    );
    let error = refused(&parse_input(text.as_bytes()).expect("well-formed"));
    assert_eq!(error.code(), ErrorCode::SecretFound);
    assert!(error.to_string().starts_with("mcp_config[1].command[1] looks like"), "{error}");
    assert!(!format!("{error:?}").contains(&value));
    let reference = text
        .replace(&value, "x")
        .replace(r#""server":"a""#, &format!(r#""server":"a","cred_ref":"{value}""#));
    let error = parse_input(reference.as_bytes()).expect_err("no reference");
    assert!(!error.to_string().contains(&value), "{error}");
}

/// H-35
#[tokio::test]
async fn credentials_in_a_conversation_are_reported_by_place() {
    let value = ["ghp_", "a1B2c3D4e5F6g7H8i9J0k1"].concat();
    let sealed = seal(&input(&[&user("a"), &user(&value)], None), &SealContext::default()).expect("sealed");
    let [entry] = &sealed.session.report[..] else { panic!("{:?}", sealed.session.report) };
    assert_eq!(entry.at, "message_history[1]");
    assert!(!entry.why.contains(&value));
}

/// H-35
#[tokio::test]
async fn credentials_in_a_workspace_are_reported_by_file_and_line_and_travel() {
    let world = World::new();
    let code = ["ghp_", "a1B2c3D4e5F6g7H8i9J0k1"].concat();
    let model = ["sk-", "proj-a1B2c3D4e5F6g7H8i9J0k1"].concat();
    let cloud = ["AKIA", "0123456789ABCDEF"].concat();
    world.messages(&[&user("a"), &user(&code)]);
    fs::create_dir(world.workspace("deploy")).expect("made");
    let env = format!("# keys\nAWS={cloud}\nGITHUB={code}\n\nMODEL=\"{model}\"\n");
    fs::write(world.workspace("deploy/.env"), &env).expect("made");
    fs::write(world.workspace("image"), format!("\0\0{code}")).expect("made");
    fs::write(world.workspace("large"), format!("{}{code}", "x\n".repeat(1 << 19))).expect("made");
    let survey = handoff_snapshot::survey(&world.path("state"), Some(&world.path("workspace"))).await;
    let survey = survey.expect("readable");
    let places = |entries: &[ReportEntry]| {
        let place = |entry: &ReportEntry| {
            (entry.at.clone(), entry.why.split(';').next().unwrap_or_default().to_owned())
        };
        entries.iter().map(place).collect::<Vec<_>>()
    };
    let expected = [
        ("messages[1]", "holds what looks like a code host's token"),
        ("deploy/.env", "line 2 holds what looks like a cloud provider's key"),
        ("deploy/.env", "line 3 holds what looks like a code host's token"),
        ("deploy/.env", "line 5 holds what looks like a provider's API key"),
    ]
    .map(|(at, why)| (at.to_owned(), why.to_owned()));
    assert_eq!(places(&survey.secrets), expected);
    let (captured, _) = world.travel().await;
    assert_eq!(places(&captured.report), expected);
    // What has not changed is not read again, and told again.
    let source = world.source(Moment::Draft);
    let saved = world.path("index");
    let deadline = Instant::now() + Duration::from_secs(30);
    let remembered = loop {
        let again = handoff_snapshot::capture(source.clone(), &world.blobs, Some(captured.digest)).await;
        assert_eq!(places(&again.expect("captured").report), expected);
        source.index.save(&saved).expect("written");
        let text = fs::read_to_string(&saved).expect("there");
        if text.contains("cloud_key") {
            break text;
        }
        assert!(Instant::now() < deadline, "times of files never settle");
    };
    // From what is remembered, and from nothing else.
    fs::write(&saved, remembered.replace("cloud_key", "chat_token")).expect("written");
    let source = CaptureSource { index: Arc::new(CaptureIndex::load(&saved)), ..source };
    let again = handoff_snapshot::capture(source, &world.blobs, Some(captured.digest)).await;
    let again = places(&again.expect("captured").report);
    assert_eq!(again[1].1, "line 2 holds what looks like a chat service's token");
    let all =
        format!("{survey:?} {captured:?} {remembered} {}", serde_json::to_string(&survey).expect("prints"));
    for value in [&code, &model, &cloud] {
        assert!(!all.contains(value.as_str()), "a value in a report");
    }
}

/// H-28
#[tokio::test]
async fn a_token_in_a_workspace_is_reported_and_left_as_it_is() {
    let part = |text: &str| URL_SAFE_NO_PAD.encode(text);
    let claims = format!(r#"{{"sub":"{}"}}"#, TransferId::from_u128(7));
    let token = format!("{}.{}.{}", part(r#"{"alg":"HS256"}"#), part(&claims), part("0123456789abcdef0123"));
    let world = World::new();
    fs::write(world.workspace("note"), &token).expect("made");
    let (captured, _) = world.travel().await;
    let [entry] = &captured.report[..] else { panic!("{:?}", captured.report) };
    assert_eq!(entry.why, "line 1 holds what looks like a transfer token; it travels as it is");
}

/// H-28
#[tokio::test]
async fn our_own_tokens_are_taken_out_wherever_they_stand() {
    let part = |text: &str| URL_SAFE_NO_PAD.encode(text);
    let claims = format!(r#"{{"sub":"{}","op":"activate"}}"#, TransferId::from_u128(7));
    let token = format!("{}.{}.{}", part(r#"{"alg":"HS256"}"#), part(&claims), part("0123456789abcdef0123"));
    let state = format!(r#"{{"n":-0,"token":"{token}"}}"#);
    let sealed = sealed_there(&input(&[&user(&token)], Some(&state))).await;
    let world = World::new();
    world.messages(&[&user("a"), &user(&token)]);
    world.write_state(session_dir::TOOL_STATE, state.as_bytes());
    let (captured, restored) = world.travel().await;
    for place in [&sealed, &world] {
        let expected = r#"{"n":-0,"token":"[redacted transfer token]"}"#;
        assert_eq!(place.there(session_dir::TOOL_STATE), expected.as_bytes());
        let messages = String::from_utf8(place.there(session_dir::MESSAGES)).expect("UTF-8");
        assert!(
            messages.ends_with("{\"role\":\"user\",\"content\":\"[redacted transfer token]\"}\n"),
            "{messages}"
        );
    }
    let redacted: Vec<_> = captured.report.iter().map(|entry| (entry.what, entry.at.as_str())).collect();
    assert_eq!(redacted, [(ReportKind::Redacted, "tool_state"), (ReportKind::Redacted, "messages[1]")]);
    assert_eq!(restored.boundary.messages, 2);
    assert_eq!(restored.boundary.messages_bytes, world.there(session_dir::MESSAGES).len() as u64);
}

/// JSON texts as no printer would write them: odd spaces, escapes, numbers of any size, lone surrogates.
fn any_json() -> impl Strategy<Value = String> {
    let scalar = prop_oneof![
        Just("null".to_owned()),
        Just("-0".to_owned()),
        "-?(0|[1-9][0-9]{0,24})(\\.[0-9]{1,20})?([eE][+-]?[0-9]{1,4})?",
        r#""([a-zé🦀 ]|\\u0000|\\ud83d|\\udC00|\\n|\\/|\\"){0,8}""#,
    ];
    scalar.prop_recursive(4, 32, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4)
                .prop_map(|values| format!("[ {}\t]", values.join(" ,"))),
            proptest::collection::vec(inner, 0..4).prop_map(|values| {
                let member = |(index, value): (usize, &String)| format!(r#""k{index}" :{value}"#);
                format!("{{{}}}", values.iter().enumerate().map(member).collect::<Vec<_>>().join(", "))
            }),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// H-32
    #[test]
    fn every_text_travels_byte_for_byte(fields in proptest::collection::vec(any_json(), 0..8), state in any_json()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("starts");
        let message = |field: &String| format!(r#"{{"x": {field},"role":"user" ,"content":"c"}}"#);
        let messages: Vec<String> = fields.iter().map(message).collect();
        let lines: Vec<&str> = messages.iter().map(String::as_str).collect();
        let expected: String = messages.iter().flat_map(|line| [line, "\n"]).collect();
        // A text that is null is the same as none.
        let state = if state == "null" { "[]".to_owned() } else { state };
        runtime.block_on(async {
            let sealed = sealed_there(&input(&lines, Some(&state))).await;
            assert_eq!(sealed.there(session_dir::MESSAGES), expected.as_bytes());
            assert_eq!(sealed.there(session_dir::TOOL_STATE), state.as_bytes());

            let world = World::new();
            world.messages(&lines);
            world.write_state(session_dir::TOOL_STATE, state.as_bytes());
            let (captured, restored) = world.travel().await;
            assert_eq!(world.there(session_dir::MESSAGES), expected.as_bytes());
            assert_eq!(fs::read(world.path("there/state/tool_state.json")).expect("there"), state.as_bytes());
            assert_eq!(restored.digest, captured.digest);
            assert_eq!(restored.session.lineage.parent, Some(captured.digest));
        });
    }

    #[test]
    fn no_input_makes_the_reader_fall(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(input) = parse_input(&bytes) {
            let _ = seal(&input, &SealContext::default());
        }
        let _ = Digest::of(&bytes);
    }
}
