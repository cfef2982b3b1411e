//! Tries to get out, one way after another, and writes what came of each to `/workspace/attempts.json`: the
//! word `done`, or the error.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::net::TcpStream;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::time::Duration;

/// Arguments: the address of a listener on the host, the name of an abstract socket there, and the path of a
/// file that only the host has.
pub(crate) fn run(arguments: &[&str]) -> i32 {
    let [tcp, abstract_name, secret] = arguments else { return 2 };
    let mut outcomes = BTreeMap::new();
    let mut note = |what: &str, outcome: io::Result<()>| {
        let said = outcome.map_or_else(|error| said(&error), |()| "done".to_owned());
        outcomes.insert(what.to_owned(), said);
    };
    note("connect tcp", connect(tcp));
    note("connect abstract", connect_abstract(abstract_name));
    note("read secret", fs::read(secret).map(drop));
    for path in [
        "/x",
        "/usr/x",
        "/etc/passwd",
        "/handoff/bin/handoff",
        "/handoff/door/x",
        "/proc/sys/kernel/core_pattern",
    ] {
        note(&format!("write {path}"), fs::OpenOptions::new().append(true).create(true).open(path).map(drop));
    }
    for path in ["/workspace/x", "/handoff/state/x", "/tmp/x", "/dev/shm/x", "/dev/null"] {
        note(&format!("use {path}"), fs::write(path, "x").and_then(|()| fs::read(path).map(drop)));
    }
    for path in ["/proc/1/mem", "/proc/1/environ", "/proc/1/fd/10", "/proc/kcore"] {
        note(&format!("read {path}"), read_some(path));
    }
    note("list /proc/1/fd", fs::read_dir("/proc/1/fd").map(drop));
    for (what, outcome) in id_giving_files() {
        note(what, outcome);
    }
    for (what, outcome) in calls() {
        note(what, outcome);
    }
    for (what, outcome) in against(1) {
        note(&format!("{what} of the init"), outcome);
    }
    for (what, outcome) in own() {
        note(what, outcome);
    }
    for file in
        ["oom_score_adj", "mem", "clear_refs", "autogroup", "timerslack_ns", "sched", "coredump_filter"]
    {
        let path = format!("/proc/1/{file}");
        note(&format!("write {path}"), fs::OpenOptions::new().write(true).open(path).map(drop));
    }
    let text = serde_json::to_vec(&outcomes).expect("plain data");
    let written = fs::write("/workspace/attempts.json.new", text);
    let placed =
        written.and_then(|()| fs::rename("/workspace/attempts.json.new", "/workspace/attempts.json"));
    i32::from(placed.is_err())
}

/// The same against the process that started this one, without namespaces: into `workspace/against.json`.
pub(crate) fn against_parent() -> i32 {
    // SAFETY: getppid takes nothing and cannot fail.
    let parent = i64::from(unsafe { libc::getppid() });
    let outcomes: BTreeMap<&str, String> = against(parent)
        .into_iter()
        .map(|(what, outcome)| (what, outcome.map_or_else(|error| said(&error), |()| "done".to_owned())))
        .collect();
    let text = serde_json::to_vec(&outcomes).expect("plain data");
    let written = fs::write("workspace/against.json.new", text);
    i32::from(
        written.and_then(|()| fs::rename("workspace/against.json.new", "workspace/against.json")).is_err(),
    )
}

fn said(error: &io::Error) -> String {
    error.raw_os_error().map_or_else(|| error.to_string(), |number| name(number).to_owned())
}

fn name(number: i32) -> &'static str {
    match number {
        libc::EPERM => "EPERM",
        libc::EACCES => "EACCES",
        libc::ENOSYS => "ENOSYS",
        libc::EROFS => "EROFS",
        libc::ENOENT => "ENOENT",
        libc::EINVAL => "EINVAL",
        libc::ECONNREFUSED => "ECONNREFUSED",
        libc::ENETUNREACH => "ENETUNREACH",
        libc::ENOTTY => "ENOTTY",
        _ => "another error",
    }
}

fn connect(address: &str) -> io::Result<()> {
    let address = address.parse().map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
    TcpStream::connect_timeout(&address, Duration::from_secs(2)).map(drop)
}

fn connect_abstract(name: &str) -> io::Result<()> {
    UnixStream::connect_addr(&SocketAddr::from_abstract_name(name)?).map(drop)
}

fn read_some(path: &str) -> io::Result<()> {
    use std::io::Read;
    let read = fs::File::open(path)?.read(&mut [0; 16])?;
    if read > 0 { Ok(()) } else { Err(io::Error::other("empty")) }
}

