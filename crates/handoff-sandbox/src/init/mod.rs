//! The init: process 1 of the sandbox's pid namespace. It holds the lease, the freezer and the node's
//! connection; it starts the agent, reaps what ends, and outlives the node, the gateway and the server. When
//! it ends, the kernel ends everything inside.

mod agent;
mod connection;
mod facts;
mod freezer;
mod reach;
mod serve;

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{DumpableBehavior, set_dumpable_behavior};

use crate::clock;
use crate::isolation::{Facet, Isolation};
use crate::launch::plan::{Failure, InitPlan, PLAN_FD, Report, Stage};
use crate::lease::Keeper;
use crate::{strays, sys};
use agent::{Agent, Log};
use freezer::Freezer;
use reach::Reach;
use serve::{Init, Parts};

/// Runs the init to its end.
pub(crate) fn run() -> i32 {
    // It stays open, so that nothing else gets the number at which the agent's end is placed.
    let Ok(file) = sys::inherited(PLAN_FD).map(File::from) else { return 1 };
    let Ok(plan) = serde_json::from_reader::<_, InitPlan>(&file) else { return 1 };
    let Ok(report) = sys::inherited(plan.report).map(File::from) else { return 1 };
    let ends_with_maker = plan.payload.ends_with_maker;
    match begin(plan, &report) {
        Ok(Some(mut init)) if ends_with_maker => {
            wait_until_unheard(&report);
            init.end()
        }
        Ok(Some(mut init)) => {
            drop(report);
            init.run()
        }
        Ok(None) => 0,
        Err(failure) => {
            let _ = failure.report().send(&report);
            1
        }
    }
}

/// Waits until whoever started this has read what it waited for, or has ended.
fn wait_until_unheard(report: &File) {
    // The end of a pipe that is written to tells of an error when nobody reads any more, asked for or not.
    while let Err(Errno::INTR) = poll(&mut [PollFd::new(report, PollFlags::empty())], None) {}
}

/// Up to the running agent; nothing when the isolation is not what was asked for.
fn begin(plan: InitPlan, report: &File) -> Result<Option<Init>, Failure> {
    // The payload has the same uid: a dumpable init would lend it its memory and its descriptors.
    set_dumpable_behavior(DumpableBehavior::NotDumpable).stage("close the init to others")?;
    let owned = |number| sys::inherited(number);
    let listener = UnixListener::from(owned(plan.listener).stage("take the socket")?);
    let rooms: Vec<OwnedFd> = plan
        .rooms
        .iter()
        .map(|number| owned(*number))
        .collect::<io::Result<_>>()
        .stage("take the cgroups")?;
    let log = plan.log.map(owned).transpose().stage("take the log")?;
    let record = plan.record.map(owned).transpose().stage("take the record")?.map(File::from);
    let bare = plan.payload.bare.as_ref();
    let reach = if bare.is_some() { Reach::descendants() } else { Ok(Reach::Namespace) };
    let reach = reach.stage("adopt what loses its parent")?;
    let freezer = Freezer::new(plan.freezer, reach).stage("take the freezer")?;
    let children = sys::child_signals().stage("watch for children")?;
    let mut facts = plan.facts;
    let safe = facts::confine(bare, &mut facts);
    facts::look(&plan.host_namespaces, bare, &mut facts).stage("look around")?;
    let nproc = fall_back(&mut facts, &freezer, plan.payload.pids);
    if !safe {
        facts.lost(Facet::Freeze, "the payload can signal its init, and stop what would freeze it");
    }
    if !facts.is_whole() && !plan.payload.allow_degraded {
        Report::Refused { facts }.send(report).stage("report")?;
        return Ok(None);
    }
    let log =
        log.map(|file| Log::new(file.into(), plan.payload.log_bytes)).transpose().stage("open the log")?;
    let (log, output) = log.map_or((None, None), |(log, output)| (Some(log), Some(output)));
    record.as_ref().map(strays::begin).transpose().stage("note what to look for")?;
    let agent = Agent::start(&plan.payload, rooms, nproc, output).stage("execute the agent")?;
    Report::Started { facts }.send(report).stage("report")?;
    let keeper = Keeper::new(clock::boot_id());
    let parts = Parts { keeper, freezer, reach, agent, log, listener, children, record };
    Init::new(plan.payload.incarnation, parts).stage("begin to listen").map(Some)
}

/// What holds in another way where no cgroup does: the number of processes by the user's limit, which counts
/// this user namespace alone and binds every user but the host's root; freezing by signals. Returns whether
/// the processes' limit is set that way.
fn fall_back(facts: &mut Isolation, freezer: &Freezer, pids: u32) -> bool {
    let by_user = !facts.holds(Facet::Pids) && facts.holds(Facet::UserNamespace) && !is_host_root();
    if by_user {
        facts.enforced(Facet::Pids, format!("RLIMIT_NPROC {pids} in its own user namespace"));
    }
    if freezer.by_signals() {
        let all = if facts.holds(Facet::PidNamespace) { "all of the pid namespace" } else { "each process" };
        facts.enforced(Facet::Freeze, format!("SIGSTOP to {all}"));
    }
    by_user
}

/// Whether uid 1000 inside is uid 0 of the namespace around it. What cannot be read counts as yes.
fn is_host_root() -> bool {
    let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    map.split_ascii_whitespace().nth(1).is_none_or(|outside| outside == "0")
}
