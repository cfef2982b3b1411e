//! The control plane as a whole: service, reaper, state socket, from start to an orderly stop.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use handoff_protocol::port::BlobStore;
use handoff_service::{Ledger, Service, ServiceConfig, ServiceError};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::http::router::router;
use crate::socket::connection;
use crate::socket::listener::{SocketError, StateSocket};

/// Connections at once; more wait to be accepted.
const CONNECTIONS: usize = 1024;
/// How long an orderly stop waits for what is being answered.
const LAST_ANSWERS: Duration = Duration::from_secs(10);
/// How long nothing is accepted after accepting failed, usually because file descriptors ran out.
const AFTER_FAILURE: Duration = Duration::from_millis(100);

/// What a control plane is made of.
pub struct ServeOptions {
    /// The registry.
    pub ledger: Arc<dyn Ledger>,
    /// Snapshot bytes.
    pub blobs: Arc<dyn BlobStore>,
    /// The operator's settings.
    pub service: ServiceConfig,
    /// Where the state socket is made.
    pub socket: PathBuf,
    /// Cancelled, it begins an orderly stop.
    pub shutdown: CancellationToken,
}

/// Why a control plane does not start.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The socket cannot be made.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// The registry does not answer.
    #[error(transparent)]
    Service(#[from] ServiceError),
}

/// A control plane whose socket is made: connections wait until [`Server::run`] accepts them.
pub struct Server {
    service: Service,
    socket: StateSocket,
    path: PathBuf,
    shutdown: CancellationToken,
}

impl Server {
    /// Makes the socket. When it is there, calls are answered, so whoever waits for a control plane waits for
    /// its socket.
    ///
    /// # Errors
    /// Where the registry does not answer or the socket cannot be made.
    pub async fn bind(options: ServeOptions) -> Result<Self, ServeError> {
        let ServeOptions { ledger, blobs, service, socket: path, shutdown } = options;
        let service = Service::new(ledger, blobs, service, shutdown.clone()).await?;
        let socket = StateSocket::bind(&path).await?;
        Ok(Self { service, socket, path, shutdown })
    }

    /// The socket.
    pub fn socket(&self) -> &Path {
        &self.path
    }

    /// The use-cases behind it, for whoever serves them in another way too.
    pub fn service(&self) -> &Service {
        &self.service
    }

    /// Serves until `shutdown` is cancelled; then accepts nothing more, lets what waits answer, and returns when
    /// all is done or ten seconds are over. What is done but not answered is answered to the same call later.
    pub async fn run(self) {
        let Self { service, socket, shutdown, .. } = self;
        let mut reaper = tokio::spawn({
            let service = service.clone();
            async move { service.reap_forever().await }
        });
        let connections = TaskTracker::new();
        accept(&socket, &router(service.clone()), &connections, &shutdown).await;
        // From here on nobody reaches it any more.
        drop(socket);
        connections.close();
        let orderly = async {
            connections.wait().await;
            service.drained().await;
            (&mut reaper).await
        };
        // Whoever comes after this opens the registry again, so nothing of it may be held any more.
        match tokio::time::timeout(LAST_ANSWERS, orderly).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::error!(%error, "the reaper failed"),
            Err(_) => {
                tracing::warn!("stopping although calls are still being answered");
                reaper.abort();
            }
        }
    }
}

/// Makes the socket and serves until `shutdown` is cancelled.
///
/// # Errors
/// Where it does not start.
pub async fn serve(options: ServeOptions) -> Result<(), ServeError> {
    Server::bind(options).await?.run().await;
    Ok(())
}

async fn accept(
    socket: &StateSocket,
    router: &Router,
    connections: &TaskTracker,
    shutdown: &CancellationToken,
) {
    let room = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let next = async {
            let permit = Arc::clone(&room).acquire_owned().await;
            (permit, socket.accept().await)
        };
        let (permit, accepted) = tokio::select! {
            biased;
            () = shutdown.cancelled() => return,
            next = next => next,
        };
        match accepted {
            Ok((stream, peer)) => {
                let (router, shutdown) = (router.clone(), shutdown.clone());
                connections.spawn(async move {
                    connection::serve(stream, peer, router, shutdown).await;
                    drop(permit);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(AFTER_FAILURE).await;
            }
        }
    }
}
