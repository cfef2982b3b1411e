//! A probe leaves nothing, however its maker ends.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use handoff_sandbox::{Driver, Name, Process, Spec};

use crate::world::{World, as_root_and_as_user, eventually};

/// What the names of the probes begin with that a process of this user makes.
fn prefix(pid: u32) -> String {
    let uid = rustix::process::geteuid().as_raw();
    let pid_namespace = fs::metadata("/proc/self/ns/pid").expect("readable").ino();
    format!("probe-{uid}-{pid_namespace}-{pid}-")
}

/// A sandbox as the probe of that process would be one, whose init lives on.
fn probe_of(world: &World, pid: u32, start_ticks: u64) -> Spec {
    let mut spec = world.script("sleep 600");
    spec.name = format!("{}{start_ticks}-00000000", prefix(pid)).parse().expect("a name");
    spec.dir = directory(&spec.name);
    for part in ["workspace", "state", "door"] {
        fs::create_dir_all(spec.dir.join(part)).expect("it is ours");
    }
    spec.log = None;
    world.start(&spec);
    spec
}

fn directory(name: &Name) -> PathBuf {
    std::env::temp_dir().join(format!("handoff-{name}"))
}

fn is_there(world: &World, prefix: &str) -> bool {
    !world.driver.leftovers(prefix).expect("the host can be searched").is_empty()
}

as_root_and_as_user! {
    /// The next probe removes it, and leaves alone what somebody is at.
    fn what_an_ended_maker_left_is_removed_and_a_living_one_s_is_not(world) {
        let me = std::process::id();
        let started = Process::open_now(me.cast_signed()).expect("this process runs").start_ticks;
        let mut child = Command::new("true").spawn().expect("it can be executed");
        child.wait().expect("it ends");
        let orphan = probe_of(world, child.id(), started);
        let living = probe_of(world, me, started);
        world.driver.probe();
        world.assert_gone(&orphan);
        assert!(!orphan.dir.exists());
        assert!(is_there(world, living.name.as_str()) && living.dir.exists());
        world.driver.teardown(&living.name, &living.dir).expect("all of it goes");
        fs::remove_dir_all(&living.dir).expect("it is ours");
    }

    /// Its processes end by themselves; a cgroup and a directory are what can be left.
    fn the_processes_of_a_killed_maker_s_probe_end_with_it(world) {
        // One that was through before it could be killed says nothing.
        let killed = std::iter::repeat_with(|| {
            let mut maker = Command::new(&world.exe).stdout(Stdio::null()).spawn().expect("it can be executed");
            let prefix = prefix(maker.id());
            let seen = loop {
                if is_there(world, &prefix) {
                    break true;
                }
                if maker.try_wait().expect("it is ours").is_some() {
                    break false;
                }
            };
            maker.kill().expect("it is ours");
            maker.wait().expect("it ends");
            seen.then_some(prefix)
        });
        let prefix = killed.flatten().next().expect("there is no end to them");
        eventually("its processes have ended", || {
            let left = world.driver.leftovers(&prefix).expect("the host can be searched");
            left.iter().all(|left| left.processes.is_empty())
        });
        world.driver.probe();
        assert!(!is_there(world, &prefix));
    }
}
