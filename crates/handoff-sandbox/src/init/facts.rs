//! The init looks at itself from inside and says what holds, before anything of the payload runs.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use crate::confine::privileges::Standing;
use crate::confine::{landlock, seccomp};
use crate::isolation::{Facet, Isolation, NOT_TRIED};
use crate::launch::plan::Bare;
use crate::launch::root::{CONFIGURATION, PROGRAMS};
use crate::launch::{NAMESPACES, namespaces};
use crate::proc;
use crate::spec::{DOOR_INSIDE, EXE_INSIDE, STATE_INSIDE, WORKSPACE_INSIDE};

/// Landlock does not govern connecting to a socket by its path, and the filter cannot see the path.
const CONTROL_PLANE_IN_REACH: &str = "the payload runs as this host's user, and whatever that user's sockets \
    allow, it can do: on the control plane's own it may mint, approve and raise budgets";

/// Installs what the init and everything below it lives under, and notes what came of it. Returns whether the
/// payload cannot signal the init.
pub(super) fn confine(bare: Option<&Bare>, facts: &mut Isolation) -> bool {
    let fence = landlock::restrict(bare);
    let signals = fence.as_ref().is_ok_and(|fence| fence.signals);
    note(facts, Facet::Landlock, fence.map(|fence| fence.by));
    note(facts, Facet::Seccomp, seccomp::install(bare.is_none()));
    // The first process of a pid namespace takes no signal from inside that could harm it.
    bare.is_none() || signals
}

fn note(facts: &mut Isolation, facet: Facet, outcome: Result<String, String>) {
    match outcome {
        Ok(by) => facts.enforced(facet, by),
        Err(why) => facts.lost(facet, why),
    }
}

/// Reads everything back.
pub(super) fn look(
    host: &BTreeMap<String, u64>,
    bare: Option<&Bare>,
    facts: &mut Isolation,
) -> io::Result<()> {
    look_around(host, facts)?;
    if bare.is_none() {
        note(facts, Facet::ReadOnlyRoot, root_is_closed());
        note(facts, Facet::NoNetwork, only_loopback());
        note(facts, Facet::NoHostSockets, only_what_is_listed());
    } else {
        lose(facts, Facet::ReadOnlyRoot, "the host's own root, of which Landlock shows a part");
        lose(facts, Facet::NoNetwork, "the host's network, to which the filter lets local sockets only");
        // Not by an earlier step's words: this is what somebody who allows it has to know.
        facts.lost(Facet::NoHostSockets, CONTROL_PLANE_IN_REACH);
    }
    look_at_itself(facts)
}

/// An earlier step may know better why.
fn lose(facts: &mut Isolation, facet: Facet, why: &str) {
    if !facts.losses().any(|(lost, why)| lost == facet && why != NOT_TRIED) {
        facts.lost(facet, why);
    }
}

fn look_around(host: &BTreeMap<String, u64>, facts: &mut Isolation) -> io::Result<()> {
    let here = namespaces()?;
    for (kind, _, facet) in NAMESPACES {
        let differs = match (here.get(kind), host.get(kind)) {
            (Some(here), Some(host)) => here != host,
            (_, None) | (None, _) => false,
        };
        if !differs {
            lose(facts, facet, "the host's own");
        } else if facet != Facet::UserNamespace {
            facts.enforced(facet, "a namespace of its own");
        }
    }
    Ok(())
}

fn look_at_itself(facts: &mut Isolation) -> io::Result<()> {
    let standing = Standing::read()?;
    let held = |holds: bool, by: &str, why: &str| if holds { Ok(by.to_owned()) } else { Err(why.to_owned()) };
    let capabilities = held(standing.no_capabilities, "all five sets are empty", "some are left");
    note(facts, Facet::DroppedCapabilities, capabilities);
    note(facts, Facet::NoNewPrivs, held(standing.no_new_privs, "prctl", "the bit is not set"));
    if !standing.filtered {
        facts.lost(Facet::Seccomp, "no filter is installed");
    }
    let leads = rustix::process::getsid(None).ok() == Some(rustix::process::getpid());
    note(facts, Facet::Setsid, held(leads, "a session of its own", "the host's session"));
    Ok(())
}

/// Tries to make a file in the places that are not meant to be written to.
fn root_is_closed() -> Result<String, String> {
    for dir in ["/", "/usr", "/etc", "/proc/sys/kernel", "/handoff/door", "/handoff/bin"] {
        let path = format!("{dir}/.handoff");
        if fs::File::create(&path).is_ok() {
            let _ = fs::remove_file(path);
            return Err(format!("{dir} can be written to"));
        }
    }
    for own in ["/workspace", "/handoff/state", "/tmp"] {
        let path = format!("{own}/.handoff-probe");
        let made = fs::File::create(&path).and_then(|_| fs::remove_file(path));
        made.map_err(|error| format!("{own} cannot be written to: {error}"))?;
    }
    Ok("a pivoted root from a list, read-only".to_owned())
}

/// Nothing is mounted but what was put there, so no path leads to a directory in which the host has its sockets.
fn only_what_is_listed() -> Result<String, String> {
    let mounts = proc::mounts("self").map_err(|error| format!("/proc/self/mountinfo: {error}"))?;
    let beneath = |target: &str| {
        let places = PROGRAMS.iter().chain(&CONFIGURATION).chain(&["/dev", "/proc", "/tmp"]);
        let mut places = places.chain(&[WORKSPACE_INSIDE, STATE_INSIDE, DOOR_INSIDE, EXE_INSIDE]);
        target == "/" || places.any(|place| Path::new(target).starts_with(place))
    };
    match mounts.iter().find(|mount| !beneath(&mount.target)) {
        Some(other) => Err(format!("{} is mounted", other.target)),
        None => Ok("nothing is mounted that is not on the list".to_owned()),
    }
}

/// No device but the loopback, so no way out: routes need a device.
fn only_loopback() -> Result<String, String> {
    let table =
        fs::read_to_string("/proc/self/net/dev").map_err(|error| format!("/proc/self/net/dev: {error}"))?;
    let devices = table.lines().skip(2).filter_map(|line| line.split(':').next());
    let others: Vec<&str> = devices.map(str::trim).filter(|name| *name != "lo").collect();
    if others.is_empty() {
        Ok("the loopback is the only device".to_owned())
    } else {
        Err(format!("there is {}", others.join(", ")))
    }
}
