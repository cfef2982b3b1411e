//! The sources on a host: every source's agent writes down where it is, so that whoever moves sessions finds
//! them.

use std::io;
use std::path::{Path, PathBuf};

use handoff_protocol::Timestamp;
use handoff_protocol::document::ModelInfo;
use serde::{Deserialize, Serialize};

use crate::durable;
use crate::error::AgentError;

/// The directory of records, in the state directory.
const AGENTS: &str = "agents";
/// The control socket's name, in its run directory.
const SOCKET: &str = "agent.sock";

/// What a source's agent writes down about itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Its name, unique on the host.
    pub name: String,
    /// Its process.
    pub pid: u32,
    /// When the process started, in the kernel's ticks since boot: a pid alone may be another process by now.
    pub start_ticks: u64,
    /// Its session directory.
    pub session_dir: PathBuf,
    /// Its workspace.
    pub workspace: PathBuf,
    /// Its control socket, if it has one.
    pub control_socket: Option<PathBuf>,
    /// The model it talks to, where the session's document says.
    pub model: Option<ModelInfo>,
    /// When it started.
    pub started_at: Timestamp,
}

/// A record that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// What it says.
    pub record: Record,
    /// Whether that very process still runs.
    pub alive: bool,
}

/// All sources that wrote themselves down, by name. A record that is no record is passed over with a warning.
///
/// # Errors
/// The directory cannot be read; an absent one holds none.
pub fn find_sources(home: &Path) -> io::Result<Vec<Source>> {
    let entries = match std::fs::read_dir(home.join(AGENTS)) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_none_or(|extension| extension != "json") {
            continue;
        }
        let Some(bytes) = durable::read(&path)? else { continue };
        match serde_json::from_slice::<Record>(&bytes) {
            Ok(record) => found.push(Source { alive: is_alive(&record), record }),
            Err(error) => tracing::warn!(%error, path = %path.display(), "not a source's record"),
        }
    }
    found.sort_by(|a, b| a.record.name.cmp(&b.record.name));
    Ok(found)
}

/// Where a source of this name has its control socket, and the directory for it is made (0700).
///
/// # Errors
/// The name is not one, or the directory cannot be made.
pub fn control_socket(home: &Path, name: &str) -> Result<PathBuf, AgentError> {
    use std::os::unix::fs::DirBuilderExt;
    check_name(name)?;
    let dir = home.join(AGENTS).join(name);
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&dir);
    made.map_err(|error| AgentError::file(&dir, error))?;
    Ok(dir.join(SOCKET))
}

/// Forgets a source that does not run any more. True if there was a record.
///
/// # Errors
/// It runs, or its record cannot be removed.
pub fn forget(home: &Path, name: &str) -> Result<bool, AgentError> {
    check_name(name)?;
    let path = record_path(home, name);
    match read(&path)? {
        None => return Ok(false),
        Some(record) if is_alive(&record) => return Err(AgentError::NameTaken(name.to_owned())),
        Some(_) => {}
    }
    remove(home, name)?;
    Ok(true)
}

/// This process's record, for as long as it runs.
#[derive(Debug)]
pub(crate) struct Registration {
    home: PathBuf,
    name: String,
}

impl Registration {
    /// Writes the record down. A record of a process that is gone is replaced.
    pub(crate) fn enter(home: &Path, record: &Record) -> Result<Self, AgentError> {
        check_name(&record.name)?;
        let dir = home.join(AGENTS);
        let file = |error| AgentError::file(&dir, error);
        std::fs::create_dir_all(&dir).map_err(file)?;
        let path = record_path(home, &record.name);
        if read(&path)?.is_some_and(|known| is_alive(&known)) {
            return Err(AgentError::NameTaken(record.name.clone()));
        }
        let bytes = serde_json::to_vec(record).expect("plain data");
        durable::replace(&dir, &format!("{}.json", record.name), &bytes).map_err(file)?;
        Ok(Self { home: home.to_owned(), name: record.name.clone() })
    }

    /// Takes the record away: the process ends in order.
    pub(crate) fn leave(self) -> Result<(), AgentError> {
        remove(&self.home, &self.name)
    }
}

