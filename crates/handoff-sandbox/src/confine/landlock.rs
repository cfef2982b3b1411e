//! The second fence around files: even if a mount went wrong, writing is possible in four places only, and
//! signals and abstract sockets do not leave the domain. Best effort by the kernel's ABI, which is named.

use std::path::Path;

use ::landlock::{
    ABI, Access, AccessFs, CompatLevel, Compatible, LandlockStatus, PathBeneath, PathFd, Ruleset,
    RulesetAttr, RulesetCreatedAttr, RulesetStatus, Scope,
};

use crate::spec::{STATE_INSIDE, WORKSPACE_INSIDE};

/// The newest rights that are asked for; an older kernel enforces what it knows.
const ASKED: ABI = ABI::V6;

/// Restricts this process and all it starts.
///
/// # Errors
/// Says why nothing at all is enforced.
pub(crate) fn restrict() -> Result<String, String> {
    let devices = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"];
    restrict_to(
        Path::new("/"),
        &[WORKSPACE_INSIDE, STATE_INSIDE, "/tmp", "/dev/shm"].map(Path::new),
        &devices.map(Path::new),
    )
}

/// Reading and executing beneath one place, everything beneath some others, writing to some files.
pub(crate) fn restrict_to(readable: &Path, writable: &[&Path], devices: &[&Path]) -> Result<String, String> {
    let said = |error: &dyn std::fmt::Display| error.to_string();
    let open = |path: &Path| PathFd::new(path).map_err(|error| said(&error));
    let all = AccessFs::from_all(ASKED);
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(all)
        .and_then(|rules| rules.scope(Scope::from_all(ASKED)))
        .and_then(Ruleset::create)
        .map_err(|error| said(&error))?;
    let mut places = vec![(readable, AccessFs::from_read(ASKED))];
    places.extend(writable.iter().map(|path| (*path, all)));
    let to_device = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::Truncate | AccessFs::IoctlDev;
    places.extend(devices.iter().map(|path| (*path, to_device)));
    for (path, access) in places {
        rules = rules.add_rule(PathBeneath::new(open(path)?, access)).map_err(|error| said(&error))?;
    }
    let status = rules.restrict_self().map_err(|error| said(&error))?;
    let kernel = match status.landlock {
        LandlockStatus::Available { effective_abi, .. } => format!("ABI {}", effective_abi as i32),
        LandlockStatus::NotEnabled => "not enabled".to_owned(),
        LandlockStatus::NotImplemented => "not in this kernel".to_owned(),
    };
    match status.ruleset {
        RulesetStatus::FullyEnforced => Ok(format!("Landlock {kernel}")),
        RulesetStatus::PartiallyEnforced => Ok(format!("Landlock {kernel}, in part")),
        RulesetStatus::NotEnforced => Err(format!("Landlock: {kernel}")),
    }
}
