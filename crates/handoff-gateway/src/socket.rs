//! Unix sockets by path, of any length: a socket's address has 108 bytes (unix(7)), a destination's folder can
//! have more, so the folder is opened and the socket is named through it.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use tokio::net::{UnixListener, UnixStream};

fn folder(path: &Path) -> io::Result<(OwnedFd, PathBuf)> {
    let invalid = || io::Error::from(io::ErrorKind::InvalidInput);
    let (parent, name) = (path.parent().ok_or_else(invalid)?, path.file_name().ok_or_else(invalid)?);
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = rustix::fs::openat(CWD, parent, flags, Mode::empty())?;
    let through = PathBuf::from(format!("/proc/self/fd/{}", folder.as_raw_fd())).join(name);
    Ok((folder, through))
}

/// Listens at `path`, with these permission bits. A socket that an earlier process left there is replaced in
/// one step, so that whoever connects finds one of the two.
pub(crate) fn listen(path: &Path, mode: u32) -> io::Result<UnixListener> {
    let (folder, through) = folder(path)?;
    let fresh = through.with_extension("new");
    let fresh_name = fresh.file_name().expect("made from a file name").to_owned();
    let name = through.file_name().expect("made from a file name").to_owned();
    match rustix::fs::unlinkat(&folder, &fresh_name, AtFlags::empty()) {
        Ok(()) | Err(rustix::io::Errno::NOENT) => {}
        Err(error) => return Err(error.into()),
    }
    let listener = UnixListener::bind(&fresh)?;
    rustix::fs::chmodat(&folder, &fresh_name, Mode::from_raw_mode(mode), AtFlags::empty())?;
    rustix::fs::renameat(&folder, &fresh_name, &folder, &name)?;
    Ok(listener)
}

/// Connects to the socket at `path`.
pub(crate) async fn connect(path: &Path) -> io::Result<UnixStream> {
    let (_folder, through) = folder(path)?;
    UnixStream::connect(through).await
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[tokio::test]
    async fn a_deep_folder_works_and_a_stale_socket_is_replaced() {
        let folder = tempfile::tempdir().expect("a folder");
        let deep = folder.path().join("x".repeat(120));
        std::fs::create_dir(&deep).expect("a folder");
        let path = deep.join("gateway.sock");
        let stale = listen(&path, 0o600).expect("a socket");
        drop(stale);
        let listener = listen(&path, 0o600).expect("the stale one is replaced");
        let connected = connect(&path).await.expect("a connection");
        listener.accept().await.expect("the same one");
        drop(connected);
        let mode = std::fs::metadata(&path).expect("the socket").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(std::fs::read_dir(&deep).expect("the folder").count(), 1);
    }
}
