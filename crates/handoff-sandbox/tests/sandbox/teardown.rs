//! Whatever state a sandbox is in, teardown ends it, proves it, and says what it used.

use std::time::Duration;

use handoff_sandbox::control::ToInit;
use handoff_sandbox::{Driver, Facet};

use crate::world::{HEART, SOON, as_root_and_as_user, assert_beats, client, is_root};

as_root_and_as_user! {
    /// From full life to nothing, with the evidence of use, and a second time with nothing to do.
    fn nothing_is_left(world) {
        let spec = world.script(HEART);
        let started = world.start(&spec);
        assert_beats(&spec);
        let found = world.driver.leftovers(spec.name.as_str()).expect("searched");
        assert_eq!(found.len(), 1);
        assert!(found[0].processes.contains(&started.init.pid) && found[0].processes.len() >= 2, "{found:?}");
        assert_eq!(found[0].cgroups.is_empty(), !started.isolation.holds(Facet::Memory), "{found:?}");
        assert!(found[0].mounts.is_empty(), "its mounts are not the host's: {found:?}");
        let absence = world.driver.teardown(&spec.name, &spec.dir).expect("all of it goes");
        if is_root() {
            assert!(absence.usage.cpu_ns > Some(0) && absence.usage.memory_peak_bytes > Some(0), "{absence:?}");
        }
        assert!(started.init.ends_within(Duration::ZERO));
        world.assert_gone(&spec);
        let again = world.driver.teardown(&spec.name, &spec.dir).expect("nothing is nothing");
        assert_eq!(again.usage, handoff_sandbox::Usage::default());
    }

    /// Its init was killed from outside: the kernel ended the rest, and what is left is removed.
    fn after_the_init_was_killed(world) {
        let spec = world.script(HEART);
        let started = world.start(&spec);
        assert_beats(&spec);
        let pid = rustix::process::Pid::from_raw(started.init.pid).expect("a process id");
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("it is ours");
        assert!(started.init.ends_within(SOON));
        crate::world::assert_still(&spec);
        assert!(spec.dir.join("init.sock").exists());
        world.driver.teardown(&spec.name, &spec.dir).expect("all of it goes");
        world.assert_gone(&spec);
    }

    /// Frozen, with nobody who would thaw it.
    fn while_it_is_frozen(world) {
        let spec = world.script(HEART);
        world.start(&spec);
        assert_beats(&spec);
        assert!(client(&spec).ask(&ToInit::Freeze, SOON).expect("answered").frozen);
        world.driver.teardown(&spec.name, &spec.dir).expect("all of it goes");
        world.assert_gone(&spec);
    }

    /// A payload that makes processes faster than anyone could list them.
    fn while_it_forks(world) {
        let spec = world.script("while :; do (sleep 600 &) ; done 2>/dev/null");
        world.start(&spec);
        world.driver.teardown(&spec.name, &spec.dir).expect("all of it goes");
        world.assert_gone(&spec);
    }
}
