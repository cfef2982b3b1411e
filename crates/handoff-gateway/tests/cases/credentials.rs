//! Credentials: injected outside the sandbox, where the operator's policy says, and nowhere to be found after.

use std::sync::{Arc, Mutex};

use handoff_gateway::control::{CheckReferences, Open, Resolve};
use handoff_protocol::ErrorCode;

use crate::world::{CHAT, EPOCH, World, body, code, policy_text, tier, usd};

const CANARY: &str = "sk-canary-4f9a2c";

fn ask(stream: bool) -> String {
    body(Some(500), stream, 200)
}

/// A world with a key in a file store, and a rule that sends it to the upstream.
async fn keyed() -> World {
    let keys = tempfile::tempdir().expect("a folder").keep();
    std::fs::write(keys.join("key"), CANARY).expect("room");
    let root = keys.display().to_string();
    let policy = move |address| {
        let rule =
            "credential = { ref = \"file://keys/key\", header = \"authorization\", scheme = \"Bearer\" }";
        let text = policy_text(address);
        let text = text.replacen("allow_plain_http = true", &format!("allow_plain_http = true\n{rule}"), 1);
        format!("{text}[stores.keys]\nkind = \"file\"\nroot = \"{root}\"\n")
    };
    let mut world = World::staged(&policy, tier(0, 0)).await;
    world.keep_until_the_end(keys);
    world.admit(EPOCH, usd("1")).await.expect("admitted");
    world
}

/// All that anybody logs in this process, at the finest level.
fn captured() -> Log {
    static LOG: std::sync::OnceLock<Log> = std::sync::OnceLock::new();
    LOG.get_or_init(|| {
        let log = Log::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(tracing::Level::TRACE)
            .with_writer(move || writer.clone())
            .finish();
        tracing::subscriber::set_global_default(subscriber).expect("the first one");
        log
    })
    .clone()
}

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("no panic").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

async fn resolve(world: &World) {
    world.client.ask(&Resolve { destination: world.key() }).await.expect("resolved");
}

/// H-45, H-47
#[tokio::test]
async fn a_credential_is_injected_and_never_comes_back() {
    let log = captured();
    let mut world = keyed().await;
    // Not resolved yet: nothing is sent, the hold is given back.
    let refused = world.door().post(CHAT, &ask(false)).await;
    assert_eq!((refused.status.as_u16(), refused.code().as_str()), (424, "credential_unresolved"));
    assert_eq!(world.settled(EPOCH).await.held_usd, usd("0"));
    resolve(&world).await;
    let mut seen = Vec::new();
    for stream in [false, true] {
        let door = world.door();
        let calling = tokio::spawn(async move { door.post(CHAT, &ask(stream)).await });
        let mut asked = world.upstream.asked().await;
        assert_eq!(asked.headers["authorization"], format!("Bearer {CANARY}"));
        let text = format!("data: {{\"echo\":\"{CANARY}\"}}\n\n");
        if stream {
            asked.begin_stream().await;
            let (head, tail) = text.as_bytes().split_at(20);
            asked.send(head).await;
            asked.send(tail).await;
            asked.end_stream().await;
        } else {
            let echo = format!("x-echo: {CANARY}\r\ncontent-type: application/json\r\n");
            asked.answer(401, &echo, &format!("{{\"error\":\"key {CANARY} is wrong\"}}")).await;
        }
        let answer = calling.await.expect("an answer");
        assert!(answer.text().contains(&"*".repeat(CANARY.len())));
        seen.extend_from_slice(format!("{:?}", answer.headers).as_bytes());
        seen.extend_from_slice(&answer.body);
    }
    seen.extend_from_slice(&serde_json::to_vec(&world.state().await).expect("plain data"));
    world.stop().await;
    seen.extend_from_slice(&std::fs::read(world.journal()).expect("the journal"));
    let logged = log.0.lock().expect("no panic").clone();
    assert!(String::from_utf8_lossy(&logged).contains("a call was not passed on"), "the log is captured");
    seen.extend_from_slice(&logged);
    let found = String::from_utf8_lossy(&seen).contains(CANARY);
    assert!(!found, "the credential came back");
}

#[tokio::test]
async fn a_removed_destination_has_no_credential_any_more() {
    let world = keyed().await;
    resolve(&world).await;
    let remove = handoff_gateway::control::Remove { destination: world.key(), written_off: false };
    assert_eq!(code(world.client.ask(&remove).await), Err(ErrorCode::PreconditionFailed));
    world.client.ask(&world.open.clone()).await.expect("opened again");
    assert_eq!(world.door().post(CHAT, &ask(false)).await.code(), "credential_unresolved");
}

/// H-46
#[tokio::test]
async fn references_that_do_not_resolve_are_named_and_stop_the_claim() {
    let world = keyed().await;
    let reference = |text: &str| text.parse().expect("a reference");
    let (there, absent) = (reference("file://keys/key"), reference("file://keys/none"));
    let unmapped = reference("vault://prod/secret/x#key");
    let check = CheckReferences { references: vec![there, absent, unmapped] };
    let missing = world.client.ask(&check).await.expect("checked").missing;
    let names: Vec<_> = missing.iter().map(ToString::to_string).collect();
    assert_eq!(names, ["file://keys/none", "vault://prod/secret/x#key"]);
    let open = Open { references: missing, ..world.open.clone() };
    world.client.ask(&open).await.expect("opened");
    let refused = world.client.ask(&Resolve { destination: world.key() }).await.expect_err("missing");
    let said = refused.to_string();
    assert!(said.contains("credential_unresolved") && said.contains("file://keys/none"), "{said}");
    assert!(!said.contains(CANARY));
}
