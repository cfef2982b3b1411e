//! A host that gives no namespaces: refused, or degraded when that was allowed, with everything said that is
//! lost. The host is this one, seen from a user namespace that may have none below it.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use handoff_sandbox::control::{FromInit, ToInit};
use handoff_sandbox::{Driver, EXE_INSIDE, Facet, Spec, StartError};

use crate::world::{SOON, World, assert_beats, assert_still, client, eventually, log, size};

/// Whether this process is already in such a place.
const THERE: &str = "HANDOFF_TEST_BARE";

/// Runs a test in a place without namespaces.
fn without_namespaces(test: &str, body: fn(&World)) {
    somewhere(test, "true", body);
}

/// The same where there are no cgroups either, as a plain user has it.
fn without_cgroups(test: &str, body: fn(&World)) {
    somewhere(test, "mount -t tmpfs none /sys/fs/cgroup", body);
}

fn somewhere(test: &str, prepare: &str, body: fn(&World)) {
    if std::env::var_os(THERE).is_some() {
        body(&World::new());
        return;
    }
    let (_, module) = module_path!().split_once("::").expect("the crate's name comes first");
    let script = format!("{prepare} && echo 0 > /proc/sys/user/max_user_namespaces && exec \"$@\"");
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--mount", "sh", "-c", &script, "sh"]);
    command.arg(std::env::current_exe().expect("a path"));
    command.args([&format!("{module}::{test}"), "--exact", "--nocapture"]).env(THERE, "1");
    let output = command.output().expect("unshare can be executed");
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{text}\n{errors}");
}

const HEART: &str = "cd \"$W\"; while :; do printf x >> beats; sleep 0.01; done";

fn script(world: &World, script: &str) -> Spec {
    let mut spec = world.script(script);
    spec.env.insert("W".to_owned(), "/workspace".to_owned());
    spec.allow_degraded = true;
    spec
}

/// A path of the host's that does not look like one, or it would be taken for one inside.
fn as_it_is(path: &std::path::Path) -> String {
    format!(":{}", path.display())
}

#[test]
fn it_is_refused_unless_degraded_is_allowed() {
    without_namespaces("it_is_refused_unless_degraded_is_allowed", |world| {
        let mut spec = script(world, HEART);
        spec.allow_degraded = false;
        let StartError::IsolationUnavailable(facts) = world.refused(&spec) else { panic!("another error") };
        for facet in [Facet::UserNamespace, Facet::PidNamespace, Facet::ReadOnlyRoot, Facet::NoNetwork] {
            let why = facts.get(facet).to_string();
            assert!(why.starts_with("lost: make namespaces: "), "{facet}: {why}");
        }
        assert!(!facts.holds(Facet::NoHostSockets), "{facts}");
        world.assert_gone(&spec);
        assert!(!world.driver.probe().holds(Facet::UserNamespace));
    });
}

#[test]
fn what_is_left_still_confines() {
    without_namespaces("what_is_left_still_confines", |world| {
        let outside = world.path("secret");
        fs::write(&outside, "s").expect("it is ours");
        let mut spec = script(
            world,
            "cd \"$W\"; cat \"${SECRET#:}\" > read; printf x > \"${SECRET#:}\"; printf x > \"$TMPDIR/t\" && echo tmp >> ok; \
             ls \"${TOP#:}\" && echo listed; printf x > \"$STATE/s\" && echo state >> ok; \
             python3 -c 'import socket; socket.socket(socket.AF_INET)' && echo inet >> ok; \
             mount -t tmpfs x \"$W\" && echo mounted >> ok; grep -E 'NoNewPrivs|Seccomp:' /proc/self/status >> ok; echo end >> ok; sleep 600",
        );
        spec.env.insert("SECRET".to_owned(), as_it_is(&outside));
        spec.env.insert("TOP".to_owned(), as_it_is(&spec.dir));
        spec.env.insert("STATE".to_owned(), "/handoff/state".to_owned());
        let facts = world.start(&spec).isolation;
        for facet in [Facet::Seccomp, Facet::Landlock, Facet::NoNewPrivs, Facet::Setsid, Facet::Freeze] {
            assert!(facts.holds(facet), "{facts}");
        }
        assert!(facts.losses().count() >= 10, "{facts}");
        let why = facts.get(Facet::NoHostSockets).to_string();
        assert!(why.contains("mint, approve"), "{why}");
        let ok = || fs::read_to_string(spec.workspace().join("ok")).unwrap_or_default();
        eventually("the script is done", || ok().ends_with("end\n"));
        assert_eq!(ok(), "tmp\nstate\nNoNewPrivs:\t1\nSeccomp:\t2\nend\n", "{}", log(&spec));
        assert_eq!(size(&spec, "read"), 0);
        assert_eq!(fs::read(&outside).expect("it is ours"), b"s");
        assert!(!log(&spec).contains("listed"), "{}", log(&spec));
    });
}

