//! A place with a session directory, a workspace and blobs, and ways to look at them.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use handoff_protocol::Digest;
use handoff_protocol::document::{AgentInfo, Environment, Lineage, SessionDocument, TurnState};
use handoff_protocol::session_dir::{self, Boundary};
use handoff_snapshot::{
    CaptureError, CaptureSource, Captured, DirectoryBlobs, Moment, RestoreError, RestoreTarget, Restored,
};
use tempfile::TempDir;

pub(crate) struct World {
    pub(crate) root: TempDir,
    pub(crate) blobs: DirectoryBlobs,
}

impl World {
    pub(crate) fn new() -> Self {
        let root = tempfile::tempdir().expect("a directory");
        let blobs = DirectoryBlobs::open(root.path().join("blobs"), 0).expect("opens");
        fs::create_dir(root.path().join("state")).expect("made");
        fs::create_dir(root.path().join("workspace")).expect("made");
        let world = Self { root, blobs };
        world.write_state(session_dir::SESSION, &serde_json::to_vec(&session()).expect("prints"));
        world.messages(&[]);
        world
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    pub(crate) fn workspace(&self, name: &str) -> PathBuf {
        self.path("workspace").join(name)
    }

    pub(crate) fn write_state(&self, name: &str, bytes: &[u8]) {
        fs::write(self.path("state").join(name), bytes).expect("written");
    }

    /// Makes these the conversation, with a boundary at its end.
    pub(crate) fn messages(&self, lines: &[&str]) -> Boundary {
        let text: String = lines.iter().flat_map(|line| [line, "\n"]).collect();
        self.write_state(session_dir::MESSAGES, text.as_bytes());
        let step = lines.iter().filter(|line| line.contains(r#""assistant""#)).count() as u64;
        let boundary = Boundary {
            step,
            messages_bytes: text.len() as u64,
            messages: lines.len() as u64,
            turn: TurnState::ModelNext,
        };
        self.boundary(&boundary);
        boundary
    }

    pub(crate) fn boundary(&self, boundary: &Boundary) {
        self.write_state(session_dir::BOUNDARY, &serde_json::to_vec(boundary).expect("prints"));
    }

    pub(crate) fn source(&self, moment: Moment) -> CaptureSource {
        CaptureSource::new(self.path("state"), Some(self.path("workspace")), moment, "laptop".to_owned())
    }

    pub(crate) async fn capture(&self) -> Result<Captured, CaptureError> {
        self.capture_after(None).await
    }

    pub(crate) async fn capture_after(&self, previous: Option<Digest>) -> Result<Captured, CaptureError> {
        handoff_snapshot::capture(self.source(Moment::Final), &self.blobs, previous).await
    }

    pub(crate) fn target(&self) -> RestoreTarget {
        RestoreTarget::new(self.path("there/state"), self.path("there/workspace"))
    }

    pub(crate) async fn restore(&self, digest: Digest) -> Result<Restored, RestoreError> {
        handoff_snapshot::restore(digest, &self.blobs, self.target()).await
    }

    /// Captures and restores, and checks that the destination equals the source.
    pub(crate) async fn travel(&self) -> (Captured, Restored) {
        let captured = self.capture().await.expect("captured");
        let restored = self.restore(captured.digest).await.expect("restored");
        assert_eq!(listing(&self.path("there/workspace")), listing(&self.path("workspace")));
        (captured, restored)
    }

    pub(crate) fn there(&self, name: &str) -> Vec<u8> {
        fs::read(self.path("there/state").join(name)).expect("restored")
    }
}

pub(crate) fn session() -> SessionDocument {
    SessionDocument {
        lineage: Lineage { session_id: None, epoch: None, parent: None, source_host: "laptop".to_owned() },
        agent: AgentInfo { kind: "handoff".to_owned(), version: "0.1.0".to_owned() },
        spent_usd: None,
        environment: Environment { os: "linux".to_owned(), arch: "x86_64".to_owned(), workspace: None },
        turn: TurnState::Idle,
        model: None,
        report: Vec::new(),
    }
}

pub(crate) fn user(text: &str) -> String {
    format!(r#"{{"role":"user","content":"{text}"}}"#)
}

/// Everything in a directory: kind, mode, time of change and content by path.
pub(crate) fn listing(root: &Path) -> BTreeMap<Vec<u8>, String> {
    let mut found = BTreeMap::new();
    list(root, root, &mut found);
    found
}

fn list(root: &Path, dir: &Path, found: &mut BTreeMap<Vec<u8>, String>) {
    for entry in fs::read_dir(dir).expect("readable") {
        let path = entry.expect("readable").path();
        let data = fs::symlink_metadata(&path).expect("there");
        let mode = data.permissions().mode() & 0o7777;
        let what = if data.is_dir() {
            list(root, &path, found);
            format!("dir {mode:o}")
        } else if data.is_symlink() {
            format!("link {:?}", fs::read_link(&path).expect("readable"))
        } else {
            format!("file {mode:o} {}", Digest::of(&fs::read(&path).expect("readable")))
        };
        let relative = path.strip_prefix(root).expect("beneath").as_os_str().as_bytes().to_vec();
        found.insert(relative, format!("{what} {}.{}", data.mtime(), data.mtime_nsec()));
    }
}
