//! The second fence around files: even if a mount went wrong, writing is possible in four places only, and
//! signals and abstract sockets do not leave the domain. Best effort by the kernel's ABI, which is named.

use std::path::{Path, PathBuf};

use ::landlock::{
    ABI, Access, AccessFs, CompatLevel, Compatible, LandlockStatus, PathBeneath, PathFd, Ruleset,
    RulesetAttr, RulesetCreatedAttr, RulesetStatus, Scope,
};

use crate::launch::bare::SCRATCH;
use crate::launch::plan::Bare;
use crate::launch::root::{CONFIGURATION, DEVICES, PROGRAMS};
use crate::spec::{STATE_INSIDE, WORKSPACE_INSIDE};

/// The newest rights that are asked for; an older kernel enforces what it knows.
const ASKED: ABI = ABI::V6;

/// What holds.
pub(crate) struct Fence {
    pub(crate) by: String,
    /// Signals do not leave the domain: scopes came with the sixth ABI.
    pub(crate) signals: bool,
}

/// Restricts this process and all it starts, in a root of its own or, without one, on the host's.
///
/// # Errors
/// Says why nothing at all is enforced.
pub(crate) fn restrict(bare: Option<&Bare>) -> Result<Fence, String> {
    let devices: Vec<PathBuf> = DEVICES.iter().map(|name| Path::new("/dev").join(name)).collect();
    let Some(bare) = bare else {
        let writable = [WORKSPACE_INSIDE, STATE_INSIDE, "/tmp", "/dev/shm"].map(PathBuf::from);
        return restrict_to(&[PathBuf::from("/")], &writable, &devices);
    };
    let mut readable: Vec<PathBuf> = PROGRAMS.iter().chain(&CONFIGURATION).map(PathBuf::from).collect();
    readable.extend(
        ["/etc/passwd", "/etc/group", "/etc/nsswitch.conf", "/etc/hosts", "/proc"].map(PathBuf::from),
    );
    readable.extend([bare.dir.join("door"), bare.exe.clone()]);
    // A host need not have all of the list.
    readable.retain(|path| path.exists());
    let writable = ["workspace", "state", SCRATCH].map(|part| bare.dir.join(part));
    restrict_to(&readable, &writable, &devices)
}

/// Reading and executing beneath some places, everything beneath others, writing to some files.
fn restrict_to(readable: &[PathBuf], writable: &[PathBuf], devices: &[PathBuf]) -> Result<Fence, String> {
    let said = |error: &dyn std::fmt::Display| error.to_string();
    let all = AccessFs::from_all(ASKED);
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(all)
        .and_then(|rules| rules.scope(Scope::from_all(ASKED)))
        .and_then(Ruleset::create)
        .map_err(|error| said(&error))?;
    let to_device = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::Truncate | AccessFs::IoctlDev;
    let read = readable.iter().map(|path| (path, AccessFs::from_read(ASKED)));
    let write = writable.iter().map(|path| (path, all));
    let device = devices.iter().map(|path| (path, to_device));
    for (path, access) in read.chain(write).chain(device) {
        let place = PathFd::new(path).map_err(|error| said(&error))?;
        rules = rules.add_rule(PathBeneath::new(place, access)).map_err(|error| said(&error))?;
    }
    let status = rules.restrict_self().map_err(|error| said(&error))?;
    let signals = matches!(status.landlock, LandlockStatus::Available { effective_abi, .. } if effective_abi >= ABI::V6);
    let kernel = match status.landlock {
        LandlockStatus::Available { effective_abi, .. } => format!("ABI {}", effective_abi as i32),
        LandlockStatus::NotEnabled => "not enabled".to_owned(),
        LandlockStatus::NotImplemented => "not in this kernel".to_owned(),
    };
    match status.ruleset {
        RulesetStatus::FullyEnforced => Ok(Fence { by: format!("Landlock {kernel}"), signals }),
        RulesetStatus::PartiallyEnforced => Ok(Fence { by: format!("Landlock {kernel}, in part"), signals }),
        RulesetStatus::NotEnforced => Err(format!("Landlock: {kernel}")),
    }
}