/// Files that would lend their owner's id to whoever runs them.
fn id_giving_files() -> Vec<(&'static str, io::Result<()>)> {
    use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
    let chmod = |path: &str, mode| {
        fs::write(path, "x")?;
        fs::set_permissions(path, fs::Permissions::from_mode(mode))
    };
    let create = |path: &str, mode| {
        fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(path).map(drop)
    };
    let by_descriptor = fs::File::create("/workspace/id-fd")
        .and_then(|file| file.set_permissions(fs::Permissions::from_mode(0o6755)));
    vec![
        ("chmod set-user-id", chmod("/workspace/id-user", 0o4755)),
        ("chmod set-group-id", chmod("/workspace/id-group", 0o2755)),
        ("fchmod set-user-id", by_descriptor),
        ("open set-user-id", create("/workspace/id-open", 0o4755)),
        ("use chmod", chmod("/workspace/plain", 0o1755)),
        ("use open", create("/workspace/plain-open", 0o755)),
    ]
}

/// System calls that the filter, or the want of capabilities, has to refuse.
fn calls() -> Vec<(&'static str, io::Result<()>)> {
    let namespaces = [
        libc::CLONE_NEWUSER,
        libc::CLONE_NEWNS,
        libc::CLONE_NEWPID,
        libc::CLONE_NEWNET,
        libc::CLONE_NEWIPC,
        libc::CLONE_NEWUTS,
        libc::CLONE_NEWCGROUP,
    ];
    let unshared =
        namespaces.iter().map(|flag| call(libc::SYS_unshare, [i64::from(*flag), 0, 0])).find(Result::is_ok);
    let clone_user = i64::from(libc::CLONE_NEWUSER | libc::SIGCHLD);
    vec![
        (
            "unshare",
            unshared.unwrap_or_else(|| call(libc::SYS_unshare, [i64::from(libc::CLONE_NEWUSER), 0, 0])),
        ),
        ("clone", call(libc::SYS_clone, [clone_user, 0, 0])),
        ("clone3", call(libc::SYS_clone3, [0, 0, 0])),
        ("setns", call(libc::SYS_setns, [0, 0, 0])),
        ("mount", call(libc::SYS_mount, [0, 0, 0])),
        ("umount2", call(libc::SYS_umount2, [0, 0, 0])),
        ("pivot_root", call(libc::SYS_pivot_root, [0, 0, 0])),
        ("chroot", call(libc::SYS_chroot, [0, 0, 0])),
        ("fsopen", call(libc::SYS_fsopen, [0, 0, 0])),
        ("open_tree", call(libc::SYS_open_tree, [0, 0, 0])),
        ("ptrace", call(libc::SYS_ptrace, [0, 0, 0])),
        ("process_vm_readv", call(libc::SYS_process_vm_readv, [1, 0, 0])),
        ("bpf", call(libc::SYS_bpf, [0, 0, 0])),
        ("perf_event_open", call(libc::SYS_perf_event_open, [0, 0, 0])),
        ("keyctl", call(libc::SYS_keyctl, [0, 0, 0])),
        ("add_key", call(libc::SYS_add_key, [0, 0, 0])),
        ("kexec_load", call(libc::SYS_kexec_load, [0, 0, 0])),
        ("init_module", call(libc::SYS_init_module, [0, 0, 0])),
        ("finit_module", call(libc::SYS_finit_module, [0, 0, 0])),
        ("open_by_handle_at", call(libc::SYS_open_by_handle_at, [0, 0, 0])),
        ("userfaultfd", call(libc::SYS_userfaultfd, [0, 0, 0])),
        ("io_uring_setup", call(libc::SYS_io_uring_setup, [1, 0, 0])),
        ("ioctl TIOCSTI", call(libc::SYS_ioctl, [0, 0x5412, 0])),
        // The kernel reads 32 bits of the request: the others must not hide it.
        ("ioctl TIOCSTI, high bits", call(libc::SYS_ioctl, [0, 0x1_0000_5412, 0])),
        ("ioctl TIOCLINUX", call(libc::SYS_ioctl, [0, 0x541C, 0])),
        ("socket AF_VSOCK", call(libc::SYS_socket, [40, 1, 0])),
        ("socket AF_PACKET", call(libc::SYS_socket, [17, 3, 0])),
        ("socket AF_ALG", call(libc::SYS_socket, [38, 5, 0])),
        ("setuid", call(libc::SYS_setuid, [0, 0, 0])),
        ("kill init", call(libc::SYS_kill, [1, i64::from(libc::SIGKILL), 0])),
        #[cfg(target_arch = "x86_64")]
        ("x32 getpid", call(0x4000_0000 | libc::SYS_getpid, [0, 0, 0])),
    ]
}

