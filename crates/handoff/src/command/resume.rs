//! `handoff resume`: a session runs again from its last snapshot, as a new transfer.

use anyhow::Result;
use handoff_client::Client;
use handoff_protocol::listing::ViewQuery;
use handoff_protocol::request::{
    Activate, IssueToken, Operation, Provision, Push, SessionView, Stage, Terminate,
};
use handoff_protocol::{ErrorCode, Problem, TransferId};

use crate::cli::Resume;
use crate::command::{plan, status};
use crate::config::Home;
use crate::output::Output;
use crate::serving;

/// Stages, provisions, pushes and activates. What was staged ends again when one of these fails.
pub async fn run(home: &Home, arguments: Resume, output: Output) -> Result<()> {
    plan::tier(home, &arguments.tier)?;
    let client = serving::ensure(home).await?.in_role("orchestrator");
    let session = client.session(arguments.session).await?;
    check_free(&session)?;
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
    if let Err(error) = go_on(&client, transfer, arguments, output).await {
        let reason = format!("resume failed: {error:#}").chars().take(160).collect();
        // If it was claimed after all it is not pending any more, and goes on.
        let view = client.transfer(transfer, ViewQuery::default()).await?;
        if view.status.is_pending() {
            client.terminate(transfer, Terminate { request_id: None, reason }).await?;
        }
        return Err(error);
    }
    let view = client.transfer(transfer, ViewQuery::default()).await?;
    status::show(&view, output);
    Ok(())
}

/// A session that runs, or is on its way, is not run again beside that.
fn check_free(session: &SessionView) -> Result<(), Problem> {
    let Some((transfer, how)) =
        session.pending.map(|id| (id, "on its way")).or(session.live.map(|id| (id, "running")))
    else {
        return Ok(());
    };
    let message = format!("the session is {how} in {transfer}");
    let hint = format!(
        "look with `handoff status {transfer}`, or end it first: `handoff transfer terminate {transfer} --reason WHY`"
    );
    let problem = Problem::new(ErrorCode::SessionBusy, message, hint);
    Err(Problem { transfer_id: Some(transfer), ..problem })
}

async fn go_on(client: &Client, transfer: TransferId, arguments: Resume, output: Output) -> Result<()> {
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
    crate::command::transfer::verified(client.push(transfer, Push::default()).await?)?;
    let issued = client.issue_token(token(Operation::Activate)).await?;
    client.activate(transfer, Activate { token: Some(issued.token), ..Activate::default() }).await?;
    Ok(())
}
