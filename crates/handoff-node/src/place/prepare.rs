//! From nothing to a loaded agent: fetch, restore, open the door, start, sign.

use handoff_agent::control::FromAgent;
use handoff_gateway::control::{CheckReferences, Open};
use handoff_gateway::meter::Mode;
use handoff_protocol::document::McpServer;
use handoff_protocol::id::RequestId;
use handoff_protocol::node::{Destination, ObservedState, Receipt};
use handoff_protocol::{Digest, IncarnationId, session_dir};
use handoff_sandbox::{DOOR_INSIDE, EXE_INSIDE, Name, STATE_INSIDE, Spec, WORKSPACE_INSIDE};
use handoff_snapshot::RestoreTarget;
use std::fmt::Write as _;

use tokio::time::{Duration, Instant, timeout, timeout_at};
use zeroize::Zeroizing;

use super::{Place, StepError, blocking};
use crate::init_link::Inbound;
use crate::plan::Sandbox;
use crate::record::SandboxRecord;

/// How long an agent may take to load a session.
const READY_WITHIN: Duration = Duration::from_secs(60);
/// What became of an agent that did not get that far.
const ENDED: &str = "it ended while it loaded; see its log";
/// Random bytes of an agent's token.
const TOKEN_BYTES: usize = 32;

impl Place {
    pub(super) async fn fetch(&mut self, wanted: &Destination) -> Result<(), StepError> {
        let shared = &self.shared;
        shared.kept.keep(self.key(), wanted.snapshot, &shared.control_plane_blobs).await?;
        handoff_snapshot::fetch(wanted.snapshot, &shared.control_plane_blobs, &shared.blobs).await?;
        self.fetched = Some(wanted.snapshot);
        let _ = self.observe(ObservedState::Warm, None).await;
        Ok(())
    }

    /// Unpacks into this destination's own directories. The sandbox is proved absent here, so nobody else
    /// writes there.
    pub(super) async fn restore(&mut self, wanted: &Destination) -> Result<(), StepError> {
        self.record.restored = None;
        self.record.receipted = None;
        // What was stored before is of an earlier epoch: what follows now follows this snapshot.
        (self.record.checkpoint, self.record.offered, self.record.given) = (None, None, None);
        self.door_open = false;
        let dir = self.dir.clone();
        blocking(move || {
            std::fs::create_dir_all(&dir)?;
            for part in ["state", "workspace"] {
                handoff_snapshot::remove_tree(&dir.join(part))?;
            }
            std::fs::create_dir_all(dir.join("door"))
        })
        .await?;
        self.save().await?;
        let mut target = RestoreTarget::new(self.dir.join("state"), self.dir.join("workspace"));
        // The record that says so is durable, so what it speaks of has to be.
        target.durable = true;
        let restored = handoff_snapshot::restore(wanted.snapshot, &self.shared.blobs, target).await;
        if restored.is_err() {
            // A blob may have gone since it was fetched: looked for again, only what is missing is brought.
            self.fetched = None;
        }
        let restored = restored?;
        self.note_session(&restored.session).await?;
        self.record.restored = Some(wanted.snapshot);
        self.save().await
    }

    /// Which references and which upstream the session names.
    async fn note_session(
        &mut self,
        session: &handoff_protocol::document::SessionDocument,
    ) -> Result<(), StepError> {
        let path = self.dir.join("state").join(session_dir::MCP_CONFIG);
        let servers: Vec<McpServer> = blocking(move || {
            let bytes = std::fs::read(path)?;
            serde_json::from_slice(&bytes).map_err(std::io::Error::other)
        })
        .await?;
        self.record.references = servers.into_iter().filter_map(|server| server.cred_ref).collect();
        self.record.upstreams = session.model.iter().map(|model| model.upstream.clone()).collect();
        Ok(())
    }

    /// The only way out of the sandbox.
    pub(super) async fn open_door(&mut self, wanted: &Destination) -> Result<(), StepError> {
        let Some(agent_token_digest) = self.record.agent_token else {
            // The token itself goes to the agent alone, when it starts.
            self.door_open = true;
            return Ok(());
        };
        let open = Open {
            destination: self.key(),
            door_dir: self.dir.join("door"),
            agent_token_digest,
            tier: wanted.tier.clone(),
            tick_ms: wanted.tick_ms,
            grace_ms: wanted.grace_ms,
            wind_down_usd: wanted.wind_down_usd,
            references: self.record.references.clone(),
            upstreams: self.record.upstreams.clone(),
        };
        self.shared.gateway.ask(&open).await?;
        self.door_open = true;
        Ok(())
    }

