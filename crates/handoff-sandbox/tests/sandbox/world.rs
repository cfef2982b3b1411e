//! A place to make sandboxes in, with a conscience: at its end every sandbox is torn down, and the test
//! fails if the host still has anything of one.

use std::cell::RefCell;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use handoff_protocol::{IncarnationId, Tier};
use handoff_sandbox::{Driver, InitClient, Name, Native, Spec, StartError, Started};
use tempfile::TempDir;

/// How long anything may take that happens by itself.
pub(crate) const SOON: Duration = Duration::from_secs(20);

/// The uid and gid of the plain user.
const NOBODY: u32 = 65534;

/// One body, two tests: as whoever runs the tests, and as a plain user (when root runs them, in a process of
/// that user's).
macro_rules! as_root_and_as_user {
    ($($(#[$doc:meta])* fn $name:ident($world:ident) $body:block)*) => {$(
        $(#[$doc])*
        mod $name {
            use super::*;

            fn body($world: &crate::world::World) $body

            #[test]
            fn as_root() {
                body(&crate::world::World::new());
            }

            #[test]
            fn as_user() {
                if crate::world::is_root() {
                    crate::world::again_as_nobody(concat!(module_path!(), "::as_user"));
                } else {
                    body(&crate::world::World::new());
                }
            }
        }
    )*};
}
pub(crate) use as_root_and_as_user;

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// The binary under test, or a copy where a plain user cannot reach it.
fn exe() -> PathBuf {
    std::env::var_os("HANDOFF_TEST_EXE")
        .map_or_else(|| env!("CARGO_BIN_EXE_sandbox-probe").into(), PathBuf::from)
}

/// Runs one test of this program again, in a process of the plain user's.
pub(crate) fn again_as_nobody(test: &str) {
    let (_, test) = test.split_once("::").expect("the crate's name comes first");
    let place = TempDir::new().expect("a directory");
    fs::set_permissions(place.path(), Permissions::from_mode(0o755)).expect("it is ours");
    let copy = |from: &Path, name: &str| {
        let to = place.path().join(name);
        fs::copy(from, &to).expect("room for a copy");
        fs::set_permissions(&to, Permissions::from_mode(0o755)).expect("it is ours");
        to
    };
    let tests = copy(&std::env::current_exe().expect("a path"), "tests");
    let exe = copy(&exe(), "sandbox-probe");
    let home = place.path().join("home");
    fs::create_dir(&home).expect("it is ours");
    std::os::unix::fs::chown(&home, Some(NOBODY), Some(NOBODY)).expect("root may");
    let mut command = Command::new(tests);
    command.args([test, "--exact", "--nocapture"]);
    command.env("HANDOFF_TEST_EXE", exe).env("TMPDIR", &home).current_dir("/");
    command.uid(NOBODY).gid(NOBODY);
    let output = command.output().expect("it can be executed");
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "as a plain user:\n{text}\n{errors}");
    assert!(text.contains("1 passed"), "no test is called {test}:\n{text}");
}

/// Asks again until the answer is yes.
pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + SOON;
    while !holds() {
        assert!(Instant::now() < deadline, "still not so: {what}");
        std::thread::park_timeout(Duration::from_millis(5));
    }
}

/// Where sandboxes are made.
pub(crate) struct World {
    home: TempDir,
    pub(crate) driver: Native,
    pub(crate) exe: PathBuf,
    made: RefCell<Vec<(Name, PathBuf)>>,
}

impl World {
    pub(crate) fn new() -> Self {
        let exe = exe();
        let home = TempDir::new().expect("a directory");
        Self { home, driver: Native::new(&exe), exe, made: RefCell::default() }
    }

    /// A path in the world's own directory.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    /// A new destination that will run this command.
    pub(crate) fn spec(&self, command: &[&str]) -> Spec {
        let number = self.made.borrow().len();
        let unique = uuid::Uuid::new_v4().simple().to_string();
        let name: Name = format!("test-{unique}-{number}").parse().expect("a name");
        let dir = self.path(&format!("destinations/{name}"));
        for part in ["workspace", "state", "door"] {
            fs::create_dir_all(dir.join(part)).expect("it is ours");
        }
        self.made.borrow_mut().push((name.clone(), dir.clone()));
        let tier = Tier { memory_bytes: 64 << 20, pids: 40, ..Tier::defaults().swap_remove(0) };
        let mut spec = Spec::new(name, &dir, &self.exe, tier, IncarnationId::from_u128(7));
        spec.command = command.iter().map(|word| (*word).to_owned()).collect();
        spec.log = Some(dir.join("agent.log"));
        spec.start_within = SOON;
        // A plain user has no cgroup here; everything else has to hold for it too.
        spec.allow_degraded = !is_root();
        spec
    }

    /// A destination that runs a shell script.
    pub(crate) fn script(&self, script: &str) -> Spec {
        self.spec(&["/bin/sh", "-c", script])
    }

    pub(crate) fn start(&self, spec: &Spec) -> Started {
        self.driver.start(spec).unwrap_or_else(|error| panic!("{error}; log: {}", log(spec)))
    }

    pub(crate) fn refused(&self, spec: &Spec) -> StartError {
        self.driver.start(spec).map(|_| ()).expect_err("it should not have started")
    }

    /// Nothing of a sandbox is on the host.
    pub(crate) fn assert_gone(&self, spec: &Spec) {
        let left = self.driver.leftovers(spec.name.as_str()).expect("the host can be searched");
        assert!(left.is_empty(), "{left:?}");
        assert!(!spec.dir.join("init.sock").exists());
    }
}

impl Drop for World {
    fn drop(&mut self) {
        for (name, dir) in self.made.borrow().iter() {
            let gone = self.driver.teardown(name, dir);
            if !std::thread::panicking() {
                gone.expect("everything can be removed");
            }
        }
    }
}

pub(crate) fn client(spec: &Spec) -> InitClient {
    InitClient::connect(&spec.dir, SOON).expect("the init listens").0
}

pub(crate) fn log(spec: &Spec) -> String {
    spec.log.as_ref().and_then(|path| fs::read_to_string(path).ok()).unwrap_or_default()
}

/// Bytes in a file of the workspace.
pub(crate) fn size(spec: &Spec, file: &str) -> u64 {
    fs::metadata(spec.workspace().join(file)).map_or(0, |found| found.len())
}

/// A script that writes a byte every few milliseconds.
pub(crate) const HEART: &str = "while :; do printf x >> /workspace/beats; sleep 0.01; done";

/// It writes.
pub(crate) fn assert_beats(spec: &Spec) {
    let before = size(spec, "beats");
    eventually("the heart beats", || size(spec, "beats") > before);
}

/// It writes nothing for much longer than one beat.
pub(crate) fn assert_still(spec: &Spec) {
    let before = size(spec, "beats");
    let until = Instant::now() + Duration::from_millis(200);
    while Instant::now() < until {
        assert_eq!(size(spec, "beats"), before, "it goes on");
        std::thread::park_timeout(Duration::from_millis(20));
    }
}
