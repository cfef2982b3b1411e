//! Reading /proc: which processes there are, what they are to us, and proof that a process is the one that
//! was meant although ids are used again.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::clock::{Deadline, timespec};
use crate::name::Name;

/// The hidden subcommand that everything of a sandbox on the host side is started with.
pub const SUBCOMMAND: &str = "sandbox-init";

/// A process that cannot be confused with a later one of the same id.
#[derive(Debug)]
pub struct Process {
    /// Its id, as this process sees it.
    pub pid: i32,
    /// When it started: clock ticks after boot (field 22 of `/proc/<pid>/stat`).
    pub start_ticks: u64,
    /// Becomes readable when it has ended, with all of its pid namespace if it was the first one there.
    pub pidfd: OwnedFd,
}

impl Process {
    /// Opens a process, provided that it is the one that started then.
    ///
    /// # Errors
    /// `NotFound` when it is gone or is another one by now.
    pub fn open(pid: i32, start_ticks: u64) -> io::Result<Self> {
        let gone = || io::Error::new(io::ErrorKind::NotFound, format!("process {pid} has ended"));
        let id = Pid::from_raw(pid).ok_or_else(gone)?;
        let pidfd = pidfd_open(id, PidfdFlags::empty()).map_err(|_| gone())?;
        // The descriptor is opened first: whatever holds the id now holds it until the descriptor says so.
        let stat = Stat::read(pid).ok_or_else(gone)?;
        if stat.start_ticks != start_ticks || stat.ended() {
            return Err(gone());
        }
        Ok(Self { pid, start_ticks, pidfd })
    }

    /// Opens a process as it is now.
    ///
    /// # Errors
    /// `NotFound` when it is gone.
    pub fn open_now(pid: i32) -> io::Result<Self> {
        let stat = Stat::read(pid).ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
        Self::open(pid, stat.start_ticks)
    }

    /// Sends a signal to exactly this process. One that has ended is no error.
    pub(crate) fn signal(&self, signal: Signal) -> io::Result<()> {
        match pidfd_send_signal(&self.pidfd, signal) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Whether it ends within that time.
    pub fn ends_within(&self, duration: Duration) -> bool {
        let deadline = Deadline::within(duration);
        loop {
            let left = deadline.left().unwrap_or(Duration::ZERO);
            let mut fds = [PollFd::new(&self.pidfd, PollFlags::IN)];
            match poll(&mut fds, Some(&timespec(left))) {
                Ok(0) => return false,
                Ok(_) => return true,
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => return false,
            }
        }
    }
}

/// What of `/proc/<pid>/stat` matters here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stat {
    pub(crate) state: u8,
    pub(crate) parent: i32,
    pub(crate) start_ticks: u64,
}

impl Stat {
    pub(crate) fn read(pid: i32) -> Option<Self> {
        Self::parse(&fs::read(format!("/proc/{pid}/stat")).ok()?)
    }

    /// The second field is the program's own choice and may hold anything, parentheses and spaces included:
    /// the fields that count start after its last parenthesis.
    fn parse(stat: &[u8]) -> Option<Self> {
        let name_end = stat.iter().rposition(|byte| *byte == b')')?;
        let fields = std::str::from_utf8(&stat[name_end + 1..]).ok()?;
        let mut fields = fields.split_ascii_whitespace();
        let state = *fields.next()?.as_bytes().first()?;
        let parent = fields.next()?.parse().ok()?;
        let start_ticks = fields.nth(17)?.parse().ok()?;
        Some(Self { state, parent, start_ticks })
    }

    /// It only waits to be noticed.
    pub(crate) fn ended(self) -> bool {
        matches!(self.state, b'Z' | b'X')
    }

    pub(crate) fn stopped(self) -> bool {
        matches!(self.state, b'T' | b't')
    }

    /// It is in the kernel and takes no signal there, other than its end.
    pub(crate) fn uninterruptible(self) -> bool {
        self.state == b'D'
    }

    /// Each thread of a process. A process that has ended has none.
    pub(crate) fn threads(pid: i32) -> Vec<Self> {
        let Ok(tasks) = pids_in(Path::new(&format!("/proc/{pid}/task"))) else { return Vec::new() };
        let read = |thread| Self::parse(&fs::read(format!("/proc/{pid}/task/{thread}/stat")).ok()?);
        tasks.into_iter().filter_map(read).collect()
    }
}

/// Whether the process that started then has ended. What cannot be read has not.
pub(crate) fn has_ended(pid: i32, start_ticks: u64) -> bool {
    match fs::read(format!("/proc/{pid}/stat")) {
        Ok(stat) => Stat::parse(&stat).is_some_and(|stat| stat.start_ticks != start_ticks || stat.ended()),
        // The one is a directory that is not there, the other a process that ended while it was read.
        Err(error) => error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ESRCH),
    }
}

