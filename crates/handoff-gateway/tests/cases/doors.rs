//! Sandboxes that open all the connections they can: others, the node and upstreams are served all the same.

use std::process::Command;
use std::time::{Duration, Instant};

use handoff_gateway::control::{DestinationKey, Open};
use rustix::process::{Resource, getrlimit};
use tokio::net::UnixStream;

use crate::upstream::DEADLINE;
use crate::world::{EPOCH, World, body, usd};

/// Whether this process is the one with few open files.
const THERE: &str = "HANDOFF_TEST_FEW_FILES";
const SOFT: u64 = 400;
const HARD: u64 = 512;
/// What each greedy sandbox opens. Two of them would take all there is.
const MANY: usize = 150;

#[test]
fn two_greedy_sandboxes_starve_nobody() {
    if std::env::var_os(THERE).is_some() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        return runtime.expect("a runtime").block_on(two_greedy_sandboxes());
    }
    let script = format!("ulimit -n {HARD} && ulimit -Sn {SOFT} && exec \"$@\"");
    let mut command = Command::new("sh");
    command.args(["-c", &script, "sh"]).arg(std::env::current_exe().expect("a path"));
    command.args(["doors::two_greedy_sandboxes_starve_nobody", "--exact", "--nocapture"]).env(THERE, "1");
    let output = command.output().expect("a shell");
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{text}\n{errors}");
}

async fn two_greedy_sandboxes() {
    assert_eq!(getrlimit(Resource::Nofile).current, Some(SOFT));
    let mut world = World::new("1").await;
    assert_eq!(getrlimit(Resource::Nofile).current, Some(HARD), "all that the process may have is used");
    let mut held = Vec::new();
    for generation in [2, 3] {
        let door_dir = world.folder.path().join(format!("door-{generation}"));
        std::fs::create_dir(&door_dir).expect("a folder");
        let destination = DestinationKey { generation, ..world.key() };
        let open = Open { destination, door_dir: door_dir.clone(), ..world.open.clone() };
        world.client.ask(&open).await.expect("opened");
        for _ in 0..MANY {
            held.push(
                UnixStream::connect(door_dir.join("gateway.sock")).await.expect("it waits to be taken"),
            );
        }
    }
    let taken = until_no_more_are_taken().await;
    assert!(taken > 2 * MANY + 20, "they did get some: {taken}");
    assert_eq!(world.call(&body(Some(500), false, 200), 40, 7).await.status, 200);
    assert_eq!(world.settled(EPOCH).await.spent_usd, usd("0.00011"));
}

/// How many open files there are, once that has not changed for a while.
async fn until_no_more_are_taken() -> usize {
    let open = || std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    let start = Instant::now();
    let mut last = (open(), Instant::now());
    while last.1.elapsed() < Duration::from_millis(300) && start.elapsed() < DEADLINE {
        tokio::task::yield_now().await;
        let now = open();
        if now != last.0 {
            last = (now, Instant::now());
        }
    }
    last.0
}
