//! The gateway of a node: its destinations, and the verbs that a node has for them.

mod server;
mod take_up;
mod verbs;

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::clock::{BootClock, Clock};
use crate::control::DestinationKey;
use crate::credential::{ReadEnv, Resolver};
use crate::descriptors::Descriptors;
use crate::destination::{Destination, Shared};
use crate::in_force::{InForce, Rules};
use crate::policy::Policy;
use crate::socket;

/// The control socket's name in the gateway's home.
pub const CONTROL_SOCKET: &str = "gateway.sock";
const LEDGERS: &str = "holds";
const LEDGER_ENDING: &str = "holds";
const LOCK: &str = "gateway.lock";

/// What a gateway needs to start.
#[derive(Debug, Clone)]
pub struct GatewayOptions {
    /// Its folder: control socket, lock and journals. Made if it is not there, for its owner only.
    pub home: PathBuf,
    /// The operator's policy.
    pub policy: Policy,
    /// Where time is read; the machine's own for [`GatewayOptions::new`].
    pub clock: Arc<dyn Clock>,
    /// Where environment variables are read; the process's own for [`GatewayOptions::new`].
    pub env: ReadEnv,
}

impl GatewayOptions {
    /// With the machine's clock and the process's environment.
    ///
    /// # Errors
    /// When the machine does not say which boot it is in.
    pub fn new(home: PathBuf, policy: Policy) -> io::Result<Self> {
        Ok(Self { home, policy, clock: Arc::new(BootClock::new()?), env: |name| std::env::var_os(name) })
    }
}

/// Why a gateway does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Its folder, lock or socket cannot be made.
    #[error("the gateway's folder {path} cannot be used")]
    Home {
        /// Which path.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Another gateway runs there.
    #[error("another gateway has {0} open")]
    Locked(PathBuf),
    /// No way to call upstreams.
    #[error("connections to upstreams cannot be made: are there CA certificates on this machine?")]
    Connections(#[source] reqwest::Error),
}

/// Why a running gateway keeps the policy that it has.
#[derive(Debug, thiserror::Error)]
pub enum TakeUpError {
    /// No way to call upstreams.
    #[error("connections to upstreams cannot be made: are there CA certificates on this machine?")]
    Connections(#[source] reqwest::Error),
    /// A task of the gateway ended. Always a bug.
    #[error("a task of the gateway ended")]
    Ended,
}

/// A gateway: see [`Gateway::start`].
#[derive(Debug)]
pub struct Gateway {
    home: PathBuf,
    shared: Shared,
    resolver: Resolver,
    destinations: Mutex<BTreeMap<DestinationKey, Arc<Destination>>>,
    /// Opening and removing, one at a time: they read and write the folder.
    housekeeping: tokio::sync::Mutex<()>,
    /// Held for writing while a policy is taken up, so that no cabinet is filled by the one before.
    taking_up: tokio::sync::RwLock<()>,
    _lock: File,
}

/// A gateway that runs. Dropped, it stops at once, as if it had been killed.
#[derive(Debug)]
pub struct Running {
    gateway: Arc<Gateway>,
    closing: CancellationToken,
    control: PathBuf,
}

impl Gateway {
    /// Opens the ledgers, so that totals and reports can be had, and listens on the control socket. Calls that
    /// were under way when the gateway ended have an unknown outcome and stay charged at their maximum. A
    /// ledger that cannot be read is left as it is, said in the log, and refused when its destination is
    /// opened.
    ///
    /// # Errors
    /// See [`StartError`].
    pub async fn start(options: GatewayOptions) -> Result<Running, StartError> {
        let GatewayOptions { home, policy, clock, env } = options;
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| StartError::Home { path, source }
        };
        make_folder(&home.join(LEDGERS)).map_err(failed(&home))?;
        let lock = File::create(home.join(LOCK)).map_err(failed(&home))?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)
            .map_err(|_| StartError::Locked(home.clone()))?;
        // Installed by whoever comes first; it is the same provider.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let rules = Rules::new(policy).map_err(StartError::Connections)?;
        let in_force = Arc::new(InForce::new(rules));
        let descriptors = Descriptors::of_this_process();
        let shared = Shared { in_force, clock, descriptors, tasks: TaskTracker::new() };
        let ledgers = ledgers(&home, &shared).map_err(failed(&home))?;
        let control = home.join(CONTROL_SOCKET);
        let listener = socket::listen(&control, 0o600).map_err(failed(&control))?;
        let gateway = Arc::new(Self {
            home,
            shared,
            resolver: Resolver::new(env),
            destinations: Mutex::new(ledgers),
            housekeeping: tokio::sync::Mutex::new(()),
            taking_up: tokio::sync::RwLock::new(()),
            _lock: lock,
        });
        let closing = CancellationToken::new();
        tokio::spawn(server::serve(Arc::clone(&gateway), listener, closing.clone()));
        Ok(Running { gateway, closing, control })
    }

    fn destinations(&self) -> MutexGuard<'_, BTreeMap<DestinationKey, Arc<Destination>>> {
        self.destinations.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ledger(&self, key: DestinationKey) -> PathBuf {
        self.home.join(LEDGERS).join(format!("{key}.{LEDGER_ENDING}"))
    }
}

impl Running {
    /// The control socket.
    pub fn control_socket(&self) -> &Path {
        &self.control
    }

    /// Puts another policy in the place of the one in force. Calls that are under way end by the one they came in
    /// under; those that come are judged by the new one. Credentials of open destinations are resolved anew, as far
    /// as they resolve.
    ///
    /// # Errors
    /// See [`TakeUpError`]; then all is as before.
    pub async fn take_up(&self, policy: Policy) -> Result<(), TakeUpError> {
        self.gateway.take_up(policy).await
    }

    /// Takes no more calls, gives those that are under way so long to end, and stops. What has not ended by
    /// then is charged at its maximum after the next start.
    pub async fn shutdown(self, patience: Duration) {
        self.closing.cancel();
        for destination in self.gateway.destinations().values() {
            destination.shut();
        }
        let tasks = &self.gateway.shared.tasks;
        tasks.close();
        if tokio::time::timeout(patience, tasks.wait()).await.is_err() {
            tracing::warn!("calls were still under way when the gateway stopped");
        }
        let accounts: Vec<_> =
            self.gateway.destinations().values().map(|one| Arc::clone(&one.account)).collect();
        for account in accounts {
            account.flush().await;
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.closing.cancel();
        self.gateway.destinations().clear();
    }
}

fn make_folder(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

fn ledgers(home: &Path, shared: &Shared) -> io::Result<BTreeMap<DestinationKey, Arc<Destination>>> {
    let mut ledgers = BTreeMap::new();
    for entry in std::fs::read_dir(home.join(LEDGERS))? {
        let path = entry?.path();
        let Some(key) = key_of(&path) else { continue };
        match Destination::reopen(&path, shared) {
            Ok(Some(destination)) => {
                ledgers.insert(key, Arc::new(destination));
            }
            Ok(None) => {}
            Err(error) => tracing::error!(path = %path.display(), %error, "a ledger cannot be read"),
        }
    }
    Ok(ledgers)
}

fn key_of(path: &Path) -> Option<DestinationKey> {
    if path.extension()? != LEDGER_ENDING {
        return None;
    }
    let (transfer, generation) = path.file_stem()?.to_str()?.rsplit_once('-')?;
    Some(DestinationKey { transfer_id: transfer.parse().ok()?, generation: generation.parse().ok()? })
}
