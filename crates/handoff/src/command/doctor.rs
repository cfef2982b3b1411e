//! `handoff doctor`: what this machine can enforce, and what stands in the way of a move.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use handoff_gateway::control::{AskPolicy, CheckReferences};
use handoff_gateway::{CONTROL_SOCKET, ClientError, GatewayClient, Policy as GatewayPolicy};
use handoff_protocol::error::Exit;
use handoff_sandbox::{Driver as _, Native};
use serde::Serialize;

use crate::config::{Home, Settings};
use crate::output::Output;
use crate::serving;

/// One check.
#[derive(Debug, Serialize)]
struct Check {
    what: String,
    verdict: Verdict,
    detail: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Verdict {
    Ok,
    Note,
    Lost,
    Broken,
}

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    version: &'static str,
    checks: &'a [Check],
}

/// Checks everything and changes nothing. Exits 3 when something stands in the way of a move.
pub async fn run(home: &Home, output: Output) -> Result<ExitCode> {
    let mut checks = Vec::new();
    checks.extend(state(home));
    checks.extend(settings(home));
    let isolation = isolation().await?;
    checks.extend(degraded(home, &isolation));
    checks.extend(isolation);
    checks.extend(control_plane(home).await);
    checks.extend(upstreams(home).await);
    let width = checks.iter().map(|check| check.what.chars().count()).max().unwrap_or_default();
    for check in &checks {
        let mark = match check.verdict {
            Verdict::Ok => "ok    ",
            Verdict::Note => "note  ",
            Verdict::Lost => "lost  ",
            Verdict::Broken => "broken",
        };
        output.line(format_args!("{mark}  {:<width$}  {}", check.what, check.detail));
    }
    let version = env!("CARGO_PKG_VERSION");
    output.document(&Document { schema: "handoff.doctor.v1", version, checks: &checks });
    let blocked = checks.iter().any(|check| matches!(check.verdict, Verdict::Broken | Verdict::Lost));
    Ok(ExitCode::from(if blocked { Exit::Refused } else { Exit::Ok } as u8))
}

fn check(what: impl Into<String>, verdict: Verdict, detail: impl Into<String>) -> Check {
    // One check is one line.
    let detail = detail.into().lines().map(str::trim).collect::<Vec<_>>().join(" ");
    Check { what: what.into(), verdict, detail }
}

fn state(home: &Home) -> Vec<Check> {
    let path = home.path();
    let mut checks = Vec::new();
    match home.prepare() {
        Ok(()) => checks.push(check("state directory", Verdict::Ok, path.display().to_string())),
        Err(error) => checks.push(check("state directory", Verdict::Broken, format!("{error:#}"))),
    }
    if let Ok(found) = rustix::fs::statvfs(path) {
        let free = found.f_bavail.saturating_mul(found.f_frsize);
        let verdict = if free < 1 << 30 { Verdict::Note } else { Verdict::Ok };
        checks.push(check("free disk", verdict, format!("{} MiB", free >> 20)));
    }
    checks
}

fn settings(home: &Home) -> Vec<Check> {
    match Settings::load(home) {
        Ok(settings) => {
            let tiers = settings.policy().tiers;
            let line = |tier: &handoff_protocol::Tier| {
                let (cores, memory) = (cores(tier.cpu_millis.into()), tier.memory_bytes >> 20);
                format!("{} ({cores}, {memory} MiB, ${}/h)", tier.name, tier.run_cost(3_600_000))
            };
            let tiers: Vec<String> = tiers.iter().map(line).collect();
            vec![check("tiers", Verdict::Ok, tiers.join(", "))]
        }
        Err(error) => vec![check("settings", Verdict::Broken, format!("{error:#}"))],
    }
}

/// Thousandths of a core for people.
fn cores(millis: u64) -> String {
    let part = format!("{:03}", millis % 1_000);
    let part = part.trim_end_matches('0');
    match (millis / 1_000, part) {
        (1, "") => "1 core".to_owned(),
        (whole, "") => format!("{whole} cores"),
        (whole, part) => format!("{whole}.{part} cores"),
    }
}

/// Makes a sandbox, looks, and removes it.
async fn isolation() -> Result<Vec<Check>> {
    let driver = Native::new(std::env::current_exe()?);
    let isolation = tokio::task::spawn_blocking(move || driver.probe()).await?;
    let words = isolation.words();
    let checks = words.into_iter().map(|(what, how)| {
        let verdict = if how.starts_with("lost") { Verdict::Lost } else { Verdict::Ok };
        check(format!("sandbox: {what}"), verdict, how.strip_prefix("lost: ").unwrap_or(&how))
    });
    Ok(checks.collect())
}

