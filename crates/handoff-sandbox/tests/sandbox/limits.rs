//! Limits bite, and where they cannot the start is refused.

use std::fs;
use std::time::Duration;

use handoff_protocol::ErrorCode;
use handoff_sandbox::control::FromInit;
use handoff_sandbox::{Driver, EXE_INSIDE, Facet, Spec, StartError};

use crate::world::{SOON, World, as_root_and_as_user, client, eventually, is_root, log};

fn exit_code(spec: &Spec) -> i32 {
    let mut client = client(spec);
    loop {
        match client.next(SOON).expect("the init lives") {
            Some(FromInit::Exited { code }) => return code,
            Some(FromInit::Agent { .. } | FromInit::Status(_)) => {}
            None => panic!("the agent does not end; log: {}", log(spec)),
        }
    }
}

as_root_and_as_user! {
    /// The tier's memory is all there is; what wants more is killed, and the count says so. A plain user
    /// without a cgroup is refused instead.
    fn memory(world) {
        let mut spec = world.spec(&[EXE_INSIDE, "hold", "200"]);
        spec.allow_degraded = false;
        if !is_root() {
            let refused = world.refused(&spec);
            assert_eq!(refused.code(), ErrorCode::IsolationUnavailable);
            let StartError::IsolationUnavailable(facts) = refused else { panic!("{refused}") };
            let lost: Vec<Facet> = facts.losses().map(|(facet, _)| facet).collect();
            assert_eq!(lost, [Facet::Memory, Facet::Cpu], "the list is complete, and no longer than it is");
            world.assert_gone(&spec);
            return;
        }
        world.start(&spec);
        assert_eq!(exit_code(&spec), 137, "{}", log(&spec));
        let usage = world.driver.teardown(&spec.name, &spec.dir).expect("all of it goes").usage;
        assert!(usage.oom_kills >= Some(1), "{usage:?}");
        let peak = usage.memory_peak_bytes.expect("counted");
        assert!((32 << 20..=64 << 20).contains(&peak), "{peak}");
    }

    /// What fits runs.
    fn memory_that_fits(world) {
        let spec = world.spec(&[EXE_INSIDE, "hold", "20"]);
        world.start(&spec);
        assert_eq!(exit_code(&spec), 0);
        assert!(log(&spec).contains("held 20"), "{}", log(&spec));
    }

    /// No more processes than the tier has, for root by a cgroup, for a user by its own count.
    fn pids(world) {
        let mut spec = world.spec(&[EXE_INSIDE, "fork", "100"]);
        spec.tier.pids = 20;
        let started = world.start(&spec);
        assert!(started.isolation.holds(Facet::Pids));
        assert_eq!(exit_code(&spec), 0);
        let forked: u32 = log(&spec).trim().strip_prefix("forked ").and_then(|n| n.parse().ok()).expect("a number");
        assert!((10..20).contains(&forked), "{forked}");
    }

    /// The payload's output is kept up to the limit and then thrown away, and the payload goes on.
    fn the_log_does_not_fill_the_disk(world) {
        let mut spec = world.script("dd if=/dev/zero bs=65536 count=64 2>/dev/null; touch /workspace/through; sleep 600");
        spec.log_bytes = 100_000;
        world.start(&spec);
        eventually("all was written", || spec.workspace().join("through").exists());
        eventually("the log is full", || fs::metadata(spec.log.as_ref().expect("set")).is_ok_and(|log| log.len() == 100_000));
    }

    /// /tmp has an end.
    fn scratch_space(world) {
        let mut spec = world.script("dd if=/dev/zero of=/tmp/x bs=65536 count=64 2>/dev/null; stat -c %s /tmp/x");
        spec.tmp_bytes = 1 << 20;
        world.start(&spec);
        exit_code(&spec);
        assert_eq!(log(&spec).trim(), (1 << 20).to_string());
    }
}

#[test]
fn a_fifth_of_a_processor_is_a_fifth() {
    let world = World::new();
    let mut spec = world.spec(&[EXE_INSIDE, "spin", "1500"]);
    spec.tier.cpu_millis = 200;
    let started = world.start(&spec);
    assert_eq!(started.isolation.holds(Facet::Cpu), is_root(), "no cgroup, no share, and it is said");
    if !is_root() {
        return;
    }
    assert_eq!(exit_code(&spec), 0);
    let used = Duration::from_nanos(world.driver.usage(&spec.name).cpu_ns.expect("counted"));
    assert!(used > Duration::from_millis(20) && used < Duration::from_millis(700), "{used:?} of 1.5 s");
}
