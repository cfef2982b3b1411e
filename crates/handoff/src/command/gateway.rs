//! `handoff gateway`: the only door of this machine's sandboxes, and their meter.

use std::time::Duration;

use anyhow::Result;
use handoff_gateway::{Gateway, GatewayOptions, PolicyWatch, Running};
use handoff_protocol::ErrorCode;

use crate::config::{Home, make_private};
use crate::process::{self, stop_signal, take_role};
use crate::refusal::OrRefuse as _;

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
        return Err(process::role_taken(home, "gateway"));
    };
    let path = home.gateway_policy();
    let hint = format!("correct {}, as docs/configuration.md says", path.display());
    let started = PolicyWatch::start(path);
    let (watch, policy) = started.or_refuse(ErrorCode::Misconfigured, "the gateway's policy", hint)?;
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