#[test]
fn processes_that_leave_their_session_are_held_and_ended_too() {
    without_namespaces("processes_that_leave_their_session_are_held_and_ended_too", |world| {
        let spec = script(world, "setsid sh -c 'setsid sh -c \"$HEART\" & exit' & sleep 0.2; exec sleep 600");
        let mut spec = spec;
        spec.env.insert("HEART".to_owned(), HEART.to_owned());
        let started = world.start(&spec);
        assert_beats(&spec);
        let mut node = client(&spec);
        assert!(node.ask(&ToInit::Freeze, SOON).expect("answered").frozen);
        assert_still(&spec);
        assert!(!node.ask(&ToInit::Thaw, SOON).expect("answered").frozen);
        assert_beats(&spec);
        assert!(node.kill(SOON).expect("connected"));
        assert!(started.init.ends_within(SOON));
        assert_still(&spec);
        world.driver.teardown(&spec.name, &spec.dir).expect("all of it goes");
        world.assert_gone(&spec);
    });
}

#[test]
fn orphans_of_a_killed_init_are_found_by_their_mark() {
    without_cgroups("orphans_of_a_killed_init_are_found_by_their_mark", |world| {
        let spec = script(world, HEART);
        let mut spec = spec;
        spec.command[2] = "(setsid sh -c \"$HEART\" &) ; exec sleep 600".to_owned();
        spec.env.insert("HEART".to_owned(), HEART.to_owned());
        let started = world.start(&spec);
        assert_beats(&spec);
        kill(started.init.pid);
        assert!(started.init.ends_within(SOON));
        assert_beats(&spec);
        world.driver.teardown(&spec.name, &spec.dir).expect("all of it goes");
        assert_still(&spec);
        world.assert_gone(&spec);
    });
}

/// H-91: a hostile payload drops the variable and leaves its session, and its init is killed. Nothing finds
/// such a process by name; so absence is not proved as long as it runs.
#[test]
fn absence_is_not_said_of_who_may_have_shed_its_mark() {
    without_cgroups("absence_is_not_said_of_who_may_have_shed_its_mark", |world| {
        let mut spec = script(world, "");
        spec.command[2] =
            "env -i HEART=\"$HEART\" W=\"$W\" setsid sh -c 'echo $$ > \"$W/pid\"; eval \"$HEART\"' & exec sleep 600"
                .to_owned();
        spec.env.insert("HEART".to_owned(), HEART.to_owned());
        let started = world.start(&spec);
        assert_beats(&spec);
        kill(started.init.pid);
        assert!(started.init.ends_within(SOON));
        let left = world.driver.teardown(&spec.name, &spec.dir).expect_err("something of it runs");
        let pid = fs::read_to_string(spec.workspace().join("pid")).expect("written");
        assert!(left.why.as_ref().is_some_and(|why| why.contains(pid.trim())), "{left}");
        assert!(left.processes.is_empty(), "it may be somebody else's: {left:?}");
        assert_beats(&spec);
        let mut next = script(world, HEART);
        next.dir.clone_from(&spec.dir);
        assert!(matches!(world.refused(&next), StartError::Invalid(why) if why.contains(pid.trim())));
        kill(pid.trim().parse().expect("a process id"));
        eventually("it is gone", || world.driver.teardown(&spec.name, &spec.dir).is_ok());
        assert!(!spec.dir.join("bare.json").exists());
        world.assert_gone(&spec);
    });
}

