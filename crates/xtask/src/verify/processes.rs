//! Which processes a step has started, and stopping them.

use std::collections::BTreeMap;

use rustix::process::{Pid, Signal, kill_process};

/// The process and everything that descends from it, as far as it has not been adopted by another.
pub(super) fn family(pid: u32) -> Vec<u32> {
    let parents = parents();
    let mut family = vec![pid];
    let mut next = 0;
    while let Some(parent) = family.get(next).copied() {
        family.extend(parents.iter().filter(|(_, found)| **found == parent).map(|(child, _)| *child));
        next += 1;
    }
    family
}

/// Parent by process, from `/proc/PID/stat`: the second field after the name, which ends in the last `)`.
fn parents() -> BTreeMap<u32, u32> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return BTreeMap::new() };
    let parent = |entry: std::fs::DirEntry| {
        let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
        let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
        let (_, rest) = stat.rsplit_once(')')?;
        Some((pid, rest.split_whitespace().nth(1)?.parse().ok()?))
    };
    entries.flatten().filter_map(parent).collect()
}

/// Asks a process to end. One that is gone has ended.
pub(super) fn ask_to_end(pid: u32) {
    send(pid, Signal::TERM);
}

/// Ends processes that did not end when asked.
pub(super) fn end(pids: &[u32]) {
    pids.iter().for_each(|pid| send(*pid, Signal::KILL));
}

fn send(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        // The only error that can occur is that it is gone already.
        let _gone = kill_process(pid, signal);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_family_is_found_and_ended() {
        let mut shell = Command::new("sh")
            .args(["-c", "sleep 600 & echo $!; wait"])
            .stdout(Stdio::piped())
            .spawn()
            .expect("a shell");
        let mut output = shell.stdout.take().expect("piped");
        let mut line = Vec::new();
        while line.last() != Some(&b'\n') {
            let mut byte = [0];
            output.read_exact(&mut byte).expect("a line");
            line.push(byte[0]);
        }
        let child: u32 = String::from_utf8_lossy(&line).trim().parse().expect("a process id");
        let family = family(shell.id());
        assert!(family.contains(&child), "{family:?} without {child}");
        end(&family);
        assert!(!shell.wait().expect("a child").success());
        // The pipe closes when the last holder is gone.
        output.read_to_end(&mut line).expect("the end");
    }
}
