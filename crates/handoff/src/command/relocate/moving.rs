//! The steps of a move, in order, each durable before the next depends on it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use handoff_agent::control::Freeze;
use handoff_client::{Client, ClientBlobs, ClientError};
use handoff_protocol::listing::ViewQuery;
use handoff_protocol::node::ObservedState;
use handoff_protocol::request::{
    Activate, IssueToken, Operation, Provision, Push, Refresh, Stage, TransferView,
};
use handoff_protocol::session_dir::{Boundary, Standing};
use handoff_protocol::{Digest, ErrorCode, IncarnationId, Status, TransferId};
use handoff_snapshot::{CaptureIndex, CaptureSource, Captured, Moment};

use super::journal::{MoveEnd, MoveJournal, unix_ms};
use super::link::SourceLink;
use crate::command::transfer;
use crate::config::Home;
use crate::output::Output;
use crate::refusal::{OrRefuse as _, refuse};
use crate::serving;

/// How long the source may take to reach a step boundary before its running call is interrupted.
const STOP_WITHIN: Duration = Duration::from_secs(20);
/// How long an authorisation may stay open without an outcome.
const OUTCOME_WITHIN: Duration = Duration::from_secs(60);
/// How long a node may take to have room: long enough for one that has just been started.
pub(super) const NODE_WITHIN: Duration = Duration::from_secs(20);
/// How long a destination may go on failing while it is prepared.
const FAILING_FOR: Duration = Duration::from_secs(15);
/// Draft refreshes before the pause, at the most.
const REFRESHES: u32 = 3;
/// A refresh with fewer new bytes than this is as good as none.
const CONVERGED_BYTES: u64 = 1 << 20;

/// A move under way.
pub struct Moving {
    pub(super) home: Home,
    pub(super) client: Client,
    /// None when the source's process has died; its files still say what it may do.
    pub(super) link: Option<SourceLink>,
    pub(super) journal: MoveJournal,
    pub(super) output: Output,
    index: Arc<CaptureIndex>,
    captured: Option<Digest>,
}

/// A move that succeeded.
pub struct Moved {
    /// The transfer as it was confirmed.
    pub view: TransferView,
    /// From the source's stop to the confirmation; not known of a move that was found done.
    pub pause: Option<Duration>,
}

impl Moving {
    /// A move with what it needs.
    pub fn new(
        home: &Home,
        client: Client,
        link: Option<SourceLink>,
        journal: MoveJournal,
        output: Output,
    ) -> Self {
        let client = client.in_role("orchestrator");
        Self { home: home.clone(), client, link, journal, output, index: Arc::default(), captured: None }
    }

    /// All of it, for a source that is still working.
    pub async fn run(&mut self) -> Result<Moved> {
        let paused = self.run_until_pushed().await?;
        self.activate(paused).await
    }

    /// Up to where the destination has verified and loaded the final snapshot: both stand still.
    pub async fn run_until_pushed(&mut self) -> Result<Instant> {
        self.journal.save(&self.home)?;
        self.stage().await?;
        self.provision().await?;
        self.refresh_drafts().await?;
        self.pause_and_push().await
    }

    /// From the pause on.
    pub(super) async fn pause_and_push(&mut self) -> Result<Instant> {
        let paused = Instant::now();
        let captured = self.stop_and_refresh().await?;
        self.push(captured.digest).await?;
        Ok(paused)
    }

    fn say(&self, line: std::fmt::Arguments<'_>) {
        let working = if self.journal.frozen { "" } else { "   (your session is still working here)" };
        self.output.progress(format_args!("  {line}{working}"));
    }

    pub(super) async fn capture(&mut self, moment: Moment) -> Result<Captured> {
        let journal = &self.journal;
        let (state, workspace) = (journal.state_dir.clone(), journal.workspace_dir.clone());
        let mut source = CaptureSource::new(state, Some(workspace), moment, serving::host_name());
        source.session_id = Some(journal.session_id);
        source.epoch = journal.epoch;
        source.exclude = vec![self.home.path().to_owned(), journal.state_dir.clone()];
        source.index = self.index.clone();
        let blobs = ClientBlobs::new(self.client.clone());
        let captured = handoff_snapshot::capture(source, &blobs, self.captured).await?;
        self.captured = Some(captured.digest);
        Ok(captured)
    }

    async fn stage(&mut self) -> Result<()> {
        if let Some(draft) = self.journal.draft {
            return self.send_stage(draft).await;
        }
        let captured = self.capture(Moment::Draft).await?;
        self.journal.draft = Some(captured.digest);
        self.journal.save(&self.home)?;
        self.send_stage(captured.digest).await?;
        let parts = captured.manifest.parts.len();
        self.say(format_args!("staged       {} in {parts} parts", bytes(captured.total_bytes)));
        Ok(())
    }

