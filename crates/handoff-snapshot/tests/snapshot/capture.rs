//! Capturing real directories: what travels, what is reported, and what a refresh costs.

use std::collections::HashSet;
use std::fs::{self, File, Permissions};
use std::io::{Seek as _, SeekFrom, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileExt as _, PermissionsExt as _, symlink};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use handoff_protocol::document::ReportKind;
use handoff_protocol::manifest::{Manifest, Part};
use handoff_protocol::{Digest, session_dir};
use handoff_snapshot::{CaptureError, CaptureIndex, Moment};
use rustix::fs::{FileType, Mode};

use crate::world::{World, listing, user};

fn digests(manifest: &Manifest) -> HashSet<Digest> {
    manifest.parts.iter().map(|part| part.digest).collect()
}

#[tokio::test]
async fn a_session_and_its_workspace_travel() {
    let world = World::new();
    world.messages(&[&user("one"), &user("two")]);
    world.write_state(session_dir::MCP_CONFIG, br#"[ {"server":"files","command":["run"]} ]"#);
    fs::create_dir_all(world.workspace("src/deep")).expect("made");
    fs::write(world.workspace("src/deep/main.rs"), "fn main() {}").expect("made");
    let (captured, restored) = world.travel().await;
    assert_eq!(
        world.there(session_dir::MESSAGES),
        fs::read(world.path("state/messages.jsonl")).expect("there")
    );
    assert_eq!(world.there(session_dir::MCP_CONFIG), br#"[ {"server":"files","command":["run"]} ]"#);
    assert_eq!((captured.workspace.files, captured.workspace.dirs), (1, 2));
    assert_eq!(restored.workspace, captured.workspace);
    assert_eq!(captured.new_bytes, captured.total_bytes);
    assert_eq!(captured.report, []);
}

#[tokio::test]
async fn only_what_belongs_to_the_boundary_travels() {
    let world = World::new();
    let boundary = world.messages(&[&user("one"), &user("two")]);
    let path = world.path("state/messages.jsonl");
    let mut file = File::options().append(true).open(path).expect("there");
    file.write_all(br#"{"role":"assistant","content":"hal"#).expect("written");
    let (_, restored) = world.travel().await;
    assert_eq!(world.there(session_dir::MESSAGES).len() as u64, boundary.messages_bytes);
    assert_eq!(restored.boundary, boundary);
}

/// H-30
#[tokio::test]
async fn a_new_turn_adds_only_its_own_bytes() {
    let world = World::new();
    fs::write(world.workspace("data"), vec![7; 100_000]).expect("made");
    let long = "lorem ipsum ".repeat(90);
    let mut lines: Vec<String> = (0..2_000).map(|number| user(&format!("{number} {long}"))).collect();
    let text = |lines: &[String]| lines.iter().map(String::as_str).collect::<Vec<_>>().join("\n").len();
    world.messages(&lines.iter().map(String::as_str).collect::<Vec<_>>());
    let before = world.capture().await.expect("captured");
    assert!(text(&lines) > 2 << 20);
    lines.push(user("a short question"));
    world.messages(&lines.iter().map(String::as_str).collect::<Vec<_>>());
    let after = world.capture_after(Some(before.digest)).await.expect("captured");
    let known = digests(&before.manifest);
    let fresh: Vec<_> = after.manifest.parts.iter().filter(|part| !known.contains(&part.digest)).collect();
    assert!(fresh.iter().all(|part| part.part == Part::Messages), "{fresh:?}");
    assert!(fresh.len() == 1 && fresh[0].logical_size < 300 << 10, "{fresh:?}");
    assert!(after.new_blobs == 2, "the tail and the manifest: {}", after.new_blobs);
}

#[tokio::test]
async fn the_same_directories_give_the_same_snapshot() {
    let world = World::new();
    fs::write(world.workspace("a"), "a").expect("made");
    let first = world.capture().await.expect("captured");
    let again = world.capture().await.expect("captured");
    let refreshed = world.capture_after(Some(first.digest)).await.expect("captured");
    assert_eq!((again.digest, refreshed.digest), (first.digest, first.digest));
    assert_eq!((again.new_blobs, refreshed.new_blobs), (0, 0));
}

#[tokio::test]
async fn five_megabytes_with_tools_and_unicode() {
    let world = World::new();
    let mut lines = Vec::new();
    for turn in 0..500 {
        lines.push(user(&format!("{turn} é 漢字 🦀 {}", "x".repeat(turn))));
        lines.push(format!(r#"{{"role":"assistant","content":null,"tool_calls":[{{"id":"c{turn}"}}]}}"#));
        let result = "\\u0000 \\ud83d é ".repeat(700);
        lines.push(format!(r#"{{"role":"tool","tool_call_id":"c{turn}","content":"{result}"}}"#));
    }
    let boundary = world.messages(&lines.iter().map(String::as_str).collect::<Vec<_>>());
    assert!(boundary.messages_bytes > 5 << 20);
    let (captured, restored) = world.travel().await;
    assert_eq!(
        world.there(session_dir::MESSAGES),
        fs::read(world.path("state/messages.jsonl")).expect("there")
    );
    assert_eq!(restored.boundary, boundary);
    assert!(captured.manifest.of(Part::Messages).count() >= 20);
}

#[tokio::test]
async fn case_s24_what_is_no_file_is_reported_and_never_opened() {
    let world = World::new();
    let _socket = UnixListener::bind(world.workspace("socket")).expect("bound");
    let dir = File::open(world.path("workspace")).expect("opens");
    rustix::fs::mknodat(&dir, "pipe", FileType::Fifo, Mode::RUSR, 0).expect("made");
    let mut expected = vec!["pipe", "socket"];
    // Only root may make a device.
    let device = rustix::fs::makedev(1, 3);
    if rustix::fs::mknodat(&dir, "null", FileType::CharacterDevice, Mode::RUSR, device).is_ok() {
        expected.insert(0, "null");
    }
    fs::write(world.workspace("file"), "x").expect("made");
    let captured = world.capture().await.expect("captured");
    assert_eq!(captured.workspace.files, 1);
    let places: Vec<_> = captured.report.iter().map(|entry| (entry.what, entry.at.as_str())).collect();
    assert_eq!(places, expected.into_iter().map(|at| (ReportKind::Excluded, at)).collect::<Vec<_>>());
}

#[tokio::test]
async fn case_s25_a_sparse_file_stays_sparse() {
    let world = World::new();
    let mut file = File::create(world.workspace("disk.img")).expect("made");
    file.set_len(20 << 30).expect("sparse");
    file.seek(SeekFrom::Start(7 << 30)).expect("seeks");
    file.write_all(&[5; 1 << 20]).expect("written");
    drop(file);
    let captured = world.capture().await.expect("captured");
    assert!(captured.workspace.bytes < 4 << 20, "{}", captured.workspace.bytes);
    world.restore(captured.digest).await.expect("restored");
    let there = File::open(world.path("there/workspace/disk.img")).expect("there");
    let found = rustix::fs::fstat(&there).expect("there");
    assert_eq!(found.st_size, 20 << 30);
    assert!(found.st_blocks * 512 < 8 << 20, "{} blocks", found.st_blocks);
    let mut data = vec![0; 1 << 20];
    there.read_exact_at(&mut data, 7 << 30).expect("readable");
    assert_eq!(data, vec![5; 1 << 20]);
}

/// With so many stretches it would be read whole, and it is refused before a byte of it is.
#[tokio::test]
async fn a_sparse_file_of_many_stretches_is_refused_before_it_is_read() {
    let world = World::new();
    let file = File::create(world.workspace("disk.img")).expect("made");
    file.set_len(1 << 40).expect("sparse");
    for place in 0..4_200_u64 {
        file.write_all_at(&[5; 4096], place << 16).expect("written");
    }
    let refused = tokio::time::timeout(Duration::from_secs(20), world.capture()).await;
    let refused = refused.expect("reading a terabyte takes longer");
    assert!(matches!(refused, Err(CaptureError::TooLarge { what: "the workspace" })), "{refused:?}");
}

#[tokio::test]
async fn case_s26_names_keep_their_bytes() {
    let world = World::new();
    for name in ["é", "e\u{301}", "A", "a", "a b\n"] {
        fs::write(world.workspace(name), name).expect("made");
    }
    let odd = world.path("workspace").join(std::ffi::OsStr::from_bytes(b"x\xffy"));
    fs::write(&odd, "odd").expect("made");
    symlink(std::ffi::OsStr::from_bytes(b"x\xffy"), world.workspace("link")).expect("made");
    let (captured, _) = world.travel().await;
    assert_eq!(captured.workspace.files, 6);
}

#[tokio::test]
async fn case_s27_modes_travel_and_setuid_does_not() {
    let world = World::new();
    for (name, mode) in [("script", 0o755), ("private", 0o600), ("read-only", 0o444), ("setuid", 0o4755)] {
        fs::write(world.workspace(name), name).expect("made");
        fs::set_permissions(world.workspace(name), Permissions::from_mode(mode)).expect("set");
    }
    fs::create_dir(world.workspace("shared")).expect("made");
    fs::set_permissions(world.workspace("shared"), Permissions::from_mode(0o1777)).expect("set");
    let captured = world.capture().await.expect("captured");
    world.restore(captured.digest).await.expect("restored");
    let mode = |name: &str| {
        let path = world.path("there/workspace").join(name);
        fs::metadata(path).expect("there").permissions().mode() & 0o7777
    };
    let modes = ["script", "private", "read-only", "setuid", "shared"].map(mode);
    assert_eq!(modes, [0o755, 0o600, 0o444, 0o755, 0o1777]);
    let [entry] = &captured.report[..] else { panic!("{:?}", captured.report) };
    assert_eq!((entry.what, entry.at.as_str()), (ReportKind::Degraded, "setuid"));
}

/// The umask belongs to the whole process, so the test runs again in one of its own.
#[test]
fn case_s27_a_strict_umask_has_no_say() {
    let test = "capture::case_s27_modes_travel_and_setuid_does_not";
    let run = std::process::Command::new("sh")
        .args(["-c", r#"umask 077; exec "$0" --exact "$1""#])
        .arg(std::env::current_exe().expect("a test has a program"))
        .arg(test)
        .output()
        .expect("runs");
    let said = String::from_utf8_lossy(&run.stdout);
    assert!(run.status.success() && said.contains("1 passed"), "{said}");
}

#[tokio::test]
async fn case_s28_empty_directories_links_and_replacements() {
    let world = World::new();
    fs::create_dir_all(world.workspace("empty/inner")).expect("made");
    fs::write(world.workspace("gone"), "x").expect("made");
    fs::write(world.workspace("becomes-dir"), "x").expect("made");
    symlink("gone", world.workspace("link")).expect("made");
    symlink("empty/inner", world.workspace("dir-link")).expect("made");
    let (first, _) = world.travel().await;
    fs::remove_file(world.workspace("gone")).expect("removed");
    fs::remove_file(world.workspace("becomes-dir")).expect("removed");
    fs::create_dir(world.workspace("becomes-dir")).expect("made");
    fs::write(world.workspace("becomes-dir/file"), "y").expect("made");
    fs::set_permissions(world.workspace("becomes-dir"), Permissions::from_mode(0o555)).expect("set");
    let second = world.capture_after(Some(first.digest)).await.expect("captured");
    handoff_snapshot::remove_tree(&world.path("there")).expect("removed");
    world.restore(second.digest).await.expect("restored");
    assert_eq!(listing(&world.path("there/workspace")), listing(&world.path("workspace")));
    fs::set_permissions(world.workspace("becomes-dir"), Permissions::from_mode(0o755)).expect("set");
}

#[tokio::test]
async fn links_that_lead_out_are_carried_and_reported() {
    let world = World::new();
    fs::create_dir(world.workspace("a")).expect("made");
    for (name, target) in [("abs", "/etc/passwd"), ("up", "../x"), ("a/in", "../a/b"), ("a/out", "../../x")] {
        symlink(target, world.workspace(name)).expect("made");
    }
    let (captured, _) = world.travel().await;
    let places: Vec<_> = captured.report.iter().map(|entry| entry.at.as_str()).collect();
    assert_eq!(places, ["a/out", "abs", "up"]);
}

#[tokio::test]
async fn a_deep_tree_travels_as_far_as_paths_may_be() {
    let world = World::new();
    let deep = (0..300).fold(world.workspace("d"), |path, _| path.join("d"));
    fs::create_dir_all(deep).expect("made");
    let captured = world.capture().await.expect("captured");
    assert_eq!(captured.workspace.dirs, 256);
    let [entry] = &captured.report[..] else { panic!("{:?}", captured.report) };
    assert_eq!(
        (entry.what, entry.why.as_str()),
        (ReportKind::Excluded, "the path is deeper than 256 levels")
    );
    let restored = world.restore(captured.digest).await.expect("restored");
    assert_eq!(restored.workspace, captured.workspace);
}

#[tokio::test]
async fn what_must_not_travel_stays() {
    let world = World::new();
    fs::create_dir_all(world.workspace("own/deep")).expect("made");
    fs::write(world.workspace("own/deep/secret"), "x").expect("made");
    let nested = world.workspace("state");
    fs::rename(world.path("state"), &nested).expect("moved");
    let mut source = world.source(Moment::Final);
    source.state_dir = nested;
    source.exclude = vec![world.workspace("own")];
    let captured = handoff_snapshot::capture(source, &world.blobs, None).await.expect("captured");
    let places: Vec<_> = captured.report.iter().map(|entry| entry.at.as_str()).collect();
    assert_eq!(places, ["own", "state"]);
    assert_eq!(captured.workspace.files, 0);
}

/// Bytes that do not compress, the same for the same seed (a linear congruential generator, Knuth's MMIX).
fn noise(seed: u64) -> Vec<u8> {
    let mut state = seed;
    let step = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u8
    };
    std::iter::repeat_with(step).take(100_000).collect()
}

#[tokio::test]
async fn a_refresh_packs_only_what_changed() {
    let world = World::new();
    for number in 0..40 {
        fs::write(world.workspace(&format!("file-{number:02}")), noise(number)).expect("made");
    }
    let index = Arc::new(CaptureIndex::default());
    let capture = async |previous| {
        let mut source = world.source(Moment::Draft);
        source.index = index.clone();
        handoff_snapshot::capture(source, &world.blobs, previous).await.expect("captured")
    };
    let mut last = capture(None).await;
    let mut sent = 0;
    for round in 0..60u64 {
        fs::write(world.workspace(&format!("file-{:02}", round % 40)), noise(1000 + round)).expect("made");
        let next = capture(Some(last.digest)).await;
        let packs = next.manifest.of(Part::Workspace).count();
        assert!(packs < 24, "{packs} packs after round {round}");
        sent += next.new_bytes;
        last = next;
    }
    // 6 MB are new; giving up packs moves the rest, 4 MB, a few times.
    assert!(sent < 24_000_000, "{sent} bytes in all");
    world.restore(last.digest).await.expect("restored");
    assert_eq!(listing(&world.path("there/workspace")), listing(&world.path("workspace")));
}

#[tokio::test]
async fn an_index_on_disk_changes_nothing_but_the_time() {
    let world = World::new();
    fs::write(world.workspace("a"), vec![1; 1000]).expect("made");
    let long_ago = std::time::SystemTime::now() - Duration::from_secs(60);
    File::open(world.workspace("a")).and_then(|file| file.set_modified(long_ago)).expect("set");
    let path = world.path("index.json");
    let mut digests = Vec::new();
    for _ in 0..2 {
        let mut source = world.source(Moment::Final);
        source.index = Arc::new(CaptureIndex::load(&path));
        let index = source.index.clone();
        let captured = handoff_snapshot::capture(source, &world.blobs, digests.last().copied()).await;
        digests.push(captured.expect("captured").digest);
        index.save(&path).expect("saved");
    }
    assert_eq!(digests[0], digests[1]);
    fs::write(&path, "nonsense").expect("written");
    drop(CaptureIndex::load(&path));
}

#[tokio::test]
async fn a_file_larger_than_a_pack_is_cut_and_comes_back() {
    let world = World::new();
    let large: Vec<u8> = (0u32..5_500_000).flat_map(|number| number.to_le_bytes()).collect();
    fs::write(world.workspace("large"), large).expect("made");
    fs::write(world.workspace("zeros"), vec![0; 20 << 20]).expect("made");
    let (captured, _) = world.travel().await;
    assert_eq!(captured.workspace.bytes, 22_000_000 + (20 << 20));
    assert!(captured.manifest.of(Part::Workspace).all(|part| part.logical_size <= 8 << 20));
}

#[tokio::test]
async fn a_final_capture_of_a_session_that_moves_is_refused() {
    let world = World::new();
    let (path, next) = (world.path("state/boundary.json"), world.path("state/boundary.new"));
    let stop = Arc::new(AtomicBool::new(false));
    let boundary = world.messages(&[]);
    let moving = std::thread::spawn({
        let stop = stop.clone();
        move || {
            for step in 0.. {
                let boundary = session_dir::Boundary { step, ..boundary.clone() };
                fs::write(&next, serde_json::to_vec(&boundary).expect("prints")).expect("written");
                fs::rename(&next, &path).expect("moved");
                if stop.load(Ordering::Relaxed) {
                    return;
                }
            }
        }
    });
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        match world.capture().await {
            Err(CaptureError::Moving) => break,
            Ok(_) => assert!(Instant::now() < deadline, "never seen to move"),
            Err(error) => panic!("{error}"),
        }
    }
    let draft = handoff_snapshot::capture(world.source(Moment::Draft), &world.blobs, None).await;
    stop.store(true, Ordering::Relaxed);
    moving.join().expect("no panic");
    draft.expect("a draft is taken as well as it can be");
}

/// Rewrites a file from another thread until it is dropped.
struct Rewriting {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Rewriting {
    fn start(path: PathBuf) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            let file = File::options().write(true).open(path).expect("there");
            for round in 0u64.. {
                file.write_all_at(&round.to_le_bytes(), (round * 4096) % (8 << 20)).expect("written");
                if stopped.load(Ordering::Relaxed) {
                    return;
                }
            }
        });
        Self { stop, thread: Some(thread) }
    }
}

impl Drop for Rewriting {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

#[tokio::test]
async fn case_s30_a_file_that_is_rewritten_meanwhile_is_reported() {
    let world = World::new();
    fs::write(world.workspace("database"), vec![1; 8 << 20]).expect("made");
    fs::write(world.workspace("still"), "still").expect("made");
    let rewriting = Rewriting::start(world.workspace("database"));
    let deadline = Instant::now() + Duration::from_secs(30);
    let captured = loop {
        let captured = handoff_snapshot::capture(world.source(Moment::Draft), &world.blobs, None).await;
        let captured = captured.expect("a draft is taken as well as it can be");
        if !captured.report.is_empty() {
            break captured;
        }
        assert!(Instant::now() < deadline, "never seen to change");
    };
    drop(rewriting);
    let [entry] = &captured.report[..] else { panic!("{:?}", captured.report) };
    assert_eq!((entry.what, entry.at.as_str()), (ReportKind::Degraded, "database"));
    world.restore(captured.digest).await.expect("the digests are of what was sent");
    assert_eq!(fs::metadata(world.path("there/workspace/database")).expect("there").len(), 8 << 20);
}

#[tokio::test]
async fn a_survey_counts_what_a_capture_carries() {
    let world = World::new();
    world.messages(&[&user("one"), r#"{"role":"assistant","content":"two"}"#]);
    fs::create_dir(world.workspace("dir")).expect("made");
    fs::write(world.workspace("dir/file"), "12345").expect("made");
    symlink("dir/file", world.workspace("link")).expect("made");
    let _socket = UnixListener::bind(world.workspace("dir/socket")).expect("bound");
    let survey = handoff_snapshot::survey(&world.path("state"), Some(&world.path("workspace"))).await;
    let survey = survey.expect("readable");
    let captured = world.capture().await.expect("captured");
    assert_eq!((survey.files, survey.file_bytes), (captured.workspace.files, captured.workspace.bytes));
    assert_eq!((survey.messages, survey.steps), (captured.boundary.messages, captured.boundary.step));
    assert_eq!(survey.message_bytes, captured.boundary.messages_bytes);
    assert_eq!(survey.excluded, captured.report);
}

#[test]
fn every_operation_can_be_spawned() {
    fn can_be_sent<T: Send>(_: &T) {}
    let world = World::new();
    let digest = Digest::of(b"");
    can_be_sent(&world.capture());
    can_be_sent(&world.restore(digest));
    can_be_sent(&handoff_snapshot::fetch(digest, &world.blobs, &world.blobs));
    can_be_sent(&handoff_snapshot::inspect(digest, &world.blobs));
    can_be_sent(&handoff_snapshot::read_layout(world.root.path(), &world.blobs));
}
