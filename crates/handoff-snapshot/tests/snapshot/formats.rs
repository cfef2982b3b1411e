//! The format as others see it: the layout on disk, summaries, and snapshots of released versions.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use handoff_protocol::document::TurnState;
use handoff_protocol::{Digest, ErrorCode, session_dir};
use handoff_snapshot::{
    LayoutError, history, history_of_directory, inspect, read_layout, restore, write_layout,
};

use crate::world::{World, listing, user};

/// The name of the version 1 fixture: any change to how it is read, or to its bytes, shows here.
const V1: &str = "sha256:0271d904eef5a538c6ee53be4d9a780c8b44affc899534cbbde65e4b4367d045";

fn fixture() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/v1")
}

async fn captured(world: &World) -> Digest {
    world.messages(&[&user("one"), r#"{"role":"assistant","content":"two"}"#, &user("three")]);
    world.write_state(session_dir::TOOL_STATE, br#"{"n":117.63331139400017,"b":1,"a":2}"#);
    fs::create_dir(world.workspace("empty")).expect("made");
    fs::write(world.workspace("file"), "content").expect("made");
    symlink("file", world.workspace("link")).expect("made");
    world.capture().await.expect("captured").digest
}

/// H-29
#[tokio::test]
async fn a_layout_is_what_other_tools_expect_and_reads_back() {
    let world = World::new();
    let digest = captured(&world).await;
    let dir = world.path("layout");
    let written = write_layout(digest, &world.blobs, &dir).await.expect("written");
    let json = |name: &str| -> serde_json::Value {
        serde_json::from_slice(&fs::read(dir.join(name)).expect("there")).expect("JSON")
    };
    assert_eq!(json("oci-layout")["imageLayoutVersion"], "1.0.0");
    let index = json("index.json");
    assert_eq!(index["manifests"][0]["digest"], digest.to_string());
    let manifest = json(&format!("blobs/sha256/{}", digest.hex()));
    assert_eq!(manifest["artifactType"], "application/vnd.handoff.snapshot.v1+json");
    let layers = manifest["layers"].as_array().expect("layers");
    for named in layers.iter().chain([&manifest["config"], &index["manifests"][0]]) {
        let digest: Digest = named["digest"].as_str().expect("text").parse().expect("a digest");
        let bytes = fs::read(dir.join("blobs/sha256").join(digest.hex())).expect("there");
        assert_eq!(
            (Digest::of(&bytes), bytes.len() as u64),
            (digest, named["size"].as_u64().expect("a size"))
        );
    }
    let other = World::new();
    let read = read_layout(&dir, &other.blobs).await.expect("read");
    assert_eq!(read.verified, written.verified);
    other.restore(digest).await.expect("restored");
    assert_eq!(listing(&other.path("there/workspace")), listing(&world.path("workspace")));
}

#[tokio::test]
async fn what_is_no_layout_is_refused_by_its_real_cause() {
    let world = World::new();
    let digest = captured(&world).await;
    let dir = world.path("layout");
    fs::create_dir(&dir).expect("made");
    let refused = async || read_layout(&dir, &World::new().blobs).await.expect_err("no layout");
    assert!(refused().await.to_string().contains("oci-layout"));
    write_layout(digest, &world.blobs, &dir).await.expect("written");
    let blob = dir.join("blobs/sha256").join(digest.hex());
    let good = fs::read(&blob).expect("there");
    fs::write(&blob, b"{}").expect("damaged");
    assert_eq!(refused().await.code(), ErrorCode::ChecksumMismatch);
    fs::remove_file(&blob).expect("removed");
    symlink("/etc/passwd", &blob).expect("made");
    assert!(matches!(refused().await, LayoutError::Fetch(_)));
    fs::remove_file(&blob).expect("removed");
    fs::write(&blob, good).expect("repaired");
    let index = fs::read_to_string(dir.join("index.json")).expect("there");
    fs::write(dir.join("index.json"), r#"{"schemaVersion":2,"manifests":[]}"#).expect("written");
    assert!(refused().await.to_string().contains("names 0 manifests"));
    fs::write(dir.join("index.json"), "# Notes").expect("written");
    assert_eq!(refused().await.code(), ErrorCode::SnapshotInvalid);
    fs::write(dir.join("index.json"), index).expect("repaired");
    read_layout(&dir, &World::new().blobs).await.expect("whole again");
}

#[tokio::test]
async fn a_summary_says_what_is_in_it() {
    let world = World::new();
    let digest = captured(&world).await;
    let summary = inspect(digest, &world.blobs).await.expect("readable");
    assert_eq!(
        (summary.messages.count, summary.messages.roles["user"], summary.messages.roles["assistant"]),
        (3, 2, 1)
    );
    assert_eq!((summary.workspace.files, summary.workspace.dirs, summary.workspace.symlinks), (1, 1, 1));
    assert_eq!(summary.workspace.bytes, 7);
    assert_eq!(summary.session.turn, TurnState::ModelNext);
    let parts: Vec<_> = summary.parts.iter().map(|part| (part.part, part.layers)).collect();
    assert_eq!(parts, [("session", 1), ("messages", 1), ("tool_state", 1), ("workspace", 2)]);
    assert_eq!(summary.size, summary.parts.iter().map(|part| part.size).sum::<u64>());
}

#[tokio::test]
async fn a_longer_history_begins_with_the_shorter_one() {
    let world = World::new();
    let digest = captured(&world).await;
    let before = history(digest, &world.blobs).await.expect("readable");
    assert_eq!(before, history_of_directory(&world.path("state")).expect("readable"));
    assert_eq!(before[0], Digest::of(user("one").as_bytes()));
    world.restore(digest).await.expect("restored");
    let there = world.path("there/state");
    assert_eq!(history_of_directory(&there).expect("readable"), before);
    world.messages(&[&user("one"), r#"{"role":"assistant","content":"two"}"#, &user("three"), &user("four")]);
    let after = history_of_directory(&world.path("state")).expect("readable");
    assert!(after.starts_with(&before) && after.len() == 4);
}

/// H-34, H-109
#[tokio::test]
async fn case_s11_a_snapshot_of_version_1_is_readable_and_restores() {
    let world = World::new();
    let fetched = read_layout(&fixture(), &world.blobs).await.expect("readable");
    let digest = fetched.verified.digest();
    assert_eq!(digest.to_string(), V1);
    let summary = inspect(digest, &world.blobs).await.expect("readable");
    assert_eq!((summary.messages.count, summary.workspace.files, summary.workspace.symlinks), (4, 4, 1));
    assert_eq!(summary.session.turn, TurnState::ToolsOpen { calls: vec!["c2".to_owned()] });
    let restored = restore(digest, &world.blobs, world.target()).await.expect("restored");
    assert_eq!((restored.boundary.messages, restored.boundary.step), (4, 2));
    let state = br#"{"n":117.63331139400017,"big":18446744073709551616,"e":1e400,"z":-0,"b":1,"a":2}"#;
    assert_eq!(world.there(session_dir::TOOL_STATE), state);
    assert_eq!(world.there(session_dir::SYSTEM_PROMPT), br#""be brief \ud83d""#);
    let there = world.path("there/workspace");
    assert_eq!(fs::read(there.join("src/main.rs")).expect("there"), b"fn main() {}\n");
    assert_eq!(fs::read_link(there.join("latest")).expect("there"), Path::new("src/main.rs"));
    let modes = [("script", 0o755), ("private", 0o600)].map(|(name, mode)| {
        use std::os::unix::fs::PermissionsExt as _;
        (fs::metadata(there.join(name)).expect("there").permissions().mode() & 0o7777, mode)
    });
    assert!(modes.iter().all(|(found, expected)| found == expected), "{modes:?}");
}