/// The ids of all processes that this one can see.
pub(crate) fn pids() -> io::Result<Vec<i32>> {
    pids_in(Path::new("/proc"))
}

fn pids_in(proc: &Path) -> io::Result<Vec<i32>> {
    let names = fs::read_dir(proc)?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    Ok(names.filter_map(|name| name.parse().ok()).collect())
}

/// What a process is to a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// Prepares one on the host side. It ends by itself.
    Launcher,
    /// The first process of one.
    Init,
}

/// Whose launcher or init a process is. A process inside may write what it likes into its own command line,
/// so that alone is not believed: an init is the first process of a namespace below, and nothing inside can
/// make another namespace; a launcher is in no namespace below. (Where there are no namespaces, the init is
/// in none either, and the payload's word has to be taken: that is a part of what is lost there.)
pub(crate) fn part_of(pid: i32) -> Option<(Name, Part)> {
    let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let mut words = line.split(|byte| *byte == 0).skip(1);
    if words.next()? != SUBCOMMAND.as_bytes() {
        return None;
    }
    let bare_init = words.next()? == b"init";
    let name: Name = std::str::from_utf8(words.next()?).ok()?.parse().ok()?;
    match &ids(pid)?[..] {
        [_] => Some((name, if bare_init { Part::Init } else { Part::Launcher })),
        [_, 1] => Some((name, Part::Init)),
        [..] => None,
    }
}

/// The variable that marks every process of a sandbox without namespaces. The native agent passes it on to the
/// commands that it runs; what drops it is looked for in [`strays`](crate::strays).
pub(crate) const MARK: &str = "HANDOFF_SANDBOX";

/// Whose mark a process carries in the environment that it was executed with.
pub(crate) fn marked(pid: i32) -> Option<Name> {
    let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
    let mut variables = environment.split(|byte| *byte == 0);
    let value = variables.find_map(|variable| variable.strip_prefix(MARK.as_bytes())?.strip_prefix(b"="))?;
    std::str::from_utf8(value).ok()?.parse().ok()
}

/// The ids of a process in each pid namespace, from this one's down to its own.
fn ids(pid: i32) -> Option<Vec<i32>> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    line.split_ascii_whitespace().map(|id| id.parse().ok()).collect()
}

/// One line of a mountinfo file, as far as it matters here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mount {
    pub(crate) root: String,
    pub(crate) target: String,
    pub(crate) kind: String,
    pub(crate) source: String,
    pub(crate) super_options: String,
}

/// The mounts that a process sees; `"self"` for this one.
pub(crate) fn mounts(pid: &str) -> io::Result<Vec<Mount>> {
    let text = fs::read_to_string(format!("/proc/{pid}/mountinfo"))?;
    Ok(text.lines().filter_map(parse_mount).collect())
}

fn parse_mount(line: &str) -> Option<Mount> {
    let (mount, filesystem) = line.split_once(" - ")?;
    let mut mount = mount.split(' ').skip(3);
    let mut filesystem = filesystem.split(' ');
    Some(Mount {
        root: unescape(mount.next()?),
        target: unescape(mount.next()?),
        kind: filesystem.next()?.to_owned(),
        source: unescape(filesystem.next()?),
        super_options: filesystem.next()?.to_owned(),
    })
}

/// Undoes the octal escapes of space, tab, line end and backslash (proc(5)).
fn unescape(text: &str) -> String {
    let escapes = [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")];
    escapes.iter().fold(text.to_owned(), |text, (escape, plain)| text.replace(escape, plain))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_name_cannot_shift_the_fields() {
        let stat = b"7 (a) R 1 (b) S 1 7 7 0 -1 4194304 1 0 0 0 0 0 0 0 20 0 1 0 4242 1 1";
        assert_eq!(Stat::parse(stat), Some(Stat { state: b'S', parent: 1, start_ticks: 4242 }));
        assert_eq!(Stat::parse(b"7 (a"), None);
    }

    #[test]
    fn a_process_is_itself_and_not_another_one_of_its_id() {
        let me = i32::try_from(std::process::id()).expect("ids are small");
        let process = Process::open_now(me).expect("this process runs");
        assert!(!process.ends_within(Duration::ZERO));
        assert!(Process::open(me, process.start_ticks + 1).is_err());
        assert_eq!(part_of(me), None);
    }

    #[test]
    fn mount_lines_are_read_with_their_escapes() {
        let line = r"36 35 98:0 /mnt1 /mnt\0402 rw,noatime master:1 - ext3 /dev/root rw,errors=continue";
        let mount = parse_mount(line).expect("a mount line");
        assert_eq!((mount.root.as_str(), mount.target.as_str()), ("/mnt1", "/mnt 2"));
        assert_eq!((mount.kind.as_str(), mount.source.as_str()), ("ext3", "/dev/root"));
        assert!(mounts("self").expect("readable").iter().any(|mount| mount.target == "/proc"));
    }
}
