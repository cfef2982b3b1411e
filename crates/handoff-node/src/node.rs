//! The node itself: registers, asks what it should hold, and keeps one task per destination.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use handoff_client::{Client, ClientBlobs, ClientError};
use handoff_gateway::GatewayClient;
use handoff_protocol::node::{Capacity, DEGRADED_START, Desired, Destination, Register, Registered, Want};
use handoff_protocol::{NodeId, TransferId};
use handoff_sandbox::{Driver, Isolation, Native, boot_id};
use handoff_snapshot::DirectoryBlobs;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::identity::{Identity, IdentityError};
use crate::kept::Kept;
use crate::place::Place;
use crate::shared::{Lease, NodeOptions, Shared};

/// Seconds that one question waits for news.
const POLL_S: u64 = 25;
/// The pause after a question that failed.
const PAUSE: Duration = Duration::from_millis(500);

/// Why a node does not run.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// It does not know who it is.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// Its own files.
    #[error("the node's directory cannot be used")]
    File(#[from] std::io::Error),
    /// The control plane refused it for good.
    #[error("the control plane refused this node: {0}")]
    Refused(ClientError),
}

/// Runs until told to stop. Sandboxes outlive it: the next node of the same home adopts them.
///
/// # Errors
/// When it cannot start, or the control plane refuses it for good.
pub async fn run(options: NodeOptions, stop: CancellationToken) -> Result<(), NodeError> {
    std::fs::create_dir_all(options.home.join("destinations"))?;
    // What is made durable in it has to be found after a power cut.
    std::fs::File::open(&options.home)?.sync_all()?;
    let identity = Identity::load_or_make(&options.home)?;
    let client = Client::unix(&options.control_plane).as_node(identity.id());
    let driver: Arc<dyn Driver> = Arc::new(Native::new(&options.executable));
    let registered = tokio::select! {
        registered = register(&options, &identity, &client, driver.clone()) => registered?,
        () = stop.cancelled() => return Ok(()),
    };
    let blobs = DirectoryBlobs::open(options.home.join("blobs"), options.reserve_bytes)?;
    let shared = Arc::new(Shared {
        kept: Kept::new(blobs.clone()),
        blobs,
        control_plane_blobs: ClientBlobs::new(client.clone()),
        gateway: GatewayClient::new(&options.gateway),
        boot_id: boot_id(),
        lease: Lease { lease_ms: registered.lease_ms, renew_ms: registered.renew_ms },
        driver,
        client,
        identity,
        options,
    });
    let mut node = Node { shared, places: BTreeMap::new(), tasks: TaskTracker::new(), stop };
    node.follow().await;
    node.tasks.close();
    node.tasks.wait().await;
    Ok(())
}

/// Registers, and keeps trying while the control plane does not answer.
async fn register(
    options: &NodeOptions,
    identity: &Identity,
    client: &Client,
    driver: Arc<dyn Driver>,
) -> Result<Registered, NodeError> {
    let probed = tokio::task::spawn_blocking(move || driver.probe()).await.ok();
    let mut isolation = probed.as_ref().map(Isolation::words).unwrap_or_default();
    if !options.allow_degraded && !probed.is_some_and(|probed| probed.is_whole()) {
        isolation.insert(DEGRADED_START.to_owned(), "refused by this node's settings".to_owned());
    }
    let body = Register {
        node_id: identity.id(),
        name: options.name.clone(),
        public_key: identity.public_key(),
        capacity: capacity(),
        isolation,
        version: env!("CARGO_PKG_VERSION").to_owned(),
    };
    loop {
        match client.register(&body).await {
            Ok(registered) => return Ok(registered),
            Err(error) if error.code().is_some_and(|code| !code.retryable()) => {
                return Err(NodeError::Refused(error));
            }
            Err(error) => tracing::warn!(%error, "not registered; trying again"),
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// What this host has: all cores, and four fifths of the memory.
fn capacity() -> Capacity {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let memory = rustix::system::sysinfo();
    let bytes = u64::from(memory.mem_unit.max(1)).saturating_mul(memory.totalram);
    Capacity { cpu_millis: cores as u64 * 1000, memory_bytes: bytes / 5 * 4 }
}

struct Node {
    shared: Arc<Shared>,
    places: BTreeMap<(TransferId, u64), watch::Sender<Destination>>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl Node {
    async fn follow(&mut self) {
        let id: NodeId = self.shared.identity.id();
        let mut after = None;
        let mut control_plane: Option<String> = None;
        loop {
            let stop = self.stop.clone();
            let answer = tokio::select! {
                answer = self.shared.client.desired(id, after, POLL_S) => answer,
                () = stop.cancelled() => return,
            };
            match answer {
                Ok(desired) => {
                    let known = control_plane.get_or_insert_with(|| desired.control_plane.clone());
                    if *known != desired.control_plane {
                        tracing::error!(
                            answers = desired.control_plane,
                            "another control plane answers; ignored"
                        );
                        tokio::time::sleep(PAUSE).await;
                        continue;
                    }
                    after = Some(desired.revision);
                    self.follow_list(desired);
                }
                Err(error) => {
                    // A control plane that was started anew counts its revisions anew.
                    after = None;
                    tracing::warn!(%error, "the control plane does not say what is wanted");
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    /// Absence from the list removes nothing: a place that is not listed stays as it is.
    fn follow_list(&mut self, desired: Desired) {
        let listed: Vec<(TransferId, u64)> =
            desired.destinations.iter().map(|wanted| (wanted.transfer_id, wanted.generation)).collect();
        for wanted in desired.destinations {
            match self.places.get(&(wanted.transfer_id, wanted.generation)) {
                Some(place) => {
                    place.send_if_modified(|known| {
                        let news = wanted.version >= known.version && *known != wanted;
                        if news {
                            *known = wanted;
                        }
                        news
                    });
                }
                None => self.open(wanted),
            }
        }
        // Gone and no longer listed: its absence was reported and taken.
        self.places.retain(|key, place| listed.contains(key) || place.borrow().want != Want::Gone);
    }

    fn open(&mut self, wanted: Destination) {
        let key = (wanted.transfer_id, wanted.generation);
        let (sender, receiver) = watch::channel(wanted);
        match Place::open(self.shared.clone(), receiver) {
            Ok(place) => {
                self.tasks.spawn(place.run(self.stop.clone()));
                self.places.insert(key, sender);
            }
            Err(error) => {
                tracing::error!(transfer = %key.0, generation = key.1, %error, "its record cannot be read");
            }
        }
    }
}
