//! What all destinations of a node share.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use handoff_client::{Client, ClientBlobs};
use handoff_gateway::GatewayClient;
use handoff_sandbox::Driver;
use handoff_snapshot::DirectoryBlobs;

use crate::identity::Identity;
use crate::kept::Kept;

/// How a node runs.
#[derive(Debug, Clone)]
pub struct NodeOptions {
    /// Its directory: identity, blobs, destinations.
    pub home: PathBuf,
    /// The control plane's socket.
    pub control_plane: PathBuf,
    /// The gateway's control socket.
    pub gateway: PathBuf,
    /// This program, which sandboxes execute.
    pub executable: PathBuf,
    /// A name for people, usually the host's.
    pub name: String,
    /// Start sandboxes although this host cannot enforce everything.
    pub allow_degraded: bool,
    /// How often a running session is checkpointed.
    pub checkpoint_every: Duration,
    /// Bytes of disk below which no blob is taken in.
    pub reserve_bytes: u64,
}

/// What all destinations share.
pub(crate) struct Shared {
    pub(crate) options: NodeOptions,
    pub(crate) identity: Identity,
    pub(crate) client: Client,
    pub(crate) control_plane_blobs: ClientBlobs,
    pub(crate) gateway: GatewayClient,
    pub(crate) blobs: DirectoryBlobs,
    pub(crate) kept: Kept,
    pub(crate) driver: Arc<dyn Driver>,
    pub(crate) boot_id: String,
    pub(crate) lease: Lease,
}

/// The lease as the control plane gives it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lease {
    pub(crate) lease_ms: u64,
    pub(crate) renew_ms: u64,
}

impl Lease {
    /// When a holder stands still, counted from the first sending: two thirds of the lease.
    pub(crate) fn run_until(self, first_sent_ms: u64) -> u64 {
        first_sent_ms + self.lease_ms * 2 / 3
    }

    /// How long one renewal may take.
    pub(crate) fn patience(self) -> Duration {
        Duration::from_millis(self.renew_ms.max(500))
    }

    /// How long to wait before a renewal that failed is tried again.
    pub(crate) fn retry(self) -> Duration {
        Duration::from_millis((self.renew_ms / 5).clamp(100, 2_000))
    }
}
