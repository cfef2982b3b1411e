//! Directories and snapshots made to do harm: refused, with nothing read or written outside.

use std::fs;
use std::os::unix::fs::symlink;

use handoff_protocol::manifest::{Manifest, Part, PartRef};
use handoff_protocol::port::BlobStore as _;
use handoff_protocol::{Digest, ErrorCode, session_dir};
use handoff_snapshot::tree::{Entry, EntryKind, Name, Segment, Tree};
use handoff_snapshot::{Blob, FetchError, RestoreError, media};

use crate::world::{World, session, user};

async fn refused_session(world: &World, words: &str) {
    let error = world.capture().await.expect_err(words);
    assert!(error.to_string().contains(words), "{error} has no '{words}'");
    assert!(!error.to_string().contains("root:"), "{error}");
}

#[tokio::test]
async fn links_and_pipes_in_a_session_directory_are_refused() {
    for name in [session_dir::MESSAGES, session_dir::BOUNDARY, session_dir::SESSION, session_dir::TOOL_STATE]
    {
        let world = World::new();
        let path = world.path("state").join(name);
        let _ = fs::remove_file(&path);
        symlink("/etc/passwd", &path).expect("made");
        refused_session(&world, name).await;
        fs::remove_file(&path).expect("removed");
        let dir = fs::File::open(world.path("state")).expect("opens");
        rustix::fs::mknodat(&dir, name, rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0).expect("made");
        refused_session(&world, "not a regular file").await;
    }
}

#[tokio::test]
async fn a_boundary_that_lies_is_refused() {
    let world = World::new();
    let honest = world.messages(&[&user("one"), &user("two")]);
    let lies = [
        session_dir::Boundary { messages_bytes: honest.messages_bytes + 1, ..honest.clone() },
        session_dir::Boundary { messages_bytes: u64::MAX, ..honest.clone() },
        session_dir::Boundary { messages_bytes: honest.messages_bytes - 1, ..honest.clone() },
        session_dir::Boundary { messages: 3, ..honest.clone() },
        session_dir::Boundary { messages: 1, ..honest.clone() },
    ];
    for lie in lies {
        world.boundary(&lie);
        let error = world.capture().await.expect_err("a lie");
        assert!(matches!(error.code(), ErrorCode::SnapshotInvalid | ErrorCode::PayloadTooLarge), "{error}");
    }
    world.write_state(session_dir::BOUNDARY, b"{}");
    refused_session(&world, "boundary.json").await;
    fs::remove_file(world.path("state/boundary.json")).expect("removed");
    refused_session(&world, "boundary.json").await;
}

