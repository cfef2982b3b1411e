//! `handoff gateway`: the only door of this machine's sandboxes, and their meter.

use std::time::Duration;

use anyhow::{Context as _, Result};
use handoff_gateway::{Gateway, GatewayOptions, Policy};

use crate::config::{Home, make_private};
use crate::process::{stop_signal, take_role};

/// How long open calls may take to settle when the gateway is told to end.
const PATIENCE: Duration = Duration::from_secs(3);

/// Runs until it is told to end. Without a policy file no upstream exists, so nothing can be called.
pub async fn run(home: &Home) -> Result<()> {
    home.prepare()?;
    make_private(&home.gateway())?;
    let Some(_role) = take_role(home, "gateway")? else {
        anyhow::bail!("this machine's gateway is running already");
    };
    let path = home.gateway_policy();
    let policy = if path.exists() { Policy::load(&path) } else { Policy::parse("") };
    let policy = policy.with_context(|| format!("misconfigured: {}", path.display()))?;
    let stop = stop_signal()?;
    let running = Gateway::start(GatewayOptions::new(home.gateway(), policy)?).await?;
    stop.cancelled().await;
    running.shutdown(PATIENCE).await;
    Ok(())
}
