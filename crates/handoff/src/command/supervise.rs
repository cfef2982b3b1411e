//! `handoff supervise`: keeps a control plane running that was started in the background. It starts it again
//! with back-off when it dies, and ends when it ends by itself.

use std::time::Duration;

use anyhow::Result;
use tokio::process::Command;
use tokio::signal::unix::{SignalKind, signal};

use crate::config::Home;
use crate::process::{Backoff, Needs, restrict, take_role};

/// Runs until the control plane ends in order, or this process is told to end.
pub async fn run(home: &Home) -> Result<()> {
    home.prepare()?;
    let Some(_role) = take_role(home, "supervise")? else {
        return Ok(());
    };
    let mut terminate = signal(SignalKind::terminate())?;
    let mut pause = Backoff::default();
    loop {
        let started = tokio::time::Instant::now();
        let mut command = Command::new(std::env::current_exe()?);
        restrict(command.as_std_mut(), Needs::ControlPlane);
        let mut child = command.args(["serve", "--managed"]).spawn()?;
        let status = tokio::select! {
            status = child.wait() => status?,
            _ = terminate.recv() => {
                stop(&mut child).await;
                return Ok(());
            }
        };
        if status.success() {
            return Ok(());
        }
        let pause = pause.after(started.elapsed());
        tracing::warn!(%status, ?pause, "the control plane ended; it is started again");
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            _ = terminate.recv() => return Ok(()),
        }
    }
}

/// Asks the control plane to end, and waits for it as long as an orderly end takes.
async fn stop(child: &mut tokio::process::Child) {
    if let Some(pid) = child.id().and_then(|pid| rustix::process::Pid::from_raw(pid.cast_signed())) {
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
    }
    if tokio::time::timeout(Duration::from_secs(10), child.wait()).await.is_err() {
        let _ = child.kill().await;
    }
}