/// What the same user may do to another process without a filter: each of it would make an init deaf or late.
fn against(pid: i64) -> Vec<(&'static str, io::Result<()>)> {
    let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    let none = (&raw const none).addr().cast_signed() as i64;
    let idle = libc::sched_param { sched_priority: 0 };
    let idle = (&raw const idle).addr().cast_signed() as i64;
    let descriptors = i64::from(libc::RLIMIT_NOFILE);
    vec![
        ("prlimit", call(libc::SYS_prlimit64, [pid, descriptors, none])),
        ("prlimit, high bits", call(libc::SYS_prlimit64, [pid | 1 << 32, descriptors, none])),
        ("sched_setscheduler", call(libc::SYS_sched_setscheduler, [pid, i64::from(libc::SCHED_IDLE), idle])),
        ("sched_setparam", call(libc::SYS_sched_setparam, [pid, idle, 0])),
        ("sched_setattr", call(libc::SYS_sched_setattr, [pid, 0, 0])),
        ("sched_setaffinity", call(libc::SYS_sched_setaffinity, [pid, 0, 0])),
        ("setpriority", call(libc::SYS_setpriority, [i64::from(libc::PRIO_PROCESS), pid, 19])),
        ("setpriority group", call(libc::SYS_setpriority, [i64::from(libc::PRIO_PGRP), pid, 19])),
        ("setpriority user", call(libc::SYS_setpriority, [i64::from(libc::PRIO_USER), 0, 19])),
        ("ioprio_set", call(libc::SYS_ioprio_set, [1, pid, 3 << 13])),
        ("ioprio_set group", call(libc::SYS_ioprio_set, [2, pid, 3 << 13])),
        ("ioprio_set user", call(libc::SYS_ioprio_set, [3, 0, 3 << 13])),
        ("process_vm_writev", call(libc::SYS_process_vm_writev, [pid, 0, 0])),
        ("kcmp", call(libc::SYS_kcmp, [pid, pid, 0])),
        ("move_pages", call(libc::SYS_move_pages, [pid, 0, 0])),
        ("migrate_pages", call(libc::SYS_migrate_pages, [pid, 0, 0])),
        ("pidfd_getfd", call(libc::SYS_pidfd_getfd, [0, 0, 0])),
        ("process_madvise", call(libc::SYS_process_madvise, [0, 0, 0])),
        ("process_mrelease", call(libc::SYS_process_mrelease, [0, 0, 0])),
        ("ptrace seize", call(libc::SYS_ptrace, [0x4206, pid, 0])),
    ]
}

/// The same for itself, as C libraries and schedulers of threads do it: by 0 and by the thread's own id.
fn own() -> Vec<(&'static str, io::Result<()>)> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: getrlimit writes a limit, which lives until the call returns.
    let read = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    let limit = (&raw const limit).addr().cast_signed() as i64;
    let all = u64::MAX;
    let all = (&raw const all).addr().cast_signed() as i64;
    let me = i64::from(std::process::id());
    let descriptors = i64::from(libc::RLIMIT_NOFILE);
    vec![
        ("use getrlimit", if read == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }),
        ("use prlimit", call(libc::SYS_prlimit64, [0, descriptors, limit])),
        ("use prlimit by id", call(libc::SYS_prlimit64, [me, descriptors, limit])),
        ("use sched_setaffinity", call(libc::SYS_sched_setaffinity, [0, 8, all])),
        ("use sched_setaffinity by id", call(libc::SYS_sched_setaffinity, [me, 8, all])),
        ("use setpriority", call(libc::SYS_setpriority, [i64::from(libc::PRIO_PROCESS), 0, 5])),
    ]
}

fn call(number: libc::c_long, arguments: [i64; 3]) -> io::Result<()> {
    let [first, second, third] = arguments;
    // SAFETY: every call above gets null or nonsense for pointers, which the kernel refuses by itself where
    // the filter does not, or the address of something that lives in the caller. A clone that succeeds returns twice on a copy of this stack; the copy ends here.
    let done = unsafe { libc::syscall(number, first, second, third, 0, 0, 0) };
    match done {
        -1 => Err(io::Error::last_os_error()),
        0 if number == libc::SYS_clone => std::process::exit(0),
        _ => Ok(()),
    }
}
