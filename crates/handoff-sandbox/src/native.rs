//! The native driver: Linux namespaces, cgroups, seccomp and Landlock, by hand. No daemon, no C library, for
//! root and for a plain user.

use std::fs;
use std::io::{self, PipeReader, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::event::{PollFd, PollFlags, poll};

use crate::cgroup::{Cgroups, Usage};
use crate::clock::{Deadline, timespec};
use crate::driver::Driver;
use crate::isolation::{Facet, Isolation};
use crate::launch::plan::{LaunchPlan, Payload, Report};
use crate::lines::Splitter;
use crate::name::Name;
use crate::probe;
use crate::proc::{Process, SUBCOMMAND};
use crate::spec::{Spec, StartError, Started};
use crate::strays;
use crate::teardown::{self, Absence, Leftovers};

/// Namespaces, cgroups, seccomp and Landlock, by hand.
#[derive(Debug, Clone)]
pub struct Native {
    exe: PathBuf,
}

impl Native {
    /// A driver that probes with this binary, which has to answer [`SUBCOMMAND`].
    pub fn new(exe: impl Into<PathBuf>) -> Self {
        Self { exe: exe.into() }
    }
}

impl Driver for Native {
    fn probe(&self) -> Isolation {
        probe::probe(&self.exe).unwrap_or_else(|why| Isolation::default().rest_lost(&why))
    }

    fn start(&self, spec: &Spec) -> Result<Started, StartError> {
        start(spec)
    }

    fn adopt(&self, name: &Name) -> Option<Process> {
        teardown::init_of(name)
    }

    fn usage(&self, name: &Name) -> Usage {
        teardown::usage_of(name)
    }

    fn teardown(&self, name: &Name, dir: &Path) -> Result<Absence, Box<Leftovers>> {
        teardown::teardown(name, dir)
    }

    fn leftovers(&self, prefix: &str) -> io::Result<Vec<Leftovers>> {
        teardown::search(|name| name.as_str().starts_with(prefix))
    }
}

pub(crate) fn start(spec: &Spec) -> Result<Started, StartError> {
    check(spec)?;
    let taken = teardown::search(|name| name == &spec.name);
    if !taken.map_err(|error| StartError::Invalid(error.to_string()))?.is_empty() {
        return Err(StartError::NameTaken(spec.name.clone()));
    }
    // What an earlier one left in this directory would go on beside the new one.
    strays::none_left(&spec.name, &spec.dir).map_err(StartError::Invalid)?;
    let outcome = attempt(spec);
    if let Err(error) = &outcome {
        tracing::debug!(sandbox = %spec.name, %error, "the start failed; removing what there is of it");
        if let Err(left) = teardown::teardown(&spec.name, &spec.dir) {
            tracing::warn!(%left, "a failed start left something behind");
        }
    }
    outcome
}

/// Refuses what cannot be followed, and closes the destination's directory to other users of the host:
/// whatever modes a payload gives to its files.
fn check(spec: &Spec) -> Result<(), StartError> {
    let invalid = |why: String| Err(StartError::Invalid(why));
    if !spec.dir.is_absolute() || !spec.exe.is_absolute() {
        return invalid("the directory and the binary have to be absolute paths".to_owned());
    }
    for dir in [spec.workspace(), spec.state(), spec.door()] {
        if !fs::symlink_metadata(&dir).is_ok_and(|found| found.is_dir()) {
            return invalid(format!("{} is not a directory", dir.display()));
        }
    }
    if let Err(error) = fs::set_permissions(&spec.dir, fs::Permissions::from_mode(0o700)) {
        return invalid(format!("{}: {error}", spec.dir.display()));
    }
    let words = spec.command.iter().chain(spec.env.keys()).chain(spec.env.values());
    if spec.command.is_empty() || words.into_iter().any(|word| word.contains('\0')) {
        return invalid("the command is empty, or a word has a NUL byte".to_owned());
    }
    if spec.env.keys().any(|key| key.is_empty() || key.contains('=')) {
        return invalid("a variable's name is empty or has a '='".to_owned());
    }
    Ok(())
}

fn attempt(spec: &Spec) -> Result<Started, StartError> {
    let deadline = Deadline::within(spec.start_within);
    let cgroups = Cgroups::create(&spec.name, &spec.tier);
    let mut plan = plan(spec, cgroups);
    let first = run_launcher(spec, &plan, deadline);
    let Err(Broken::Lost(facts)) = first else { return first.map_err(StartError::from) };
    if !spec.allow_degraded {
        let facts = facts.rest_lost("not tried, as an earlier step failed");
        return Err(StartError::IsolationUnavailable(facts));
    }
    tracing::warn!(sandbox = %spec.name, %facts, "going on without namespaces");
    plan.facts = facts;
    plan.bare = true;
    run_launcher(spec, &plan, deadline).map_err(StartError::from)
}

/// Why one attempt came to nothing.
enum Broken {
    /// For good.
    Fatal(StartError),
    /// For want of what these facts say is lost; without it another attempt may succeed.
    Lost(Isolation),
}

impl From<Broken> for StartError {
    fn from(broken: Broken) -> Self {
        match broken {
            Broken::Fatal(error) => error,
            Broken::Lost(facts) => Self::IsolationUnavailable(facts),
        }
    }
}

fn run_launcher(spec: &Spec, plan: &LaunchPlan, deadline: Deadline) -> Result<Started, Broken> {
    let failed = |stage: &str| {
        let stage = stage.to_owned();
        move |error: io::Error| Broken::Fatal(StartError::Failed { stage, why: error.to_string() })
    };
    let (mut child, reports) = launch(spec, plan).map_err(failed("execute the launcher"))?;
    let outcome = follow(spec, &plan.facts, reports, deadline);
    if outcome.is_err() {
        // It may hang in the middle: teardown would find it, but it is our child to collect.
        let _ = child.kill();
    }
    child.wait().map_err(failed("collect the launcher"))?;
    outcome
}

fn plan(spec: &Spec, cgroups: Cgroups) -> LaunchPlan {
    LaunchPlan {
        name: spec.name.clone(),
        dir: spec.dir.clone(),
        exe: spec.exe.clone(),
        log: spec.log.clone(),
        tmp_bytes: spec.tmp_bytes,
        rooms: cgroups.rooms,
        init_cgroup: cgroups.init,
        freezer: cgroups.freezer,
        facts: cgroups.facts,
        bare: false,
        payload: Payload {
            incarnation: spec.incarnation,
            command: spec.command.clone(),
            env: spec.env.clone(),
            pids: spec.tier.pids,
            log_bytes: spec.log_bytes,
            allow_degraded: spec.allow_degraded,
            bare: None,
            ends_with_maker: spec.ends_with_maker,
        },
    }
}

fn launch(spec: &Spec, plan: &LaunchPlan) -> io::Result<(Child, PipeReader)> {
    let (reports, end) = io::pipe()?;
    let mut command = Command::new(&spec.exe);
    command.args([SUBCOMMAND, "launch", spec.name.as_str()]);
    command.env_clear().current_dir("/");
    command.stdin(Stdio::piped()).stdout(OwnedFd::from(end)).stderr(Stdio::null());
    let mut child = command.spawn()?;
    let text = serde_json::to_vec(plan)?;
    let mut input = child.stdin.take().expect("standard input is a pipe");
    // A launcher that ended at once says more by its report than by the broken pipe.
    let _ = input.write_all(&text);
    Ok((child, reports))
}

/// Reads reports until one of them decides.
fn follow(
    spec: &Spec,
    facts: &Isolation,
    mut reports: PipeReader,
    deadline: Deadline,
) -> Result<Started, Broken> {
    let failed = |stage: &str, why: &str| {
        Broken::Fatal(StartError::Failed { stage: stage.to_owned(), why: why.to_owned() })
    };
    let mut splitter = Splitter::default();
    let mut init = None;
    loop {
        if !readable(&reports, deadline) {
            return Err(Broken::Fatal(StartError::Late(spec.start_within)));
        }
        let cut = splitter.read(&mut reports).map_err(|error| failed("listen", &error.to_string()))?;
        let Some(cut) = cut else { return Err(failed("listen", "the launcher ended without a word")) };
        for line in cut.lines {
            let report = serde_json::from_str(&line).map_err(|error| failed("listen", &error.to_string()))?;
            match report {
                Report::Init { pid, start_ticks } => init = Process::open(pid, start_ticks).ok(),
                Report::Started { facts } => {
                    let init = init.ok_or_else(|| failed("find the init", "it has ended"))?;
                    return Ok(Started { init, isolation: facts });
                }
                Report::Refused { facts } => {
                    return Err(Broken::Fatal(StartError::IsolationUnavailable(facts)));
                }
                Report::Failed { stage, why, loses } => return Err(broken(facts, &stage, &why, &loses)),
            }
        }
    }
}

fn broken(facts: &Isolation, stage: &str, why: &str, loses: &[Facet]) -> Broken {
    if loses.is_empty() {
        return Broken::Fatal(StartError::Failed { stage: stage.to_owned(), why: why.to_owned() });
    }
    let mut facts = facts.clone();
    for facet in loses {
        facts.lost(*facet, format!("{stage}: {why}"));
    }
    Broken::Lost(facts)
}

fn readable(reports: &PipeReader, deadline: Deadline) -> bool {
    loop {
        let Some(left) = deadline.left() else { return false };
        match poll(&mut [PollFd::new(reports, PollFlags::IN)], Some(&timespec(left))) {
            Ok(0) => return false,
            Ok(_) => return true,
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return false,
        }
    }
}
