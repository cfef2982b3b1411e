//! The descriptor that the init leaves open for the agent.

use std::io;
use std::os::fd::{FromRawFd as _, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

/// The agent's end of its control connection, wherever it runs.
const NUMBER: RawFd = 3;

static TAKEN: AtomicBool = AtomicBool::new(false);

/// The agent's end of its control connection: descriptor 3, once per process.
///
/// # Errors
/// Where there is no such descriptor, or it was taken before.
pub fn control_connection() -> io::Result<OwnedFd> {
    if TAKEN.swap(true, Ordering::SeqCst) {
        return Err(io::Error::other("the control connection was taken before"));
    }
    // SAFETY: the init left descriptor 3 open for this process, nothing else here knows the number, and the
    // flag above lets it be owned once. Whether it is open at all is looked at before anything uses it.
    let descriptor = unsafe { OwnedFd::from_raw_fd(NUMBER) };
    match rustix::io::fcntl_getfd(&descriptor) {
        Ok(flags) => {
            rustix::io::fcntl_setfd(&descriptor, flags | rustix::io::FdFlags::CLOEXEC)?;
            Ok(descriptor)
        }
        Err(error) => {
            // Not open, so there is nothing to close.
            std::mem::forget(descriptor);
            Err(error.into())
        }
    }
}
