//! Stage two of a start: the first process of the new pid namespace. It still is the launcher's program and
//! has all capabilities of the new user namespace, and nothing of the payload has run yet. It builds the
//! root, gives everything up and becomes the init by executing the binary that was bound in: what this
//! process knew of the host goes with its memory.

use std::ffi::CString;
use std::io::{self, Read, Seek, Write};
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd};

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};

use super::identity::{INSIDE, Trees};
use super::plan::{Failure, FreezerFds, InitPlan, LaunchPlan, PLAN_FD, Stage};
use super::root::{self, Gathered};
use super::{BY_NAMESPACES, Carried, Freezer, carry};
use crate::confine::privileges;
use crate::isolation::Facet;
use crate::proc::SUBCOMMAND;
use crate::spec::EXE_INSIDE;
use crate::sys;

/// Waits until its ids are mapped, and goes on to the end.
pub(crate) fn run(plan: LaunchPlan, carried: Carried, trees: Option<Trees>, mut hold: io::PipeReader) -> ! {
    let mut released = [0];
    if !matches!(hold.read(&mut released), Ok(1)) {
        // The launcher has said why.
        sys::exit_now(1);
    }
    let report = rustix::io::fcntl_dupfd_cloexec(&carried.report, 10);
    let Err(failure) = become_init(plan, carried, trees);
    if let Ok(report) = report {
        let _ = failure.report().send(std::fs::File::from(report));
    }
    sys::exit_now(1)
}

fn become_init(
    plan: LaunchPlan,
    carried: Carried,
    trees: Option<Trees>,
) -> Result<std::convert::Infallible, Failure> {
    // In the launcher's session kill(0) would reach the launcher, and the node.
    rustix::process::setsid().losing("begin a session", &[Facet::Setsid])?;
    become_user().losing("change ids", &BY_NAMESPACES)?;
    let opened = match trees {
        Some(trees) => Ok(trees),
        None => Trees::open(&plan, None),
    };
    let trees = opened.losing("open the destination's directories", &BY_NAMESPACES)?;
    let gathered = Gathered::new(trees).losing("gather the root", &BY_NAMESPACES)?;
    rustix::system::sethostname(b"handoff").losing("name the host", &[Facet::UtsNamespace])?;
    sys::loopback_up().stage("bring the loopback up")?;
    root::enter(gathered, &plan.name.mount_source(), plan.tmp_bytes)
        .losing("enter the root", &BY_NAMESPACES)?;
    privileges::drop_all().losing("drop capabilities", &[Facet::DroppedCapabilities])?;
    privileges::no_new_privs().losing("set no_new_privs", &[Facet::NoNewPrivs])?;
    let name = plan.name.clone();
    hand_over(plan, carried).stage("hand over to the init")?;
    let text = |text: &str| CString::new(text).expect("no NUL in a name");
    let words = [text("handoff"), text(SUBCOMMAND), text("init"), text(name.as_str())];
    let error = sys::exec(&text(EXE_INSIDE), &words.each_ref().map(CString::as_c_str));
    Err(error).stage("execute the init")
}

/// The payload's user, with the namespace's capabilities for a little longer. A plain user keeps its
/// groups: the kernel lets it drop none once it has mapped itself.
fn become_user() -> io::Result<()> {
    privileges::keep_over_setuid()?;
    let _ = set_thread_groups(&[]);
    let (uid, gid) = (rustix::process::Uid::from_raw(INSIDE), rustix::process::Gid::from_raw(INSIDE));
    set_thread_res_gid(gid, gid, gid)?;
    set_thread_res_uid(uid, uid, uid)?;
    Ok(())
}

/// Leaves open what the init owns, and its plan under [`PLAN_FD`]. Everything else closes on execution.
pub(super) fn hand_over(plan: LaunchPlan, carried: Carried) -> io::Result<()> {
    let number = |fd: OwnedFd| carry(fd).map(IntoRawFd::into_raw_fd);
    let freezer = match carried.freezer {
        Some(Freezer::V2 { freeze, events }) => {
            Some(FreezerFds::V2 { freeze: number(freeze)?, events: number(events)? })
        }
        Some(Freezer::V1 { state }) => Some(FreezerFds::V1 { state: number(state)? }),
        None => None,
    };
    let plan = InitPlan {
        listener: number(carried.listener)?,
        report: number(carried.report)?,
        log: carried.log.map(number).transpose()?,
        rooms: carried.rooms.into_iter().map(number).collect::<io::Result<_>>()?,
        freezer,
        record: carried.record.map(number).transpose()?,
        host_namespaces: carried.host_namespaces,
        facts: plan.facts,
        payload: plan.payload,
    };
    let mut memory = std::fs::File::from(carry(memfd_create("plan", MemfdFlags::CLOEXEC)?)?);
    serde_json::to_writer(&memory, &plan)?;
    memory.flush()?;
    memory.rewind()?;
    let null = carry(std::fs::OpenOptions::new().read(true).write(true).open("/dev/null")?.into())?;
    for standard in 0..PLAN_FD {
        sys::place(null.as_raw_fd(), standard)?;
    }
    sys::place(memory.as_raw_fd(), PLAN_FD)
}
