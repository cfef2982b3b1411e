//! `handoff approve`: what waits for a person, and the person's decision.

use anyhow::Result;
use handoff_protocol::request::ApprovalView;
use serde::Serialize;

use crate::cli::Approve;
use crate::config::Home;
use crate::output::Output;
use crate::serving;

#[derive(Serialize)]
struct Listing {
    schema: &'static str,
    approvals: Vec<ApprovalView>,
}

/// Lists what waits, or decides one.
pub async fn run(home: &Home, arguments: Approve, output: Output) -> Result<()> {
    let client = serving::ensure(home).await?;
    if let Some(approval) = arguments.approval {
        let view = client.decide(approval, !arguments.refuse).await?;
        output.line(summary(&view));
        output.titled("handoff.approve.v1", &view);
        return Ok(());
    }
    let approvals = client.approvals().await?.approvals;
    if approvals.is_empty() {
        output.line("nothing waits for approval");
    }
    for view in &approvals {
        output.line(summary(view));
    }
    output.document(&Listing { schema: "handoff.approval-list.v1", approvals });
    Ok(())
}

fn summary(view: &ApprovalView) -> String {
    let subject: Vec<String> = view.subject.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let decided = match view.approved {
        Some(true) => "approved",
        Some(false) => "refused",
        None => "waits",
    };
    format!(
        "{}  {decided}  {} of {}  asked by {}  {}  until {}",
        view.approval_id,
        view.operation.as_str(),
        view.transfer_id,
        view.asked_by,
        subject.join(" "),
        view.expires_at
    )
}
