//! Where the state socket is made, and taken away again.
//!
//! Between `bind` and `chmod` a socket has the mode that the umask leaves, so it is made in a new directory of
//! mode 0700 and moved into place when its own mode is 0600: nobody else can reach it at any moment.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use tokio::net::{UnixListener, UnixStream};

use crate::Peer;

/// Bytes of the longest path that a Unix socket can have on Linux (`sun_path` without its terminator).
const PATH_BYTES: usize = 107;

/// Why the state socket cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// Another process serves it.
    #[error("another control plane serves {}", path.display())]
    InUse {
        /// The socket.
        path: PathBuf,
    },
    /// The path does not fit into a socket's address.
    #[error("{} is too long for a socket: at most {PATH_BYTES} bytes, with room for a temporary name", path.display())]
    PathTooLong {
        /// The socket.
        path: PathBuf,
    },
    /// The path names no file in a directory, or something that is no socket is in its place.
    #[error("{} is not a place for a socket", path.display())]
    NotAPlace {
        /// The socket.
        path: PathBuf,
    },
    /// The operating system refused.
    #[error("{}: {source}", path.display())]
    Io {
        /// The socket.
        path: PathBuf,
        /// What it said.
        source: io::Error,
    },
}

/// The state socket.
#[derive(Debug)]
pub(crate) struct StateSocket {
    listener: UnixListener,
    path: PathBuf,
    /// Device and inode: whether what is at the path is still this one.
    identity: (u64, u64),
    own_uid: u32,
}

impl StateSocket {
    /// Makes the socket, taking the place of one that nobody serves.
    pub(crate) async fn bind(path: &Path) -> Result<Self, SocketError> {
        let failed = |source| SocketError::Io { path: path.to_owned(), source };
        let not_a_place = || SocketError::NotAPlace { path: path.to_owned() };
        let directory =
            path.parent().filter(|parent| !parent.as_os_str().is_empty()).ok_or_else(not_a_place)?;
        DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(failed)?;
        check_vacant(path).await?;
        let temporary = Temporary::make(directory).map_err(failed)?;
        let made = temporary.path.join("s");
        if made.as_os_str().len() > PATH_BYTES || path.as_os_str().len() > PATH_BYTES {
            return Err(SocketError::PathTooLong { path: path.to_owned() });
        }
        let listener = UnixListener::bind(&made).map_err(failed)?;
        fs::set_permissions(&made, Permissions::from_mode(0o600)).map_err(failed)?;
        let found = fs::symlink_metadata(&made).map_err(failed)?;
        fs::rename(&made, path).map_err(failed)?;
        let own_uid = rustix::process::geteuid().as_raw();
        Ok(Self { listener, path: path.to_owned(), identity: (found.dev(), found.ino()), own_uid })
    }

    /// The next connection, and who is at its other end.
    pub(crate) async fn accept(&self) -> io::Result<(UnixStream, Peer)> {
        let (stream, _) = self.listener.accept().await?;
        let uid = stream.peer_cred()?.uid();
        Ok((stream, peer(uid, self.own_uid)))
    }
}

impl Drop for StateSocket {
    fn drop(&mut self) {
        let ours =
            fs::symlink_metadata(&self.path).is_ok_and(|found| (found.dev(), found.ino()) == self.identity);
        if ours && let Err(error) = fs::remove_file(&self.path) {
            tracing::warn!(%error, path = %self.path.display(), "the socket could not be removed");
        }
    }
}

/// Root may do everything on this machine anyway.
fn peer(uid: u32, own_uid: u32) -> Peer {
    if uid == own_uid || uid == 0 { Peer::Owner } else { Peer::Stranger { uid } }
}

/// Whether the place is free, or holds a socket that nobody serves any more.
async fn check_vacant(path: &Path) -> Result<(), SocketError> {
    use std::os::unix::fs::FileTypeExt as _;
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(source) => return Err(SocketError::Io { path: path.to_owned(), source }),
        Ok(found) if !found.file_type().is_socket() => {
            return Err(SocketError::NotAPlace { path: path.to_owned() });
        }
        Ok(_) => {}
    }
    match UnixStream::connect(path).await {
        Ok(_) => Err(SocketError::InUse { path: path.to_owned() }),
        Err(_) => Ok(()),
    }
}

/// A private directory that goes away.
struct Temporary {
    path: PathBuf,
}

impl Temporary {
    fn make(beside: &Path) -> io::Result<Self> {
        let random = uuid::Uuid::new_v4().simple().to_string();
        let path = beside.join(format!(".s{}", &random[..8]));
        DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Self { path })
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // What is left in it is a socket that did not get into place.
        let _ = fs::remove_dir_all(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// H-101
    #[tokio::test]
    async fn the_socket_is_private_from_the_start_and_goes_with_its_owner() {
        let home = tempfile::tempdir().expect("a directory");
        let path = home.path().join("state/handoff.sock");
        let socket = StateSocket::bind(&path).await.expect("binds");
        let mode = |path: &Path| fs::metadata(path).expect("there").mode() & 0o777;
        assert_eq!((mode(&path), mode(path.parent().expect("a parent"))), (0o600, 0o700));
        assert_eq!(fs::read_dir(path.parent().expect("a parent")).expect("there").count(), 1);
        let connected = UnixStream::connect(&path);
        let (connected, accepted) = tokio::join!(connected, socket.accept());
        assert_eq!(accepted.expect("accepted").1, Peer::Owner);
        drop(connected.expect("connected"));
        drop(socket);
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn a_served_socket_is_left_alone_and_a_dead_one_replaced() {
        let home = tempfile::tempdir().expect("a directory");
        let path = home.path().join("handoff.sock");
        let first = StateSocket::bind(&path).await.expect("binds");
        assert!(matches!(StateSocket::bind(&path).await, Err(SocketError::InUse { .. })));
        // A killed process removes nothing.
        let dead = home.path().join("dead.sock");
        drop(std::os::unix::net::UnixListener::bind(&dead).expect("binds"));
        fs::rename(&dead, &path).expect("replaced");
        let second = StateSocket::bind(&path).await.expect("takes its place");
        drop(first);
        assert!(path.exists(), "the first one does not remove the second one's");
        drop(second);
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn what_is_no_socket_is_not_replaced_and_a_long_path_is_said_to_be() {
        let home = tempfile::tempdir().expect("a directory");
        let file = home.path().join("file");
        fs::write(&file, "mine").expect("written");
        assert!(matches!(StateSocket::bind(&file).await, Err(SocketError::NotAPlace { .. })));
        assert_eq!(fs::read(&file).expect("there"), b"mine");
        let long = home.path().join("x".repeat(120));
        assert!(matches!(StateSocket::bind(&long).await, Err(SocketError::PathTooLong { .. })));
        assert_eq!(fs::read_dir(home.path()).expect("there").count(), 1, "nothing is left");
    }

    #[test]
    fn another_user_is_a_stranger() {
        assert_eq!(peer(1000, 1000), Peer::Owner);
        assert_eq!(peer(0, 1000), Peer::Owner);
        assert_eq!(peer(1001, 1000), Peer::Stranger { uid: 1001 });
        assert_eq!(peer(1000, 0), Peer::Stranger { uid: 1000 });
    }
}
