//! The system calls that no library here wraps. All `unsafe` of the crate stands in this file, except for
//! what a new process does before it becomes another program.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use rustix::process::Pid;

/// Which side of a [`fork`] this is.
pub(crate) enum Fork {
    /// The new process.
    Child,
    /// The one that made it.
    Parent(Pid),
}

/// A new process that begins in new namespaces of these kinds (`CLONE_NEW*`), or in none.
///
/// # Safety
/// The calling process has one thread: the child has a copy of this thread alone, and a lock that another
/// thread held would stay locked in it for ever.
pub(crate) unsafe fn fork(namespaces: libc::c_int) -> io::Result<Fork> {
    let flags = libc::c_ulong::try_from(namespaces | libc::SIGCHLD).expect("clone's flags are positive");
    let none = 0 as libc::c_ulong;
    // SAFETY: without CLONE_VM and with a null stack, clone behaves as fork: the child runs on a copy of
    // this stack. The caller vouches for there being no other thread.
    let made = unsafe { libc::syscall(libc::SYS_clone, flags, none, none, none, none) };
    match made {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(Fork::Child),
        pid => {
            let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
            Ok(Fork::Parent(pid.expect("clone returns a process id")))
        }
    }
}

/// Leaves the process at once, without running anything that was registered for its end: for the child of a
/// [`fork`], whose copies of the parent's buffers are not its own to flush.
pub(crate) fn exit_now(code: i32) -> ! {
    // SAFETY: _exit takes no pointer and does not return.
    unsafe { libc::_exit(code) }
}

/// Adds attributes to a whole tree of mounts: `MOUNT_ATTR_*`, and an id mapping if there is one. What the
/// mounts already have stays.
pub(crate) fn mount_setattr(
    mount: impl AsFd,
    recursive: bool,
    attributes: u64,
    idmap: Option<&OwnedFd>,
) -> io::Result<()> {
    let mut attr_set = attributes;
    if idmap.is_some() {
        attr_set |= libc::MOUNT_ATTR_IDMAP;
    }
    let userns = idmap.map_or(0, |fd| u64::try_from(fd.as_raw_fd()).expect("an open descriptor"));
    let attr = libc::mount_attr { attr_set, attr_clr: 0, propagation: 0, userns_fd: userns };
    let flags = libc::AT_EMPTY_PATH | if recursive { libc::AT_RECURSIVE } else { 0 };
    // SAFETY: the path is a valid C string, `attr` lives until the call returns and its size is given, and
    // both descriptors are borrowed for the length of the call.
    let done = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_fd().as_raw_fd(),
            c"".as_ptr(),
            flags,
            &raw const attr,
            size_of::<libc::mount_attr>(),
        )
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Blocks SIGCHLD and gives a descriptor that is readable when a child has ended.
pub(crate) fn child_signals() -> io::Result<OwnedFd> {
    // SAFETY: an all-zero sigset_t is a valid place for sigemptyset to write to; the other calls read the
    // set that it made. The descriptor that signalfd returns is new and owned by nobody else.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGCHLD);
        if libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) != 0 {
            return Err(io::Error::last_os_error());
        }
        match libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) {
            -1 => Err(io::Error::last_os_error()),
            fd => Ok(OwnedFd::from_raw_fd(fd)),
        }
    }
}

/// Gives every signal its default action and blocks none. Both are inherited through execution, and a
/// standard library resets neither: a payload that is born with SIGCHLD blocked waits for ever.
pub(crate) fn reset_signals() {
    for signal in 1..=libc::SIGRTMAX() {
        // SAFETY: SIG_DFL installs no handler. Those that cannot be set (SIGKILL, SIGSTOP, the C library's
        // own) are refused, and need no resetting.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    // SAFETY: an all-zero sigset_t is a valid place for sigemptyset to write to, and sigprocmask reads it.
    unsafe {
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
    }
}

/// Closes every descriptor but the three standard ones: whatever the node inherited from its own parents
/// without knowing must not reach the payload.
///
/// # Safety
/// Nothing in this process owns a descriptor above 2.
pub(crate) unsafe fn close_inherited() -> io::Result<()> {
    let (first, last) = (3 as libc::c_uint, libc::c_uint::MAX);
    // SAFETY: close_range takes numbers; the caller vouches for there being no owners.
    let done = unsafe { libc::syscall(libc::SYS_close_range, first, last, 0 as libc::c_uint) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Sends a signal to everything in this pid namespace but the caller. Nothing being there is no error.
pub(crate) fn signal_all_others(signal: rustix::process::Signal) -> io::Result<()> {
    // SAFETY: kill takes two numbers.
    let done = unsafe { libc::kill(-1, signal.as_raw()) };
    if done == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    if error.raw_os_error() == Some(libc::ESRCH) { Ok(()) } else { Err(error) }
}

/// Brings the loopback device of this network namespace up. It leads nowhere but back inside.
pub(crate) fn loopback_up() -> io::Result<()> {
    let socket = rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::DGRAM, None)?;
    // SAFETY: an all-zero ifreq is valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(b"lo") {
        *to = from.cast_signed();
    }
    let up = libc::c_short::try_from(libc::IFF_UP | libc::IFF_RUNNING).expect("two low bits");
    request.ifr_ifru.ifru_flags = up;
    // SAFETY: SIOCSIFFLAGS reads an ifreq, which lives until the call returns.
    let done = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Takes a descriptor that the program which started this one left open at a number it told.
pub(crate) fn inherited(number: i32) -> io::Result<OwnedFd> {
    // SAFETY: borrowed only to ask whether it is open; the number was given to this process for its own.
    let open = unsafe { std::os::fd::BorrowedFd::borrow_raw(number) };
    rustix::io::fcntl_setfd(open, rustix::io::FdFlags::CLOEXEC)?;
    // SAFETY: it is open, and the one who passed it on passed its ownership with it: each number is taken
    // once, from a plan that names each once.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Puts a copy of an open descriptor at a number of our choice, open for the next program too. Whatever was
/// there is closed.
pub(crate) fn place(fd: i32, number: i32) -> io::Result<()> {
    // SAFETY: dup2 takes two numbers. What it closes is one of the low numbers that the callers set aside
    // for this: no owner of it is left in this process.
    let done = unsafe { libc::dup2(fd, number) };
    if done == number { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Becomes another program, with these arguments and no environment.
pub(crate) fn exec(program: &CStr, arguments: &[&CStr]) -> io::Error {
    let mut pointers: Vec<*const libc::c_char> = arguments.iter().map(|text| text.as_ptr()).collect();
    pointers.push(std::ptr::null());
    let environment = [std::ptr::null()];
    // SAFETY: both arrays end with a null pointer and point to C strings that outlive the call.
    unsafe { libc::execve(program.as_ptr(), pointers.as_ptr(), environment.as_ptr()) };
    io::Error::last_os_error()
}
