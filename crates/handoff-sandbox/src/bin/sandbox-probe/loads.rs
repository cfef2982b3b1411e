//! Payloads that use up what a tier limits.

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Touches so many mebibytes and says so, if it lives to.
pub(crate) fn hold(mebibytes: u64) -> i32 {
    let mut held = Vec::new();
    for _ in 0..mebibytes {
        let mut block = vec![0u8; 1 << 20];
        for page in block.chunks_mut(4096) {
            page[0] = 1;
        }
        held.push(std::hint::black_box(block));
    }
    let _ = writeln!(std::io::stdout(), "held {}", held.len());
    0
}

/// Starts processes until it may not, and says how many there were.
pub(crate) fn fork(most: u64) -> i32 {
    let mut children = Vec::new();
    for _ in 0..most {
        let child = Command::new("/bin/sleep").arg("600").stdin(Stdio::null()).spawn();
        let Ok(child) = child else { break };
        children.push(child);
    }
    let _ = writeln!(std::io::stdout(), "forked {}", children.len());
    for mut child in children {
        let _ = child.kill();
        let _ = child.wait();
    }
    0
}

/// Computes for so many milliseconds of the wall clock.
pub(crate) fn spin(ms: u64) -> i32 {
    let until = Instant::now() + Duration::from_millis(ms);
    let mut turns = 0u64;
    while Instant::now() < until {
        turns = std::hint::black_box(turns + 1);
    }
    0
}

/// Waits in the kernel, as a parent does between its child's beginning and its becoming another program, for
/// a child that takes for ever. Shells do this for every command, for a moment.
pub(crate) fn vfork() -> i32 {
    let flags = i64::from(libc::CLONE_VFORK | libc::SIGCHLD);
    // SAFETY: without CLONE_VM the child runs on a copy of this stack, as after fork; there is one thread.
    let made = unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) };
    if made == 0 {
        let _ = std::fs::write("/workspace/here", "");
        loop {
            std::thread::park();
        }
    }
    1
}
