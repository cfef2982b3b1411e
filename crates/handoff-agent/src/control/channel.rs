//! The control channel's lines on real sockets: one inherited connection, or a listener whose every connection
//! may ask and hears everything that is told.

use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

use super::{FromAgent, LINE_BYTES, ToAgent};
use crate::error::AgentError;

/// Lines that wait for a slow listener before it misses some; it may always ask again.
const WAITING_LINES: usize = 1024;
/// How long the last lines may take to leave.
const FAREWELL: Duration = Duration::from_secs(1);

/// How a runtime reaches an agent.
#[derive(Debug)]
pub enum Control {
    /// Not at all.
    None,
    /// By this connection alone, and the agent ends with it: one end of a socket pair in a sandbox.
    Inherited(OwnedFd),
    /// By connecting to a socket that the agent makes (0600). Only processes of the same user are heard.
    Socket(PathBuf),
}

/// What comes in.
#[derive(Debug)]
pub(crate) enum Incoming {
    Told(ToAgent),
    /// A connection is gone, of several that there may be.
    HungUp,
    /// The only connection is gone.
    Closed,
}

type Peers = Arc<Mutex<Vec<Arc<mpsc::Sender<Bytes>>>>>;

/// The open channel.
#[derive(Debug)]
pub(crate) struct Channel {
    incoming: mpsc::Receiver<Incoming>,
    /// Keeps `incoming` open where nobody can connect.
    _sender: mpsc::Sender<Incoming>,
    peers: Peers,
    writers: TaskTracker,
    _listener: Option<AbortOnDropHandle<()>>,
    path: Option<PathBuf>,
}

impl Channel {
    pub(crate) fn open(control: Control) -> Result<Self, AgentError> {
        let (sender, incoming) = mpsc::channel(64);
        let mut channel = Self {
            incoming,
            _sender: sender.clone(),
            peers: Peers::default(),
            writers: TaskTracker::new(),
            _listener: None,
            path: None,
        };
        match control {
            Control::None => {}
            Control::Inherited(fd) => {
                // What the tools start must not be able to speak here.
                rustix::io::fcntl_setfd(&fd, rustix::io::FdFlags::CLOEXEC)
                    .map_err(|error| AgentError::Control(error.into()))?;
                let stream = std::os::unix::net::UnixStream::from(fd);
                stream.set_nonblocking(true).map_err(AgentError::Control)?;
                let stream = UnixStream::from_std(stream).map_err(AgentError::Control)?;
                let lines = attach(stream, &channel.peers, &channel.writers);
                tokio::spawn(async move {
                    lines.read(&sender).await;
                    // Nobody to tell that nobody listens: then the agent has ended.
                    let _ = sender.send(Incoming::Closed).await;
                });
            }
            Control::Socket(path) => {
                let listener = bind(&path).map_err(|error| AgentError::file(&path, error))?;
                let accepting = accept(listener, sender, channel.peers.clone(), channel.writers.clone());
                channel._listener = Some(AbortOnDropHandle::new(tokio::spawn(accepting)));
                channel.path = Some(path);
            }
        }
        Ok(channel)
    }

    /// The next thing that comes in.
    pub(crate) async fn next(&mut self) -> Incoming {
        match self.incoming.recv().await {
            Some(incoming) => incoming,
            None => std::future::pending().await,
        }
    }

    /// Whether anybody listens.
    pub(crate) fn attended(&self) -> bool {
        let mut peers = lock(&self.peers);
        peers.retain(|peer| !peer.is_closed());
        !peers.is_empty()
    }

    /// Tells everybody who listens.
    pub(crate) fn tell(&self, told: &FromAgent) {
        let line = line(told);
        lock(&self.peers).retain(|peer| match peer.try_send(line.clone()) {
            Ok(()) => true,
            Err(mpsc::error::TrySendError::Full(_)) => {
                tracing::warn!("a slow listener on the control channel missed a line");
                true
            }
            Err(mpsc::error::TrySendError::Closed(_)) => false,
        });
    }

    /// Lets the last lines leave, and takes the socket away.
    pub(crate) async fn close(self) {
        if let Some(path) = &self.path
            && let Err(error) = std::fs::remove_file(path)
        {
            tracing::warn!(%error, path = %path.display(), "the control socket was not removed");
        }
        lock(&self.peers).clear();
        self.writers.close();
        if tokio::time::timeout(FAREWELL, self.writers.wait()).await.is_err() {
            tracing::warn!("the last lines on the control channel did not leave in time");
        }
    }
}