#[tokio::test]
async fn garbage_in_a_session_directory_is_refused_by_name() {
    let world = World::new();
    world.messages(&[&user("one"), "not a message"]);
    refused_session(&world, "messages[1]").await;
    world.messages(&[&user("one"), "", &user("two")]);
    refused_session(&world, "messages[1]").await;
    world.messages(&[]);
    world.write_state(session_dir::MCP_CONFIG, br#"[{"server":"x","api_key":"y"}]"#);
    refused_session(&world, "mcp_config.json").await;
    let secret = ["sk-", "live-a1B2c3D4e5"].concat();
    world.write_state(
        session_dir::MCP_CONFIG,
        format!(r#"[{{"server":"x","command":["{secret}"]}}]"#).as_bytes(),
    );
    assert_eq!(world.capture().await.expect_err("a secret").code(), ErrorCode::SecretFound);
    fs::remove_file(world.path("state/mcp_config.json")).expect("removed");
    fs::File::create(world.path("state/session.json")).and_then(|file| file.set_len(1 << 30)).expect("made");
    assert_eq!(world.capture().await.expect_err("huge").code(), ErrorCode::PayloadTooLarge);
}

/// A snapshot that is made by hand, with a tree and one pack.
struct Forged {
    parts: Vec<(PartRef, Blob)>,
}

fn layer(part: Part, index: u32, media_type: &str, bytes: &[u8]) -> (PartRef, Blob) {
    let blob = Blob::of(bytes.to_vec());
    let size = bytes.len() as u64;
    let media_type = media_type.to_owned();
    (PartRef { part, index, media_type, digest: blob.digest, size, logical_size: size }, blob)
}

impl Forged {
    fn new(tree: &[u8], pack: &[u8]) -> Self {
        let document = serde_json::to_vec(&session()).expect("prints");
        Self {
            parts: vec![
                layer(Part::Session, 0, media::JSON, &document),
                layer(Part::Workspace, 0, media::TREE, tree),
                layer(Part::Workspace, 1, media::PACK, pack),
            ],
        }
    }

    async fn store(&self, world: &World) -> Digest {
        for (_, blob) in &self.parts {
            world.blobs.put(blob.digest, blob.bytes.clone()).await.expect("stored");
        }
        let manifest = Manifest { parts: self.parts.iter().map(|(part, _)| part.clone()).collect() };
        let manifest = Blob::of(manifest.to_bytes());
        world.blobs.put(manifest.digest, manifest.bytes).await.expect("stored");
        manifest.digest
    }

    /// Restores it; whatever comes of it, nothing may be anywhere but in its place.
    async fn restore(&self) -> Result<(), RestoreError> {
        let world = World::new();
        fs::write(world.path("precious"), "precious").expect("made");
        fs::create_dir(world.path("outside")).expect("made");
        let digest = self.store(&world).await;
        let restored = world.restore(digest).await.map(|_| ());
        assert_eq!(fs::read(world.path("precious")).expect("there"), b"precious");
        assert_eq!(fs::read_dir(world.path("outside")).expect("there").count(), 0);
        let left = fs::read_dir(world.path("there")).map_or(0, Iterator::count);
        assert_eq!(left, if restored.is_ok() { 2 } else { 0 }, "whole or nothing");
        restored
    }
}

fn entry(path: &str, kind: EntryKind, target: Option<&str>) -> Entry {
    let target = target.map(|target| Name(target.into()));
    let mode = if kind == EntryKind::Symlink { 0 } else { 0o755 };
    Entry { path: Name(path.into()), kind, mode, mtime_ns: 1, size: 0, content: Vec::new(), target }
}

fn file(path: &str, pack: &[u8]) -> Entry {
    let (length, digest) = (pack.len() as u64, Digest::of(pack));
    let segment = Segment { at: 0, length, digest, pack: 1, offset: 0 };
    Entry { size: length, content: vec![segment], ..entry(path, EntryKind::File, None) }
}

async fn refused_tree(entries: Vec<Entry>) {
    let shown = format!("{entries:?}");
    let refused = Forged::new(&Tree { entries }.to_bytes(), b"data").restore().await;
    assert_eq!(refused.expect_err(&shown).code(), ErrorCode::SnapshotInvalid, "{shown}");
}

#[tokio::test]
async fn the_forged_form_itself_is_good() {
    let tree = Tree { entries: vec![file("a", b"data"), entry("b", EntryKind::Symlink, Some("../outside"))] };
    Forged::new(&tree.to_bytes(), b"data").restore().await.expect("nothing is wrong with it");
}

#[tokio::test]
async fn paths_that_lead_out_are_refused() {
    for path in ["../precious", "/tmp/x", "a/../../precious", "./a", "a//b", ""] {
        refused_tree(vec![file(path, b"data")]).await;
        refused_tree(vec![entry(path, EntryKind::Dir, None)]).await;
    }
}

#[tokio::test]
async fn nothing_is_written_through_a_link() {
    let link = || entry("out", EntryKind::Symlink, Some("../../outside"));
    refused_tree(vec![link(), file("out/x", b"data")]).await;
    refused_tree(vec![link(), file("out", b"data")]).await;
    refused_tree(vec![file("out", b"data"), link()]).await;
    refused_tree(vec![link(), entry("out", EntryKind::Dir, None), file("out/x", b"data")]).await;
}

#[tokio::test]
async fn twice_the_same_path_is_refused() {
    refused_tree(vec![file("a", b"data"), file("a", b"data")]).await;
}

/// H-33
#[tokio::test]
async fn sizes_that_lie_are_refused() {
    let mut segment_beyond = file("a", b"data");
    segment_beyond.content[0].length = 5;
    segment_beyond.size = 5;
    refused_tree(vec![segment_beyond]).await;
    let huge = Entry { size: u64::MAX, ..entry("a", EntryKind::File, None) };
    refused_tree(vec![huge]).await;

    let tree = Tree { entries: vec![file("a", b"data")] }.to_bytes();
    let mut logical = Forged::new(&tree, b"data");
    logical.parts[2].0.logical_size = 5;
    assert!(matches!(logical.restore().await, Err(RestoreError::Part { .. })));
    let mut bomb = Forged::new(&tree, b"data");
    bomb.parts[2].0.logical_size = 10 << 30;
    assert!(matches!(bomb.restore().await, Err(RestoreError::Fetch(FetchError::TooLarge))));
    let mut stored = Forged::new(&tree, b"data");
    stored.parts[2].0.size = 5;
    assert!(matches!(stored.restore().await, Err(RestoreError::Fetch(FetchError::Size { .. }))));
}

/// H-33
#[tokio::test]
async fn bytes_that_are_not_the_named_ones_are_refused() {
    let wrong = Tree { entries: vec![file("a", b"DATA")] }.to_bytes();
    let refused = Forged::new(&wrong, b"data").restore().await;
    assert_eq!(refused.expect_err("another digest").code(), ErrorCode::ChecksumMismatch);

    let world = World::new();
    let forged = Forged::new(&Tree { entries: vec![file("a", b"data")] }.to_bytes(), b"data");
    let digest = forged.store(&world).await;
    let hex = forged.parts[2].1.digest.hex();
    fs::write(world.path("blobs/sha256").join(&hex[..2]).join(&hex), b"DATA").expect("damaged");
    let refused = world.restore(digest).await.expect_err("damaged");
    assert_eq!(refused.code(), ErrorCode::ChecksumMismatch);
    assert!(!world.path("there").exists(), "nothing was even begun");
}

#[tokio::test]
async fn messages_and_documents_that_are_none_are_refused() {
    let tree = Tree::default().to_bytes();
    let session_part = |bytes: &[u8]| {
        let mut forged = Forged::new(&tree, b"");
        forged.parts[0] = layer(Part::Session, 0, media::JSON, bytes);
        forged
    };
    assert!(matches!(session_part(b"{}").restore().await, Err(RestoreError::Document { .. })));
    assert!(matches!(session_part(br#"{"a":1,"a":2}"#).restore().await, Err(RestoreError::Text(_))));
    let with = |part: (PartRef, Blob)| {
        let mut forged = Forged::new(&tree, b"");
        forged.parts.insert(1, part);
        forged
    };
    for messages in [&b"{}\n"[..], b"{\"role\":\"user\",\"content\":\"x\"}", b"\n"] {
        let part = layer(Part::Messages, 0, media::JSON_LINES, messages);
        assert!(matches!(with(part).restore().await, Err(RestoreError::Text(_))), "{messages:?}");
    }
    let part = layer(Part::McpConfig, 0, media::JSON, br#"[{"server":"x","env":{}}]"#);
    assert!(matches!(with(part).restore().await, Err(RestoreError::Document { .. })));
    let part = layer(Part::ToolState, 0, "text/plain", b"{}");
    assert!(matches!(with(part).restore().await, Err(RestoreError::Part { .. })));
}
