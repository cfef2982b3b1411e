//! `handoff serve`: the control plane on the state socket, the reaper, and this machine's node and gateway as
//! processes of their own.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use handoff_core::ledger::{Filter, Ledger};
use handoff_protocol::port::BlobStore;
use handoff_protocol::session_dir::Standing;
use handoff_server::{ServeOptions, Server};
use handoff_service::{DEFAULT_PROJECT, ServiceConfig, TokenKeys};
use handoff_snapshot::DirectoryBlobs;
use handoff_store::{BlobLimits, OpenOptions, SqliteLedger};
use secrecy::{ExposeSecret as _, SecretSlice};
use serde::Serialize;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::cli::Serve;
use crate::config::{BlobPlace, Home, Settings, token_secret};
use crate::output::Output;
use crate::process::{self, RoleLock, keep_running, stop_role, stop_signal, take_role};
use crate::serving;

/// How long a control plane that was started in the background stays when there is nothing to do.
const IDLE: Duration = Duration::from_secs(30);
/// Bytes of disk that snapshots leave free for the ledger.
const KEEP_FREE_BYTES: u64 = 256 << 20;

/// How long each process may take to end in order before it is killed.
const STOP_WITHIN: Duration = Duration::from_secs(10);

#[derive(Serialize)]
struct Stopped {
    stopped: Vec<&'static str>,
}

/// Runs until it is told to end, or, when it is managed, until there has been nothing to do for a while.
pub async fn run(home: &Home, arguments: Serve, output: Output) -> Result<()> {
    home.prepare()?;
    if arguments.stop {
        let stopped = stop(home).await?;
        let roles = stopped.join(", ");
        output.line(if roles.is_empty() {
            "nothing was running".to_owned()
        } else {
            format!("ended {roles}")
        });
        output.titled("handoff.serve-stop.v1", &Stopped { stopped });
        return Ok(());
    }
    let Some(_role) = take_or_wait(home, arguments.managed).await? else {
        return Ok(());
    };
    let settings = Settings::load(home)?;
    let secret = token_secret(home)?;
    let keys = TokenKeys::new(SecretSlice::from(secret.expose_secret().as_bytes().to_vec()), [])?;
    let policy = settings.policy();
    let path = home.database();
    let open_policy = policy.clone();
    let store =
        tokio::task::spawn_blocking(move || SqliteLedger::open(path, open_policy, OpenOptions::default()));
    let store = Arc::new(store.await??);
    let blobs = blobs(home, &settings, &store)?;
    let ledger: Arc<dyn Ledger> = store.clone();
    let mut service = ServiceConfig::new(control_plane_id(home)?, policy, keys);
    service.reap_interval_ms = settings.reap_every_ms.unwrap_or(service.reap_interval_ms);
    let stop = stop_signal()?;
    let options = ServeOptions {
        ledger: ledger.clone(),
        blobs,
        service,
        socket: home.socket(),
        shutdown: stop.clone(),
    };
    let server = Server::bind(options).await?;
    tracing::info!(socket = %server.socket().display(), "serving");
    let tasks = TaskTracker::new();
    for role in ["gateway", "node"] {
        tasks.spawn(keep_running(home.clone(), role, vec![role.to_owned()], stop.clone()));
    }
    if arguments.managed {
        let idle = settings.idle_exit_ms.map_or(IDLE, Duration::from_millis);
        tasks.spawn(end_when_idle(home.clone(), ledger, idle, stop.clone()));
    }
    server.run().await;
    stop.cancel();
    tasks.close();
    tasks.wait().await;
    Ok(())
}

/// The role of the control plane. One in the background waits for an earlier one that is still ending, and is not
/// needed where another answers.
async fn take_or_wait(home: &Home, managed: bool) -> Result<Option<RoleLock>> {
    loop {
        if let Some(role) = take_role(home, "serve")? {
            return Ok(Some(role));
        }
        if !managed {
            return Err(process::role_taken(home, "serve"));
        }
        if serving::answers(home).await {
            return Ok(None);
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Ends every process of this state directory: first the one that would start the others again.
pub async fn stop(home: &Home) -> Result<Vec<&'static str>> {
    let roles = ["supervise", "serve", "node", "gateway"];
    // Looked at before the first is told: it takes the others along.
    let stopped = roles.into_iter().filter(|role| process::is_taken(home, role).unwrap_or(false)).collect();
    for role in roles {
        stop_role(home, role, STOP_WITHIN).await?;
    }
    Ok(stopped)
}

fn blobs(home: &Home, settings: &Settings, store: &SqliteLedger) -> Result<Arc<dyn BlobStore>> {
    Ok(match settings.blobs {
        BlobPlace::Directory => Arc::new(DirectoryBlobs::open(home.path().join("blobs"), KEEP_FREE_BYTES)?),
        BlobPlace::Database => Arc::new(store.blobs(DEFAULT_PROJECT, BlobLimits::default())),
    })
}

/// Names this control plane to its nodes; made once.
fn control_plane_id(home: &Home) -> Result<String> {
    let path = home.path().join("control-plane");
    match std::fs::read_to_string(&path) {
        Ok(text) => Ok(text.trim().to_owned()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let id = uuid::Uuid::now_v7().to_string();
            let temporary = path.with_extension("new");
            std::fs::write(&temporary, &id)?;
            std::fs::rename(&temporary, &path)?;
            Ok(id)
        }
        Err(error) => Err(error).with_context(|| format!("{} cannot be read", path.display())),
    }
}

/// Ends in order when nothing has been pending, live, unclosed or frozen for a transfer for so long.
async fn end_when_idle(home: Home, ledger: Arc<dyn Ledger>, idle: Duration, stop: CancellationToken) {
    let look = Duration::from_millis(500).min(idle);
    let mut quiet_since = tokio::time::Instant::now();
    let mut revision = ledger.revision();
    while tokio::time::timeout(look, stop.cancelled()).await.is_err() {
        let changed = std::mem::replace(&mut revision, ledger.revision()) != revision;
        if changed || is_needed(&home, ledger.as_ref()).await {
            quiet_since = tokio::time::Instant::now();
        } else if quiet_since.elapsed() >= idle {
            tracing::info!("nothing to do; ending");
            stop.cancel();
        }
    }
}

async fn is_needed(home: &Home, ledger: &dyn Ledger) -> bool {
    let unclosed = Filter { unclosed: true, limit: 1, ..Filter::default() };
    let transfers = ledger.transfers(DEFAULT_PROJECT, &unclosed).await;
    transfers.map_or(true, |listed| !listed.is_empty()) || a_source_stands_frozen(home)
}

fn a_source_stands_frozen(home: &Home) -> bool {
    let sources = handoff_agent::registry::find_sources(home.path()).unwrap_or_default();
    sources.iter().any(|source| {
        let standing = handoff_agent::standing::read(&source.record.session_dir);
        matches!(standing, Ok(Some(Standing::Frozen { .. })))
    })
}
