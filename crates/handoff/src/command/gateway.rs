//! `handoff gateway`: the only door of this machine's sandboxes, and their meter.

use std::time::Duration;

use anyhow::{Context as _, Result};
use handoff_gateway::{Gateway, GatewayOptions, PolicyWatch, Running};

use crate::config::{Home, make_private};
use crate::process::{stop_signal, take_role};

/// How long open calls may take to settle when the gateway is told to end.
const PATIENCE: Duration = Duration::from_secs(3);
/// How often the policy file is looked at. A change is taken up at the second look that finds it, so within a
/// second.
const LOOK: Duration = Duration::from_millis(400);

/// Runs until it is told to end. Without a policy file no upstream exists, so nothing can be called.
pub async fn run(home: &Home) -> Result<()> {
    home.prepare()?;
    make_private(&home.gateway())?;
    let Some(_role) = take_role(home, "gateway")? else {
        anyhow::bail!("this machine's gateway is running already");
    };
    let path = home.gateway_policy();
    let (watch, policy) =
        PolicyWatch::start(path.clone()).with_context(|| format!("misconfigured: {}", path.display()))?;
    let stop = stop_signal()?;
    let running = Gateway::start(GatewayOptions::new(home.gateway(), policy)?).await?;
    tokio::select! {
        () = stop.cancelled() => {}
        () = take_up_changes(&running, watch) => {}
    }
    running.shutdown(PATIENCE).await;
    Ok(())
}

/// Never ends. What cannot be taken up is said in the log, and the policy stays as it was.
async fn take_up_changes(running: &Running, mut watch: PolicyWatch) {
    loop {
        tokio::time::sleep(LOOK).await;
        let taken_up = match watch.look() {
            None => continue,
            Some(Ok(policy)) => running.take_up(policy).await.map_err(anyhow::Error::from),
            Some(Err(error)) => Err(anyhow::Error::from(error)),
        };
        match taken_up {
            Ok(()) => tracing::info!("the changed policy is in force"),
            Err(error) => {
                tracing::error!(
                    error = format!("{error:#}"),
                    "the changed policy is refused; the last good one stays"
                );
            }
        }
    }
}