fn lock(peers: &Peers) -> std::sync::MutexGuard<'_, Vec<Arc<mpsc::Sender<Bytes>>>> {
    peers.lock().expect("nothing panics while it holds the listeners")
}

fn line(told: &FromAgent) -> Bytes {
    let mut line = serde_json::to_vec(told).expect("plain data");
    line.push(b'\n');
    Bytes::from(line)
}

fn bind(path: &PathBuf) -> std::io::Result<UnixListener> {
    // Left behind by an agent that was killed: whoever holds the session's lock owns the path.
    match std::fs::remove_file(path) {
        Ok(()) => {}
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

async fn accept(listener: UnixListener, sender: mpsc::Sender<Incoming>, peers: Peers, writers: TaskTracker) {
    let own = rustix::process::geteuid().as_raw();
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "a control connection was not accepted");
                tokio::time::sleep(Duration::from_millis(20)).await;
                continue;
            }
        };
        match stream.peer_cred() {
            Ok(peer) if peer.uid() == own => {}
            Ok(peer) => {
                tracing::warn!(uid = peer.uid(), "a control connection of another user was refused");
                continue;
            }
            Err(error) => {
                tracing::warn!(%error, "a control connection of nobody was refused");
                continue;
            }
        }
        let lines = attach(stream, &peers, &writers);
        let sender = sender.clone();
        tokio::spawn(async move {
            lines.read(&sender).await;
            let _ = sender.send(Incoming::HungUp).await;
        });
    }
}

/// A connection's reading half, and the way to answer it alone.
struct Lines<R> {
    reader: R,
    peer: Weak<mpsc::Sender<Bytes>>,
    peers: Peers,
}

fn attach(
    stream: UnixStream,
    peers: &Peers,
    writers: &TaskTracker,
) -> Lines<impl AsyncRead + Unpin + Send + 'static + use<>> {
    let (reader, writer) = stream.into_split();
    let (sender, lines) = mpsc::channel(WAITING_LINES);
    let sender = Arc::new(sender);
    let peer = Arc::downgrade(&sender);
    lock(peers).push(sender);
    writers.spawn(write(writer, lines));
    Lines { reader, peer, peers: peers.clone() }
}

async fn write(mut writer: impl AsyncWrite + Unpin, mut lines: mpsc::Receiver<Bytes>) {
    while let Some(line) = lines.recv().await {
        if let Err(error) = writer.write_all(&line).await {
            tracing::debug!(%error, "a control connection broke off");
            return;
        }
    }
}

impl<R: AsyncRead + Unpin> Lines<R> {
    /// Reads until the connection ends or says something that is no line; then it hears nothing more.
    async fn read(self, sender: &mpsc::Sender<Incoming>) {
        let Self { reader, peer, peers } = self;
        read_lines(reader, &peer, sender).await;
        lock(&peers).retain(|other| !std::ptr::eq(Arc::as_ptr(other), peer.as_ptr()));
    }
}

async fn read_lines(
    reader: impl AsyncRead + Unpin,
    peer: &Weak<mpsc::Sender<Bytes>>,
    sender: &mpsc::Sender<Incoming>,
) {
    let mut reader = BufReader::new(reader);
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = (&mut reader).take(LINE_BYTES as u64).read_until(b'\n', &mut line).await;
        match read {
            Ok(0) | Err(_) => return,
            Ok(_) if !line.ends_with(b"\n") && line.len() >= LINE_BYTES => {
                refuse(peer, "?", "the line is too long");
                return;
            }
            Ok(_) => {}
        }
        match serde_json::from_slice(&line) {
            Ok(told) => {
                if sender.send(Incoming::Told(told)).await.is_err() {
                    return;
                }
            }
            Err(error) => refuse(peer, "?", &format!("not a line of this channel: {error}")),
        }
    }
}

fn refuse(peer: &Weak<mpsc::Sender<Bytes>>, request: &str, reason: &str) {
    let refused = FromAgent::Refused { request: request.to_owned(), reason: reason.to_owned() };
    if let Some(peer) = peer.upgrade()
        && peer.try_send(line(&refused)).is_err()
    {
        tracing::debug!("a refusal on the control channel found no listener");
    }
}