/// An init that ended everything itself has proved it.
#[test]
fn an_init_that_was_told_to_end_leaves_no_doubt() {
    without_cgroups("an_init_that_was_told_to_end_leaves_no_doubt", |world| {
        let mut spec = script(world, "");
        spec.env.insert("HEART".to_owned(), HEART.to_owned());
        spec.command[2] = "env -i W=\"$W\" setsid sh -c \"$HEART\" & exec sleep 600".to_owned();
        let started = world.start(&spec);
        assert_beats(&spec);
        let record = spec.dir.join("bare.json");
        assert!(size_of_file(&record) > 0);
        assert!(client(&spec).kill(SOON).expect("connected"));
        assert!(started.init.ends_within(SOON));
        assert_eq!(size_of_file(&record), 0);
        world.driver.teardown(&spec.name, &spec.dir).expect("all of it went");
        assert!(!record.exists());
    });
}

fn size_of_file(path: &std::path::Path) -> u64 {
    fs::metadata(path).expect("it is there").len()
}

fn kill(pid: i32) {
    let pid = rustix::process::Pid::from_raw(pid).expect("a process id");
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("it is ours");
}

#[test]
fn the_end_of_the_agent_ends_the_rest() {
    without_namespaces("the_end_of_the_agent_ends_the_rest", |world| {
        let mut spec = script(world, "(setsid sh -c \"$HEART\" &) ; sleep 0.2; exit 4");
        spec.env.insert("HEART".to_owned(), HEART.to_owned());
        world.start(&spec);
        let mut node = client(&spec);
        eventually("the end is told", || {
            matches!(node.next(SOON).expect("the init lives"), Some(FromInit::Exited { code: 4 }))
        });
        assert_still(&spec);
    });
}

#[test]
fn nothing_weakens_the_init() {
    without_namespaces("nothing_weakens_the_init", |world| {
        let mut spec = world.spec(&[EXE_INSIDE, "against-parent"]);
        spec.allow_degraded = true;
        world.start(&spec);
        let path = spec.workspace().join("against.json");
        eventually("the attempts are made", || path.exists());
        let outcomes: BTreeMap<String, String> =
            serde_json::from_slice(&fs::read(path).expect("written")).expect("JSON");
        assert!(outcomes.len() > 15 && outcomes.values().all(|outcome| outcome == "EPERM"), "{outcomes:?}");
        assert_eq!(client(&spec).ask(&ToInit::Freeze, SOON).expect("answered").refused, None);
    });
}

/// Connects to its init, once itself and once through a child that has ended by then, and asks for something.
const INTRUDER: &str = r#"
import os, socket
heard = []
for orphan in (False, True):
    s = socket.socket(socket.AF_UNIX)
    if not orphan:
        s.connect(os.environ['SOCK'][1:])
    elif os.fork() == 0:
        s.connect(os.environ['SOCK'][1:])
        os._exit(0)
    else:
        os.wait()
    try:
        s.sendall(b'{"type":"freeze"}\n')
        heard.append(s.recv(100))
    except OSError as error:
        heard.append(error.strerror)
os.chdir(os.environ['W'])
open('heard.new', 'w').write(repr(heard))
os.rename('heard.new', 'heard')
"#;

/// The payload sees `init.sock`, and is its owner; the lease is not its own to grant all the same.
#[test]
fn the_payload_has_no_say_at_its_init() {
    without_namespaces("the_payload_has_no_say_at_its_init", |world| {
        let mut spec = script(world, "python3 -c \"$INTRUDER\"; exec sleep 600");
        spec.env.insert("INTRUDER".to_owned(), INTRUDER.to_owned());
        spec.env.insert("SOCK".to_owned(), as_it_is(&spec.dir.join("init.sock")));
        world.start(&spec);
        let path = spec.workspace().join("heard");
        eventually("it has tried", || path.exists());
        let heard = fs::read_to_string(path).expect("written");
        assert!(!heard.contains("status"), "{heard}");
        let status = client(&spec).ask(&ToInit::Status, SOON).expect("the node is heard");
        assert!(!status.reasons.command, "{heard}");
    });
}
