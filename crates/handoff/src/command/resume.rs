//! `handoff resume`: a session runs again from its last snapshot, as a new transfer.

use anyhow::Result;
use handoff_protocol::listing::ViewQuery;
use handoff_protocol::request::{Activate, IssueToken, Operation, Provision, Push, Stage};

use crate::cli::Resume;
use crate::command::status;
use crate::config::Home;
use crate::output::Output;
use crate::serving;

/// Stages, provisions, pushes and activates.
pub async fn run(home: &Home, arguments: Resume, output: Output) -> Result<()> {
    let client = serving::ensure(home).await?.in_role("orchestrator");
    let session = client.session(arguments.session).await?;
    let stage = Stage {
        request_id: None,
        session_id: Some(arguments.session),
        expected_epoch: Some(session.epoch),
        snapshot: None,
        input: None,
        source_host: Some(serving::host_name()),
        is_final: false,
        abandon_source: arguments.abandon_source,
        labels: Default::default(),
    };
    let staged = client.stage(stage).await?;
    let transfer = staged.transfer_id;
    output.progress(format_args!("staged {transfer} from {}", staged.snapshot));
    let token = |operation| IssueToken {
        transfer_id: transfer,
        operation,
        ttl_ms: None,
        max_budget_usd: None,
        tier: None,
    };
    let issued = client.issue_token(token(Operation::ProvisionRuntime)).await?;
    let provision = Provision {
        request_id: None,
        token: Some(issued.token),
        tier: arguments.tier,
        budget_usd: arguments.budget,
        carve: false,
        node_id: None,
    };
    client.provision(transfer, provision).await?;
    output.progress("provisioned; the destination fetches and verifies the snapshot");
    client.push(transfer, Push::default()).await?;
    let issued = client.issue_token(token(Operation::Activate)).await?;
    client.activate(transfer, Activate { token: Some(issued.token), ..Activate::default() }).await?;
    let view = client.transfer(transfer, ViewQuery::default()).await?;
    status::show(&view, output);
    Ok(())
}
