//! `handoff supervise`: keeps a control plane running that was started in the background. It starts it again
//! with back-off when it dies, and ends when it ends by itself or cannot start before somebody corrects something.

use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use anyhow::Result;
use handoff_protocol::{ErrorCode, Problem};
use tokio::io::AsyncReadExt as _;
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};

use crate::config::Home;
use crate::process::{Backoff, Needs, restrict, take_role};

/// Bytes of the one document that a control plane ends with.
const ANSWER_BYTES: u64 = 64 << 10;

/// Runs until the control plane ends in order, or cannot start as things are, or this process is told to end.
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
        let mut child = command.args(["serve", "--managed", "--json"]).stdout(Stdio::piped()).spawn()?;
        let (status, problem) = tokio::select! {
            ended = ended(&mut child) => ended?,
            _ = terminate.recv() => {
                stop(&mut child).await;
                return Ok(());
            }
        };
        if status.success() {
            return Ok(());
        }
        if let Some(problem) = problem.filter(|problem| !heals(problem)) {
            return Err(problem.into());
        }
        let pause = pause.after(started.elapsed());
        tracing::warn!(%status, ?pause, "the control plane ended; it is started again");
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            _ = terminate.recv() => return Ok(()),
        }
    }
}

/// How the control plane ended, and why, if it could say so.
async fn ended(child: &mut Child) -> Result<(ExitStatus, Option<Problem>)> {
    let mut answer = Vec::new();
    if let Some(out) = child.stdout.take() {
        out.take(ANSWER_BYTES).read_to_end(&mut answer).await?;
    }
    Ok((child.wait().await?, serde_json::from_slice(&answer).ok()))
}

/// Whether it may start later with nobody's help: a process that has the store open ends some day.
fn heals(problem: &Problem) -> bool {
    problem.retryable || problem.code == ErrorCode::StoreLocked
}

/// Asks the control plane to end, and waits for it as long as an orderly end takes.
async fn stop(child: &mut Child) {
    if let Some(pid) = child.id().and_then(|pid| rustix::process::Pid::from_raw(pid.cast_signed())) {
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
    }
    if tokio::time::timeout(Duration::from_secs(10), child.wait()).await.is_err() {
        let _ = child.kill().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_somebody_must_correct_is_not_tried_again() {
        let heals = |code| heals(&Problem::new(code, "", ""));
        assert!(
            heals(ErrorCode::StoreUnavailable) && heals(ErrorCode::StoreLocked) && heals(ErrorCode::Internal)
        );
        assert!(!heals(ErrorCode::Misconfigured) && !heals(ErrorCode::VersionUnsupported));
    }
}
