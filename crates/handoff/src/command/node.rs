//! `handoff node`: this machine's destinations. It keeps on when the control plane is away; sandboxes outlive
//! it.

use std::time::Duration;

use anyhow::Result;
use handoff_node::NodeOptions;

use crate::config::{Home, Settings, make_private};
use crate::process::{self, stop_signal, take_role};
use crate::serving;

/// How often a running session is checkpointed, unless it is set.
const CHECKPOINT_EVERY: Duration = Duration::from_secs(60);
/// Bytes of disk that stay free.
const RESERVE_BYTES: u64 = 256 << 20;

/// Runs until it is told to end.
pub async fn run(home: &Home) -> Result<()> {
    home.prepare()?;
    make_private(&home.node())?;
    let Some(_role) = take_role(home, "node")? else {
        return Err(process::role_taken(home, "node"));
    };
    let settings = Settings::load(home)?.node;
    let checkpoint = settings.checkpoint_every_ms.map_or(CHECKPOINT_EVERY, Duration::from_millis);
    let options = NodeOptions {
        home: home.node(),
        control_plane: home.socket(),
        gateway: home.gateway().join("gateway.sock"),
        executable: std::env::current_exe()?,
        name: serving::host_name(),
        allow_degraded: settings.allow_degraded,
        checkpoint_every: checkpoint,
        reserve_bytes: RESERVE_BYTES,
    };
    handoff_node::run(options, stop_signal()?).await?;
    Ok(())
}
