//! `handoff gateway`: the only door of this machine's sandboxes, and their meter.

use std::time::Duration;

use anyhow::Result;
use handoff_gateway::{Gateway, GatewayOptions, Policy};
use handoff_protocol::ErrorCode;

use crate::config::{Home, make_private};
use crate::process::{self, stop_signal, take_role};
use crate::refusal::OrRefuse as _;

/// How long open calls may take to settle when the gateway is told to end.
const PATIENCE: Duration = Duration::from_secs(3);

/// Runs until it is told to end. Without a policy file no upstream exists, so nothing can be called.
pub async fn run(home: &Home) -> Result<()> {
    home.prepare()?;
    make_private(&home.gateway())?;
    let Some(_role) = take_role(home, "gateway")? else {
        return Err(process::role_taken(home, "gateway"));
    };
    let path = home.gateway_policy();
    let policy = if path.exists() { Policy::load(&path) } else { Policy::parse("") };
    let hint = format!("correct {}, as docs/configuration.md says", path.display());
    let policy = policy.or_refuse(ErrorCode::Misconfigured, "the gateway's policy", hint)?;
    let stop = stop_signal()?;
    let running = Gateway::start(GatewayOptions::new(home.gateway(), policy)?).await?;
    stop.cancelled().await;
    running.shutdown(PATIENCE).await;
    Ok(())
}
