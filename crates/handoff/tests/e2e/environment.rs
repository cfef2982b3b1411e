//! What the processes in the background are given of the environment that the control plane is started from.

use std::process::{Command, Stdio};

use crate::processes::Leash;
use crate::world::{place, until};

/// H-26: the secret is in the `serve` process alone; and no role is given what it does not need.
#[test]
fn node_and_gateway_are_not_given_the_control_plane_s_secrets() {
    let (_directory, root) = place();
    let home = root.join("home");
    let mut command = Command::new(env!("CARGO_BIN_EXE_handoff"));
    command.arg("serve").env("HANDOFF_HOME", &home).stdin(Stdio::null());
    let canaries = ["TRANSFER_TOKEN_SECRET", "HANDOFF_API_KEY", "DATABASE_URL", "MODEL_KEY"];
    for name in canaries {
        command.env(name, format!("canary-{name}-0123456789abcdef0123456789"));
    }
    let log = std::fs::File::create(root.join("serve.log")).expect("a log");
    command.stdout(log.try_clone().expect("a log")).stderr(log);
    let serve = Leash::on(command.spawn().expect("it starts"));
    let given = |role: &str| {
        let mut found = None;
        until(&format!("{role} runs"), || {
            let pid = std::fs::read_to_string(home.join(format!("{role}.lock"))).unwrap_or_default();
            found = pid.trim().parse::<u32>().ok();
            found.is_some()
        });
        let pid = found.expect("just found");
        let environment = std::fs::read(format!("/proc/{pid}/environ")).expect("it is ours");
        let environment = String::from_utf8_lossy(&environment).into_owned();
        assert!(environment.contains(&format!("HANDOFF_HOME={}", home.display())), "{role}: {environment}");
        canaries.into_iter().filter(|name| environment.contains(&format!("{name}="))).collect::<Vec<_>>()
    };
    assert_eq!(given("gateway"), ["MODEL_KEY"], "references of the scheme env name any variable");
    assert_eq!(given("node"), <[&str; 0]>::default());
    serve.end();
}
