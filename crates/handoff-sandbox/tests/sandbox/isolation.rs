//! What cannot be done from inside, each with the proof that it can be done from outside.

use std::collections::BTreeMap;
use std::fs;
use std::net::{TcpListener, TcpStream};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};

use handoff_sandbox::control::ToInit;
use handoff_sandbox::{Driver, EXE_INSIDE, Facet};

use crate::world::{SOON, as_root_and_as_user, client, eventually, is_root, log, size};

as_root_and_as_user! {
    /// A program that tries to get out finds every way shut.
    fn every_way_out_is_shut(world) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        let hidden = format!("handoff-test-{}", uuid::Uuid::new_v4());
        let hidden_address = SocketAddr::from_abstract_name(&hidden).expect("a name");
        let _hidden = UnixListener::bind_addr(&hidden_address).expect("bound");
        let secret = world.path("secret");
        fs::write(&secret, "x").expect("it is ours");
        let spec = world.spec(&[EXE_INSIDE, "attempts", &address.to_string(), &hidden, secret.to_str().expect("text")]);
        let started = world.start(&spec);
        TcpStream::connect(address).expect("the host reaches it");
        UnixStream::connect_addr(&hidden_address).expect("the host reaches it");
        let path = spec.workspace().join("attempts.json");
        eventually("the attempts are made", || path.exists());
        let outcomes: BTreeMap<String, String> =
            serde_json::from_slice(&fs::read(path).expect("written")).expect("JSON");
        for (what, outcome) in &outcomes {
            let meant = what.starts_with("use ");
            assert_eq!(outcome == "done", meant, "{what}: {outcome}");
        }
        assert!(outcomes.len() > 80, "{outcomes:?}");
        for filtered in ["mount", "ptrace", "bpf", "io_uring_setup", "ioctl TIOCSTI, high bits", "socket AF_VSOCK", "clone"] {
            assert_eq!(outcomes[filtered], "EPERM", "{filtered}");
        }
        for (what, outcome) in outcomes.iter().filter(|(what, _)| what.ends_with(" of the init")) {
            assert_eq!(outcome, "EPERM", "{what}");
        }
        // Whatever was tried against it, the init hears and obeys, and waits without spinning.
        let limits = fs::read_to_string(format!("/proc/{}/limits", started.init.pid)).expect("the init lives");
        assert!(!limits.lines().any(|line| line.starts_with("Max open files") && line.contains(" 0 ")), "{limits}");
        assert_eq!(client(&spec).ask(&ToInit::Freeze, SOON).expect("answered").refused, None);
        for absent in ["clone3", "x32 getpid"] {
            assert_eq!(outcomes[absent], "ENOSYS", "{absent}");
        }
        for filtered in ["chmod set-user-id", "chmod set-group-id", "fchmod set-user-id", "open set-user-id"] {
            assert_eq!(outcomes[filtered], "EPERM", "{filtered}");
        }
        for entry in fs::read_dir(spec.workspace()).expect("it is ours") {
            let mode = entry.and_then(|entry| entry.metadata()).expect("it is there").mode();
            assert_eq!(mode & 0o6000, 0, "it lends an id on the host");
        }
        let mode = fs::metadata(&spec.dir).expect("it is ours").mode();
        assert_eq!(mode & 0o077, 0, "other users of the host reach nothing in it");
        assert_eq!(outcomes["read secret"], "ENOENT");
        assert_eq!(outcomes["write /usr/x"], "EROFS");
        assert_eq!(outcomes["write /proc/sys/kernel/core_pattern"], "EROFS");
        for own in ["workspace/x", "state/x"] {
            assert_eq!(fs::read(spec.dir.join(own)).expect("it is on the host"), b"x");
        }
    }

    /// What the agent has: no privilege, four descriptors, the environment it was given, a session of its own.
    fn the_agent_starts_with_nothing(world) {
        let mut spec = world.script(
            "cat /proc/self/status; ls /proc/self/fd | tr '\\n' ' '; echo; env | sort; \
             cut -d' ' -f5,6 /proc/self/stat; echo $$; id; hostname; ulimit -c; ulimit -n; ls /; ls /etc; ls / /proc | grep -c '^[0-9]'; cat /proc/self/mountinfo; echo end",
        );
        spec.env.insert("TOKEN".to_owned(), "opaque".to_owned());
        world.start(&spec);
        eventually("the script is done", || log(&spec).contains("\nend"));
        let text = log(&spec);
        for line in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
            assert!(text.contains(&format!("{line}:\t0000000000000000")), "{line}\n{text}");
        }
        for line in ["NoNewPrivs:\t1", "Umask:\t0022", "SigBlk:\t0000000000000000", "Seccomp:\t2", "Uid:\t1000\t1000\t1000\t1000", "TOKEN=opaque", "HOME=/workspace"] {
            assert!(text.contains(line), "{line}\n{text}");
        }
        let ignored = text.lines().find_map(|line| line.strip_prefix("SigIgn:\t")).expect("a line");
        let ignored = u64::from_str_radix(ignored, 16).expect("hexadecimal");
        // Above 31 are real-time signals, of which the C library keeps the first for itself.
        assert_eq!(ignored & 0x7fff_ffff, 0, "{text}");
        // 4 is `ls` looking at its own directory of descriptors.
        assert!(text.contains("0 1 2 3 4 \n"), "{text}");
        assert!(!text.contains("HANDOFF_TEST") && !text.contains("CARGO"), "{text}");
        assert!(text.contains("uid=1000(agent) gid=1000(agent)"), "{text}");
        assert!(text.contains("\nhandoff\n0\n4096\n"), "{text}");
        let host = fs::read_to_string("/proc/self/mountinfo").expect("readable");
        assert!(host.lines().count() > 3);
        for absent in ["\nhome\n", "\nroot\n", "\nsys\n", "\nshadow\n", "\nmnt\n", "\nboot\n"] {
            assert!(!text.contains(absent), "{absent}\n{text}");
        }
    }

    /// Without a session of its own, the payload's kill(0) would end the test, and in life the node.
    fn kill_zero_stays_inside(world) {
        let spec = world.script("touch /workspace/here; kill -9 0; touch /workspace/there");
        let started = world.start(&spec);
        assert!(started.isolation.holds(Facet::Setsid));
        let mut client = client(&spec);
        eventually("it killed itself", || {
            use handoff_sandbox::control::FromInit;
            let heard = client.next(SOON).expect("the init lives");
            matches!(heard, Some(FromInit::Exited { code: 137 }))
        });
        assert!(size(&spec, "there") == 0 && spec.workspace().join("here").exists());
        assert!(!started.init.ends_within(std::time::Duration::ZERO), "the init lives on");
    }

    /// The facts of a start are the facts of the host, and nothing but what a plain user cannot have is lost.
    fn the_probe_and_a_start_say_the_same(world) {
        let spec = world.script("sleep 600");
        let started = world.start(&spec);
        let probed = world.driver.probe();
        let lost = |facts: &handoff_sandbox::Isolation| facts.losses().map(|(facet, _)| facet).collect::<Vec<_>>();
        assert_eq!(lost(&probed), lost(&started.isolation));
        let expected: &[Facet] = if is_root() { &[] } else { &[Facet::Memory, Facet::Cpu] };
        assert_eq!(lost(&probed), expected, "{probed}");
    }

    /// The gateway's socket is the one door, also for one that a restarted gateway binds anew.
    fn the_door_opens_and_only_from_outside(world) {
        let spec = world.script(
            "python3 - <<'E'\nimport socket,time\nwhile True:\n  try:\n    s=socket.socket(socket.AF_UNIX); s.connect('/handoff/door/gateway.sock'); s.sendall(b'hello'); break\n  except OSError: time.sleep(0.01)\nE",
        );
        let first = UnixListener::bind(spec.door().join("gateway.sock")).expect("bound");
        drop(first);
        fs::remove_file(spec.door().join("gateway.sock")).expect("it is there");
        world.start(&spec);
        let listener = UnixListener::bind(spec.door().join("gateway.sock")).expect("bound");
        let (mut stream, _) = listener.accept().expect("the payload connects");
        let mut text = String::new();
        std::io::Read::read_to_string(&mut stream, &mut text).expect("it says something");
        assert_eq!(text, "hello");
    }
}

#[test]
fn root_gives_each_sandbox_a_user_that_owns_nothing() {
    let world = crate::world::World::new();
    let spec = world.script("touch /workspace/mine; sleep 600");
    let started = world.start(&spec);
    let status = fs::read_to_string(format!("/proc/{}/status", started.init.pid)).expect("it runs");
    let uid = status.lines().find_map(|line| line.strip_prefix("Uid:\t")).expect("a line");
    let uid: u32 = uid.split('\t').next().and_then(|uid| uid.parse().ok()).expect("a number");
    let own = rustix::process::geteuid().as_raw();
    let expected = if is_root() { 0x7000_0000..0x7001_0000 } else { own..own + 1 };
    assert!(expected.contains(&uid), "{uid}");
    let file = spec.workspace().join("mine");
    eventually("the file is made", || file.exists());
    let owner = fs::metadata(file).expect("made").uid();
    assert_eq!(owner, own, "on disk it belongs to the directory's owner");
}