    /// Starts the sandbox; the agent loads the session and waits for `go`.
    pub(super) async fn start(&mut self, wanted: &Destination) -> Result<(), StepError> {
        if let Some(until) = self.lives.rest_until.filter(|until| *until > Instant::now()) {
            // Something else may be wanted meanwhile.
            if let Ok(Ok(())) = timeout_at(until, self.wanted.changed()).await {
                return Ok(());
            }
        }
        let incarnation = IncarnationId::from(uuid::Uuid::now_v7());
        let name: Name = format!("{}-{incarnation}", self.key()).parse().expect("ids are lower-case words");
        let token = agent_token()?;
        self.record.agent_token = Some(Digest::of(token.as_bytes()));
        self.record.sandbox = Some(SandboxRecord { name: name.to_string(), incarnation });
        self.record.claim = None;
        self.save().await?;
        self.open_door(wanted).await?;
        let spec = self.spec(wanted, name, incarnation, &token);
        self.sandbox = Sandbox::Dead;
        let driver = self.shared.driver.clone();
        blocking(move || driver.start(&spec)).await?;
        self.sandbox = Sandbox::Alive;
        self.lives.begin(Instant::now());
        let ready = timeout(READY_WITHIN, self.wait_until_ready()).await;
        let ready = ready.unwrap_or(Err(StepError::AgentSilent("load the session")));
        if ready.is_err() {
            self.sandbox = Sandbox::Dead;
        }
        ready?;
        let _ = self.observe(ObservedState::Prepared, None).await;
        Ok(())
    }

    fn spec(&self, wanted: &Destination, name: Name, incarnation: IncarnationId, token: &str) -> Spec {
        let options = &self.shared.options;
        let mut spec = Spec::new(name, &self.dir, &options.executable, wanted.tier.clone(), incarnation);
        let words = [
            EXE_INSIDE,
            "agent",
            "--wait-for-go",
            "--state",
            STATE_INSIDE,
            "--workspace",
            WORKSPACE_INSIDE,
            "--door",
            DOOR_INSIDE,
        ];
        spec.command = words.map(str::to_owned).into();
        spec.env.insert("HANDOFF_AGENT_TOKEN".to_owned(), token.to_owned());
        spec.log = Some(self.dir.join("agent.log"));
        spec.allow_degraded = options.allow_degraded;
        spec
    }

    async fn wait_until_ready(&mut self) -> Result<(), StepError> {
        loop {
            self.connect().await?;
            let Some(link) = self.link.as_mut() else { return Err(StepError::AgentFailed(ENDED.to_owned())) };
            match link.next().await {
                Inbound::Agent(line) => match serde_json::from_str(&line) {
                    Ok(FromAgent::Ready { .. }) => return Ok(()),
                    Ok(FromAgent::Failed { reason }) => return Err(StepError::AgentFailed(reason)),
                    Ok(_) | Err(_) => {}
                },
                end @ (Inbound::Exited(_) | Inbound::Lost) => {
                    self.note_end(&end).await?;
                    if self.sandbox != Sandbox::Alive {
                        return Err(StepError::AgentFailed(ENDED.to_owned()));
                    }
                }
                Inbound::LeaseRanOut => {}
            }
        }
    }

    /// Signs that the snapshot is here, verified and loaded, and which references do not resolve.
    pub(super) async fn send_receipt(&mut self, wanted: &Destination) -> Result<(), StepError> {
        let references = self.record.references.clone();
        let missing = self.shared.gateway.ask(&CheckReferences { references }).await?.missing;
        let (transfer, generation) = (self.record.transfer_id, self.record.generation);
        let digest = wanted.snapshot;
        let total = handoff_snapshot::fetch::manifest(digest, &self.shared.blobs).await?.size();
        let receipt = Receipt {
            request_id: receipt_request(generation, wanted.version, digest),
            node_id: self.shared.identity.id(),
            generation,
            digest,
            bytes_fetched: total,
            bytes_total: total,
            missing_references: missing.iter().map(ToString::to_string).collect(),
            signature: self.shared.identity.sign_receipt(transfer, generation, digest),
        };
        self.shared.client.receipt(transfer, &receipt).await?;
        if missing.is_empty() {
            self.record.receipted = Some(digest);
            self.save().await?;
        }
        Ok(())
    }

    /// What the meter counts time as from now on.
    pub(super) async fn stand(&self, mode: Mode) -> Result<(), StepError> {
        let stand = handoff_gateway::control::Stand { destination: self.key(), mode };
        self.shared.gateway.ask(&stand).await?;
        Ok(())
    }
}

/// A receipt's request id. A push that failed is asked for again, and its receipt may say something else then: the
/// version tells the two apart.
fn receipt_request(generation: u64, version: u64, digest: Digest) -> RequestId {
    let id = format!("receipt.{generation}.{version}.{}", &digest.hex()[..32]);
    id.parse().expect("digits, letters and points")
}

/// A token that opens this destination's door and nothing else.
fn agent_token() -> Result<Zeroizing<String>, StepError> {
    let mut bytes = Zeroizing::new([0u8; TOKEN_BYTES]);
    getrandom::fill(bytes.as_mut_slice())
        .map_err(|_| std::io::Error::other("the system gives no randomness"))?;
    let mut token = Zeroizing::new(String::with_capacity(4 + 2 * TOKEN_BYTES));
    token.push_str("hfa_");
    for byte in bytes.iter() {
        write!(token, "{byte:02x}").expect("a string takes what is written");
    }
    Ok(token)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_receipts_of_two_pushes_are_two_requests_and_one_sent_again_is_the_same() {
        let of = |generation, version| receipt_request(generation, version, Digest::of(b"snapshot"));
        assert_eq!(of(1, 7), of(1, 7));
        assert!(of(1, 7) != of(1, 8) && of(1, 7) != of(2, 7));
        assert_eq!(of(u64::MAX, u64::MAX), of(u64::MAX, u64::MAX), "the largest numbers fit");
    }
}