/// What is lost is accepted by the caller of a move and by the node's operator, or there is none.
fn degraded(home: &Home, isolation: &[Check]) -> Option<Check> {
    let lost = isolation.iter().any(|check| check.verdict == Verdict::Lost);
    let allowed = Settings::load(home).is_ok_and(|settings| settings.node.allow_degraded);
    let detail = match (lost, allowed) {
        (false, _) => return None,
        (true, true) => "a move here needs --allow-degraded".to_owned(),
        (true, false) => format!(
            "a move here needs --allow-degraded, and `allow_degraded = true` under [node] in {}",
            home.settings().display()
        ),
    };
    Some(check("degraded", Verdict::Note, detail))
}

async fn control_plane(home: &Home) -> Vec<Check> {
    if !serving::answers(home).await {
        let detail = "not running; it starts when it is needed";
        return vec![check("control plane", Verdict::Note, detail)];
    }
    let client = serving::connect(home);
    let health = match client.ready().await {
        Ok(health) => check("control plane", Verdict::Ok, format!("version {}", health.version)),
        Err(error) => check("control plane", Verdict::Broken, error.to_string()),
    };
    let nodes = match client.nodes().await {
        Ok(page) if page.nodes.is_empty() => check("nodes", Verdict::Broken, "none has registered"),
        Ok(page) => {
            let names: Vec<&str> = page.nodes.iter().map(|node| node.name.as_str()).collect();
            check("nodes", Verdict::Ok, names.join(", "))
        }
        Err(error) => check("nodes", Verdict::Broken, error.to_string()),
    };
    vec![health, nodes]
}

/// Whether the model servers of the operator's policy can be reached, without sending anything.
async fn upstreams(home: &Home) -> Vec<Check> {
    let path = home.gateway_policy();
    if !path.exists() {
        let detail = format!("no policy at {}: a moved session could call no model", path.display());
        return vec![check("model upstreams", Verdict::Note, detail)];
    }
    let policy = match GatewayPolicy::load(&path) {
        Ok(policy) => policy,
        Err(error) => return vec![check("model upstreams", Verdict::Broken, error.to_string())],
    };
    let mut checks = gateway(home, &policy).await;
    for upstream in policy.upstreams() {
        let url = &upstream.base_url;
        let (host, port) = (url.host_str().unwrap_or_default(), url.port_or_known_default().unwrap_or(443));
        let connect = tokio::net::TcpStream::connect((host.to_owned(), port));
        let reached = tokio::time::timeout(Duration::from_secs(3), connect).await;
        let (verdict, detail) = match reached {
            Ok(Ok(_)) => (Verdict::Ok, format!("{host}:{port} answers")),
            Ok(Err(error)) => (Verdict::Note, format!("{host}:{port}: {error}")),
            Err(_) => (Verdict::Note, format!("{host}:{port} does not answer")),
        };
        checks.push(check(format!("upstream {}", upstream.name), verdict, detail));
    }
    checks
}

/// What a running gateway makes of the policy; where none runs, what this process would. Only a gateway knows its
/// own environment.
async fn gateway(home: &Home, policy: &GatewayPolicy) -> Vec<Check> {
    let client = GatewayClient::new(home.gateway().join(CONTROL_SOCKET));
    let mut checks = Vec::new();
    let missing = match client.ask(&AskPolicy {}).await {
        Ok(in_force) => {
            checks.push(if in_force.digest == policy.digest() {
                check("gateway", Verdict::Ok, "runs by this policy")
            } else {
                let detail = "runs by an older policy; `handoff logs gateway` says why if it stays so";
                check("gateway", Verdict::Broken, detail)
            });
            let asked = client.ask(&CheckReferences { references: policy.references() }).await;
            asked.map(|reply| reply.missing).unwrap_or_default()
        }
        Err(error) => {
            let detail = match error {
                ClientError::Unreachable { .. } => "not running; it starts when it is needed".to_owned(),
                ClientError::Refused(_) | ClientError::Unreadable(_) => error.to_string(),
            };
            checks.push(check("gateway", Verdict::Note, detail));
            policy.unresolved()
        }
    };
    checks.extend(missing.iter().map(|reference| {
        let detail = "does not resolve: calls that need it are refused";
        check(format!("credential {reference}"), Verdict::Broken, detail)
    }));
    checks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_are_not_rounded_away_and_a_check_is_one_line() {
        assert_eq!(
            [cores(1_000), cores(4_000), cores(500), cores(1_250)],
            ["1 core", "4 cores", "0.5 cores", "1.25 cores"]
        );
        assert_eq!(check("a", Verdict::Broken, "one\n  | two").detail, "one | two");
    }
}