    /// Sent again, it is the same request and gets the same answer.
    pub(super) async fn send_stage(&mut self, draft: Digest) -> Result<()> {
        let body = Stage {
            request_id: self.journal.request("stage"),
            session_id: Some(self.journal.session_id),
            expected_epoch: self.journal.epoch,
            snapshot: Some(draft),
            input: None,
            source_host: Some(serving::host_name()),
            is_final: false,
            abandon_source: false,
            labels: Default::default(),
        };
        let staged = self.client.stage(body).await?;
        self.journal.transfer_id = Some(staged.transfer_id);
        self.journal.epoch = Some(staged.epoch);
        self.journal.save(&self.home)
    }

    pub(super) fn transfer(&self) -> Result<TransferId> {
        self.journal.transfer_id.context("nothing was staged yet")
    }

    /// A destination may fail once, as when its agent is killed, and is prepared again; one that goes on failing
    /// ends the wait.
    async fn until_it_keeps_failing(&self) -> anyhow::Error {
        let mut failing_since = None;
        loop {
            let observed = match self.transfer() {
                Ok(transfer) => self.client.transfer(transfer, ViewQuery::default()).await.ok(),
                Err(error) => return error,
            };
            let observed = observed.and_then(|view| view.destination?.observed);
            if observed == Some(ObservedState::Failed) {
                let since = *failing_since.get_or_insert_with(Instant::now);
                if since.elapsed() > FAILING_FOR {
                    let message = "the destination cannot be prepared";
                    return refuse(ErrorCode::NotVerified, message, "`handoff logs node` says why");
                }
            } else {
                failing_since = None;
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }

    /// The directory of the transfer's destination, where the node is this machine's.
    pub fn destination(&self, home: &Home) -> Result<PathBuf> {
        let name = self.transfer()?.to_string();
        for entry in std::fs::read_dir(home.node().join("destinations"))? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().starts_with(&name) {
                return Ok(entry.path());
            }
        }
        bail!("{name} has no destination on this machine")
    }

    async fn token(&self, operation: Operation) -> Result<handoff_protocol::request::TokenText> {
        let transfer_id = self.transfer()?;
        let body = IssueToken { transfer_id, operation, ttl_ms: None, max_budget_usd: None, tier: None };
        Ok(self.client.issue_token(body).await?.token)
    }

    pub(super) async fn provision(&mut self) -> Result<()> {
        let token = self.token(Operation::ProvisionRuntime).await?;
        let body = self.journal.provision(token);
        let view = self.provision_when_there_is_room(body).await?;
        let node = view.destination.map(|place| place.node_id.to_string()).unwrap_or_default();
        self.say(format_args!("provisioned  {} on {node}", self.journal.tier));
        Ok(())
    }

    /// A control plane that has just been started waits for its node to register.
    async fn provision_when_there_is_room(&self, body: Provision) -> Result<TransferView> {
        let transfer = self.transfer()?;
        let deadline = Instant::now() + NODE_WITHIN;
        loop {
            match self.client.provision(transfer, body.clone()).await {
                Err(error) if error.code() == Some(ErrorCode::NoNode) && Instant::now() < deadline => {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
                other => return Ok(other?),
            }
        }
    }

    /// Brings the destination close while the source works: it warms what it is given, so that the pause moves
    /// only the rest.
    pub(super) async fn refresh_drafts(&mut self) -> Result<()> {
        for _ in 0..REFRESHES {
            self.wait_until_warm().await?;
            let captured = self.capture(Moment::Draft).await?;
            self.refresh(captured.digest, false).await?;
            self.say(format_args!("refreshed    {} new", bytes(captured.new_bytes)));
            if captured.new_bytes < CONVERGED_BYTES {
                break;
            }
        }
        self.wait_until_warm().await
    }

    async fn wait_until_warm(&self) -> Result<()> {
        let deadline = Instant::now() + Duration::from_secs(10);
        let mut newer_than = None;
        while Instant::now() < deadline {
            let query = ViewQuery { newer_than, wait_s: Some(2), ..ViewQuery::default() };
            let view = self.client.transfer(self.transfer()?, query).await?;
            if view.destination.and_then(|place| place.observed) == Some(ObservedState::Warm) {
                break;
            }
            newer_than = Some(view.version);
        }
        Ok(())
    }

    async fn refresh(&self, snapshot: Digest, is_final: bool) -> Result<()> {
        let body = Refresh {
            request_id: self.journal.request(&format!("refresh.{}.{is_final}", &snapshot.hex()[..24])),
            expected_epoch: self.journal.epoch,
            snapshot: Some(snapshot),
            input: None,
            is_final,
            incarnation: None,
        };
        self.client.refresh(self.transfer()?, body).await?;
        Ok(())
    }

    /// The pause begins: the source stops at a step boundary, and its last snapshot becomes the final one.
    async fn stop_and_refresh(&mut self) -> Result<Captured> {
        let boundary = self.freeze().await?;
        let captured = self.capture(Moment::Final).await?;
        self.refresh(captured.digest, true).await?;
        self.say(format_args!("paused       at step {}, {} new", boundary.step, bytes(captured.new_bytes)));
        Ok(captured)
    }

    /// Stops the source for this transfer, and only then names the return that could be needed. Asked of a source
    /// that is frozen already, it is answered as before.
    pub(super) async fn freeze(&mut self) -> Result<Boundary> {
        let freeze = Freeze {
            session_id: self.journal.session_id,
            transfer_id: self.transfer()?,
            epoch: self.journal.epoch.context("nothing was staged yet")?,
        };
        let (code, hint) = (ErrorCode::MoveBlocked, "start its agent again, then `handoff move --resume`");
        let link = self.link.as_mut().or_refuse(code, "the source is not running", hint)?;
        self.journal.frozen = true;
        self.journal.frozen_at_ms.get_or_insert_with(unix_ms);
        self.journal.save(&self.home)?;
        let boundary = link.freeze(freeze, STOP_WITHIN).await?;
        self.journal.nonce.get_or_insert_with(new_id);
        self.journal.save(&self.home)?;
        Ok(boundary)
    }

    pub(super) async fn push(&mut self, snapshot: Digest) -> Result<()> {
        let request = self.journal.request(&format!("push.{}", &snapshot.hex()[..24]));
        let body = Push { request_id: request, checksum: Some(snapshot), wait_ms: Some(120_000) };
        let push = self.client.push(self.transfer()?, body);
        let view = tokio::select! {
            pushed = push => pushed?,
            failed = self.until_it_keeps_failing() => return Err(failed),
        };
        let view = transfer::verified(view)?;
        if view.status != Status::Pushed {
            bail!("the destination did not verify the snapshot; the transfer is {}", view.status);
        }
        self.say(format_args!("pushed       verified by the destination"));
        Ok(())
    }

    /// The one irreversible step. Only a confirmed `active` ends the source.
    pub async fn activate(&mut self, paused: Instant) -> Result<Moved> {
        self.journal.activations += 1;
        self.journal.save(&self.home)?;
        let view = self.send_activate().await?;
        self.arrived(view, paused).await
    }

    /// An activation whose answer was lost is asked again, with its own request id, until its outcome is known; if
    /// nobody claimed, there is one more.
    pub(super) async fn activate_again(&mut self) -> Result<Moved> {
        let asked = Instant::now();
        if self.journal.activations == 0 {
            return self.activate(asked).await;
        }
        loop {
            match self.send_activate().await {
                Ok(view) => return self.arrived(view, asked).await,
                Err(error) => match error.downcast_ref().and_then(ClientError::code) {
                    Some(ErrorCode::NotResumed) => return self.activate(asked).await,
                    Some(ErrorCode::AlreadyAuthorized) if asked.elapsed() < OUTCOME_WITHIN => {}
                    _ => return Err(error),
                },
            }
        }
    }

    async fn send_activate(&self) -> Result<TransferView> {
        let token = self.token(Operation::Activate).await?;
        let request_id = self.journal.request(&format!("activate.{}", self.journal.activations));
        let body = Activate { request_id, token: Some(token), wait_ms: None };
        Ok(self.client.activate(self.transfer()?, body).await?)
    }

    async fn arrived(&mut self, view: TransferView, paused: Instant) -> Result<Moved> {
        if view.status != Status::Active {
            bail!("the transfer is {}, not active", view.status);
        }
        // Of a move that was resumed the pause began before this process did.
        let pause = self.journal.paused().unwrap_or_else(|| paused.elapsed());
        self.say(format_args!("active       paused {:.1} s", pause.as_secs_f64()));
        self.retire().await?;
        Ok(Moved { view, pause: Some(pause) })
    }

    /// The source ends. Its files stay.
    pub(super) async fn retire(&mut self) -> Result<()> {
        let (session, transfer) = (self.journal.session_id, self.transfer()?);
        match &mut self.link {
            Some(link) => link.retire(session, transfer).await?,
            None => {
                let retired = Standing::Retired { session_id: session, transfer_id: transfer };
                handoff_agent::standing::write(&self.journal.state_dir, &retired)?;
            }
        }
        self.journal.ended = Some(MoveEnd::Moved);
        self.journal.save(&self.home)
    }
}

/// A new move's id.
pub fn new_id() -> IncarnationId {
    IncarnationId::from(uuid::Uuid::now_v7())
}

/// Bytes for people.
pub fn bytes(count: u64) -> String {
    match count {
        0..1024 => format!("{count} B"),
        1024..1_048_576 => format!("{} KiB", count / 1024),
        _ => format!("{}.{} MiB", count / 1_048_576, count % 1_048_576 * 10 / 1_048_576),
    }
}