/// When a process started, in ticks since boot. Source: proc_pid_stat(5), field 22.
pub(crate) fn start_ticks(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The command's name stands in parentheses and may hold some itself; the state comes third.
    let after_name = stat.rsplit_once(')')?.1;
    let mut fields = after_name.split_ascii_whitespace();
    let state = fields.next()?;
    if state == "Z" || state == "X" {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

fn is_alive(record: &Record) -> bool {
    start_ticks(record.pid) == Some(record.start_ticks)
}

fn record_path(home: &Path, name: &str) -> PathBuf {
    home.join(AGENTS).join(format!("{name}.json"))
}

fn read(path: &Path) -> Result<Option<Record>, AgentError> {
    let bytes = durable::read(path).map_err(|error| AgentError::file(path, error))?;
    // What is no record belongs to no process.
    Ok(bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok()))
}

fn remove(home: &Path, name: &str) -> Result<(), AgentError> {
    let path = record_path(home, name);
    std::fs::remove_file(&path).map_err(|error| AgentError::file(&path, error))?;
    let dir = home.join(AGENTS).join(name);
    match std::fs::remove_dir_all(&dir) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(AgentError::file(&dir, error)),
        Ok(()) | Err(_) => Ok(()),
    }
}

fn check_name(name: &str) -> Result<(), AgentError> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    if (1..=64).contains(&name.len()) && name.bytes().all(allowed) {
        return Ok(());
    }
    Err(AgentError::Options(format!("'{name}' is no name: 1 to 64 characters of a-z A-Z 0-9 - _")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(name: &str, pid: u32, start_ticks: u64) -> Record {
        Record {
            name: name.to_owned(),
            pid,
            start_ticks,
            session_dir: "/s".into(),
            workspace: "/w".into(),
            control_socket: None,
            model: None,
            started_at: Timestamp::from_unix_ms(0),
        }
    }

    fn this(name: &str) -> Record {
        let pid = std::process::id();
        record(name, pid, start_ticks(pid).expect("this process runs"))
    }

    #[test]
    fn only_the_very_process_counts_as_alive() {
        let home = tempfile::tempdir().expect("a directory");
        assert_eq!(find_sources(home.path()).expect("none"), []);
        let live = Registration::enter(home.path(), &this("live")).expect("entered");
        let mut reused = this("reused");
        reused.start_ticks += 1;
        Registration::enter(home.path(), &reused).expect("entered");
        std::fs::write(home.path().join(AGENTS).join("broken.json"), "{").expect("written");
        let found = find_sources(home.path()).expect("readable");
        let seen: Vec<_> = found.iter().map(|source| (source.record.name.as_str(), source.alive)).collect();
        assert_eq!(seen, [("live", true), ("reused", false)]);
        assert!(matches!(forget(home.path(), "live"), Err(AgentError::NameTaken(_))));
        assert!(forget(home.path(), "reused").expect("forgotten"));
        assert!(!forget(home.path(), "reused").expect("nothing to forget"));
        live.leave().expect("left");
        assert_eq!(find_sources(home.path()).expect("readable"), []);
    }

    #[test]
    fn a_name_is_taken_by_the_living_only() {
        let home = tempfile::tempdir().expect("a directory");
        let mut dead = this("a");
        dead.start_ticks += 1;
        Registration::enter(home.path(), &dead).expect("entered");
        let live = Registration::enter(home.path(), &this("a")).expect("the dead give way");
        assert!(matches!(Registration::enter(home.path(), &this("a")), Err(AgentError::NameTaken(_))));
        live.leave().expect("left");
        for name in ["", "a/b", "..", "a.json", &"x".repeat(65)] {
            assert!(matches!(Registration::enter(home.path(), &this(name)), Err(AgentError::Options(_))));
        }
    }

    #[test]
    fn a_control_socket_has_a_directory_of_its_own() {
        use std::os::unix::fs::PermissionsExt;
        let home = tempfile::tempdir().expect("a directory");
        let socket = control_socket(home.path(), "a").expect("made");
        let dir = socket.parent().expect("a directory");
        assert_eq!(std::fs::metadata(dir).expect("there").permissions().mode() & 0o777, 0o700);
    }
}
