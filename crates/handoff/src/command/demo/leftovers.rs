//! What is left when nothing should be: looked for by the marks that everything of a sandbox carries, and by
//! the demo's own directory.

use std::path::Path;

use anyhow::Result;
use handoff_protocol::TransferId;
use handoff_sandbox::{Driver as _, Native};

use super::document::Leftovers;
use crate::config::Home;

/// What is left of a transfer's sandboxes and directories.
pub(super) fn of_transfer(home: &Home, transfer: TransferId) -> Result<Leftovers> {
    let mut found = Leftovers::default();
    let driver = Native::new(std::env::current_exe()?);
    for left in driver.leftovers(&transfer.to_string())? {
        found.processes.extend(left.processes.iter().map(ToString::to_string));
        found.mounts.extend(left.mounts.iter().map(|path| path.display().to_string()));
        found.cgroups.extend(left.cgroups.iter().map(|path| path.display().to_string()));
        found.files.extend(left.sockets.iter().map(|path| path.display().to_string()));
    }
    if let Ok(places) = std::fs::read_dir(home.node().join("destinations")) {
        for place in places {
            let path = place?.path();
            if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&transfer.to_string()))
            {
                found.files.push(path.display().to_string());
            }
        }
    }
    Ok(found)
}

/// Processes that still live with the demo's directory in their environment or command line.
pub(super) fn processes_of(root: &Path) -> Result<Vec<String>> {
    let own = std::process::id().to_string();
    let needle = root.as_os_str().as_encoded_bytes();
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc")? {
        let entry = entry?;
        let pid = entry.file_name().to_string_lossy().into_owned();
        if !pid.bytes().all(|byte| byte.is_ascii_digit()) || pid == own {
            continue;
        }
        let mentions = ["environ", "cmdline"].iter().any(|file| {
            let bytes = std::fs::read(entry.path().join(file)).unwrap_or_default();
            bytes.windows(needle.len()).any(|window| window == needle)
        });
        if mentions {
            found.push(pid);
        }
    }
    Ok(found)
}
