//! `handoff token …`: minting, by an orchestrator, outside of every tool.

use anyhow::Result;
use handoff_protocol::request::IssueToken;

use crate::cli::Token;
use crate::config::Home;
use crate::output::Output;
use crate::serving;

/// Mints a token and shows it once, alone on standard output.
pub async fn run(home: &Home, token: Token, output: Output) -> Result<()> {
    let Token::Issue { transfer, operation, ttl, max_budget, tier } = token;
    let ttl_ms = ttl.map(|seconds| seconds.saturating_mul(1000));
    let body = IssueToken { transfer_id: transfer, operation, ttl_ms, max_budget_usd: max_budget, tier };
    let issued = serving::ensure(home).await?.issue_token(body).await?;
    output.progress(format_args!("{} is good until {} and once", issued.token_id, issued.expires_at));
    output.line(issued.token.expose());
    output.titled("handoff.token-issue.v1", &issued);
    Ok(())
}
