//! The server: listens, judges, logs, answers, and stops when it is told to.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use handoff_protocol::Digest;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::answer;
use crate::record::Log;
use crate::script::{Script, ScriptError};

/// Where a server listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listen {
    /// On TCP; port 0 takes a free one.
    Tcp(SocketAddr),
    /// On a Unix socket, which is removed at the end.
    Unix(PathBuf),
}

/// How a server plays.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where it listens.
    pub listen: Listen,
    /// What it says.
    pub script: Script,
    /// The file that requests are logged to.
    pub log: Option<PathBuf>,
    /// The models that it serves under.
    pub models: Vec<String>,
    /// The digest of the only `authorization` header that it accepts; without one it accepts all.
    pub authorization: Option<Digest>,
    /// Milliseconds before each chunk, in place of the script's.
    pub delay_ms: Option<u64>,
}

impl Options {
    /// A server on a free port of 127.0.0.1, without a log.
    pub fn of(script: Script) -> Self {
        Self {
            listen: Listen::Tcp(SocketAddr::from(([127, 0, 0, 1], 0))),
            script,
            log: None,
            models: vec![crate::MODEL.to_owned()],
            authorization: None,
            delay_ms: None,
        }
    }
}

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The address is taken or not ours.
    #[error("cannot listen on {0:?}")]
    Listen(Listen, #[source] std::io::Error),
    /// The script cannot be played.
    #[error("the script is not playable")]
    Script(#[from] ScriptError),
    /// The log cannot be written.
    #[error("cannot open the request log {0}")]
    Log(PathBuf, #[source] std::io::Error),
}

/// Where a running server is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// On TCP.
    Tcp(SocketAddr),
    /// On a Unix socket.
    Unix(PathBuf),
}

impl Address {
    /// The base URL of the API on TCP: `http://<address>/v1`.
    pub fn base_url(&self) -> Option<String> {
        match self {
            Self::Tcp(address) => Some(format!("http://{address}/v1")),
            Self::Unix(_) => None,
        }
    }
}

/// A model server that plays a script.
#[derive(Debug)]
pub struct ScriptedModel;

/// A server that runs until it is stopped or dropped.
#[derive(Debug)]
pub struct Running {
    /// Where it is reached.
    pub address: Address,
    stop: CancellationToken,
    tasks: TaskTracker,
}

impl Running {
    /// The base URL of the API.
    ///
    /// # Panics
    /// On a server on a Unix socket, which has none.
    pub fn base_url(&self) -> String {
        self.address.base_url().expect("a server on TCP")
    }

    /// Stops accepting, breaks off what hangs, and returns when every connection is closed.
    pub async fn stop(self) {
        self.stop.cancel();
        self.tasks.wait().await;
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// What every connection shares.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) script: Script,
    pub(crate) log: Option<Log>,
    pub(crate) models: Vec<String>,
    pub(crate) authorization: Option<Digest>,
    /// How often each step with failures was asked for.
    pub(crate) asked: Mutex<HashMap<u64, u32>>,
    pub(crate) stop: CancellationToken,
}

enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener, PathBuf),
}

impl ScriptedModel {
    /// Starts to serve, and returns once connections are accepted.
    ///
    /// # Errors
    /// The address or the log cannot be had, or the script cannot be played.
    pub async fn start(options: Options) -> Result<Running, StartError> {
        let mut script = options.script.checked()?;
        if let Some(delay_ms) = options.delay_ms {
            script.delay_ms = delay_ms;
            script.steps.iter_mut().for_each(|step| step.delay_ms = None);
        }
        let log = options.log.map(|path| Log::open(&path).map_err(|error| StartError::Log(path, error)));
        let stop = CancellationToken::new();
        let shared = Arc::new(Shared {
            script,
            log: log.transpose()?,
            models: options.models,
            authorization: options.authorization,
            asked: Mutex::default(),
            stop: stop.clone(),
        });
        let (listener, address) =
            bind(&options.listen).await.map_err(|error| StartError::Listen(options.listen, error))?;
        let tasks = TaskTracker::new();
        tasks.spawn(accept(listener, shared, tasks.clone()));
        tasks.close();
        Ok(Running { address, stop, tasks })
    }
}

/// Serves until `stop` is cancelled; `ready` learns the address first. For the command line.
///
/// # Errors
/// As [`ScriptedModel::start`].
pub async fn run(
    options: Options,
    stop: CancellationToken,
    ready: impl FnOnce(&Address),
) -> Result<(), StartError> {
    let running = ScriptedModel::start(options).await?;
    ready(&running.address);
    stop.cancelled().await;
    running.stop().await;
    Ok(())
}

async fn bind(listen: &Listen) -> std::io::Result<(Listener, Address)> {
    match listen {
        Listen::Tcp(address) => {
            let listener = TcpListener::bind(address).await?;
            let address = Address::Tcp(listener.local_addr()?);
            Ok((Listener::Tcp(listener), address))
        }
        Listen::Unix(path) => {
            let listener = UnixListener::bind(path)?;
            Ok((Listener::Unix(listener, path.clone()), Address::Unix(path.clone())))
        }
    }
}

async fn accept(listener: Listener, shared: Arc<Shared>, tasks: TaskTracker) {
    let stop = shared.stop.clone();
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            accepted = listener.accept(&shared, &tasks) => accepted,
        };
        if let Err(error) = accepted {
            // Out of file descriptors, mostly: the next round may have some again.
            tracing::warn!(%error, "a connection was not accepted");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    if let Listener::Unix(listener, path) = listener {
        drop(listener);
        if let Err(error) = std::fs::remove_file(&path) {
            tracing::warn!(%error, path = %path.display(), "the socket was not removed");
        }
    }
}

impl Listener {
    async fn accept(&self, shared: &Arc<Shared>, tasks: &TaskTracker) -> std::io::Result<()> {
        match self {
            Self::Tcp(listener) => {
                let (stream, _) = listener.accept().await?;
                // Chunks are small and must leave at once.
                stream.set_nodelay(true)?;
                tasks.spawn(connection(stream, shared.clone()));
            }
            Self::Unix(listener, _) => {
                let (stream, _) = listener.accept().await?;
                tasks.spawn(connection(stream, shared.clone()));
            }
        }
        Ok(())
    }
}

async fn connection(stream: impl AsyncRead + AsyncWrite + Unpin, shared: Arc<Shared>) {
    let stop = shared.stop.clone();
    let service = hyper::service::service_fn(move |request| answer::respond(shared.clone(), request));
    let served = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    tokio::pin!(served);
    let ended = tokio::select! {
        ended = &mut served => ended,
        () = stop.cancelled() => {
            served.as_mut().graceful_shutdown();
            served.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection broke off");
    }
}
