//! `handoff reap`: one round of the reaper, now.

use anyhow::Result;

use crate::config::Home;
use crate::output::Output;
use crate::serving;

/// Says what the round did.
pub async fn run(home: &Home, output: Output) -> Result<()> {
    let reaped = serving::ensure(home).await?.reap(Some("asked for on the command line".to_owned())).await?;
    output.line(format_args!(
        "expired {}  withdrawn {}  terminated {}  reassigned {}",
        reaped.expired, reaped.withdrawn, reaped.terminated, reaped.reassigned
    ));
    output.titled("handoff.reap.v1", &reaped);
    Ok(())
}
