//! A gateway with one destination, its door, and an upstream that the test plays.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use handoff_gateway::clock::{Clock, HandClock};
use handoff_gateway::control::{
    Acknowledge, Admit, Close, Closed, DestinationKey, EpochState, Lease, Limit, Meter, MeterState, Open,
    Resolve, Stand,
};
use handoff_gateway::meter::Mode;
use handoff_gateway::{ClientError, Gateway, GatewayClient, GatewayOptions, Policy, Running};
use handoff_protocol::money::PicoUsd;
use handoff_protocol::{Digest, ErrorCode, IncarnationId, NanoUsd, Tier, TransferId};
use http::{HeaderMap, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use tokio::runtime::Runtime;
use tokio::time::timeout;

use crate::upstream::{DEADLINE, Upstream};

pub(crate) const TOKEN: &str = "agent-token";
pub(crate) const BOOT: &str = "boot-1";
pub(crate) const EPOCH: u64 = 2;
pub(crate) const CHAT: &str = "/u/v1/chat/completions";

pub(crate) struct World {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) upstream: Upstream,
    pub(crate) clock: Arc<HandClock>,
    pub(crate) policy: Policy,
    pub(crate) open: Open,
    pub(crate) client: GatewayClient,
    running: Option<Process>,
    others: Vec<Removed>,
}

/// A gateway on a runtime of its own, so that it can end without finishing anything.
struct Process {
    runtime: Option<Runtime>,
    running: Option<Running>,
}

impl Process {
    async fn start(options: GatewayOptions) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let running = runtime.spawn(Gateway::start(options)).await.expect("no panic").expect("a gateway");
        Self { runtime: Some(runtime), running: Some(running) }
    }

    async fn stop(mut self) {
        let (runtime, running) = (self.runtime.as_ref(), self.running.take());
        let ending = running.expect("it runs").shutdown(DEADLINE);
        runtime.expect("it runs").spawn(ending).await.expect("no panic");
        self.kill().await;
    }

    async fn kill(mut self) {
        let runtime = self.runtime.take().expect("it runs");
        // Writes that were handed to the kernel are finished, as they would be after a kill.
        tokio::task::spawn_blocking(move || runtime.shutdown_timeout(DEADLINE)).await.expect("no panic");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// A folder that is removed with its owner.
struct Removed(PathBuf);

impl Drop for Removed {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub(crate) fn usd(text: &str) -> NanoUsd {
    text.parse().expect("an amount")
}

/// $1 per million tokens in, $10 out.
pub(crate) fn policy_text(address: std::net::SocketAddr) -> String {
    format!(
        "[[upstream]]\nname = \"u\"\nbase_url = \"http://{address}/v1\"\nwire = \"openai-chat\"\n\
         allow_plain_http = true\n\n\
         [[price]]\nupstream = \"u\"\nmodel = \"m\"\ninput = \"1\"\noutput = \"10\"\n\n\
         [[price]]\nupstream = \"u\"\nmodel = \"free\"\ninput = \"0\"\noutput = \"0\"\n\n"
    )
}

pub(crate) fn tier(run: u64, frozen: u64) -> Tier {
    let run_price = PicoUsd::from_pico(run);
    Tier { run_price, frozen_price: PicoUsd::from_pico(frozen), ..Tier::defaults().remove(0) }
}

impl World {
    /// A world where compute is free, with this much to spend.
    pub(crate) async fn new(limit: &str) -> Self {
        let world = Self::staged(&|address| policy_text(address), tier(0, 0)).await;
        world.admit(EPOCH, usd(limit)).await.expect("admitted");
        world
    }

    /// A world whose destination is open and not admitted.
    pub(crate) async fn staged(policy: &dyn Fn(std::net::SocketAddr) -> String, tier: Tier) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let upstream = Upstream::start().await;
        let policy = Policy::parse(&policy(upstream.address)).expect("a policy");
        let clock = Arc::new(HandClock::new(BOOT, 1_000_000));
        let door_dir = folder.path().join("door");
        std::fs::create_dir(&door_dir).expect("a folder");
        let destination = DestinationKey { transfer_id: TransferId::from_u128(7), generation: 1 };
        let open = Open {
            destination,
            door_dir,
            agent_token_digest: Digest::of(TOKEN.as_bytes()),
            tier,
            tick_ms: 1000,
            grace_ms: 60_000,
            wind_down_usd: usd("0.5"),
            references: Vec::new(),
            upstreams: Vec::new(),
        };
        let client = GatewayClient::new(folder.path().join("home/gateway.sock"));
        let mut world =
            Self { folder, upstream, clock, policy, open, client, running: None, others: Vec::new() };
        world.start().await;
        world.client.ask(&world.open.clone()).await.expect("opened");
        world
    }

    pub(crate) fn home(&self) -> PathBuf {
        self.folder.path().join("home")
    }

    pub(crate) fn journal(&self) -> PathBuf {
        self.home().join("holds").join(format!("{}.holds", self.key()))
    }

    pub(crate) fn key(&self) -> DestinationKey {
        self.open.destination
    }

    /// Starts the gateway.
    pub(crate) async fn start(&mut self) {
        let clock: Arc<dyn Clock> = self.clock.clone();
        let options = GatewayOptions { home: self.home(), policy: self.policy.clone(), clock, env: |_| None };
        self.running = Some(Process::start(options).await);
    }

    /// Another policy is put in force while the gateway runs.
    pub(crate) async fn take_up(&mut self, text: &str) {
        self.policy = Policy::parse(text).expect("a policy");
        let running = self.running.as_ref().and_then(|process| process.running.as_ref());
        running.expect("it runs").take_up(self.policy.clone()).await.expect("taken up");
    }

    /// Stops the gateway in good order.
    pub(crate) async fn stop(&mut self) {
        self.running.take().expect("it runs").stop().await;
    }

    /// Ends the gateway in the middle of whatever it is doing.
    pub(crate) async fn kill(&mut self) {
        self.running.take().expect("it runs").kill().await;
    }

    /// Removes a folder when the world ends.
    pub(crate) fn keep_until_the_end(&mut self, folder: PathBuf) {
        self.others.push(Removed(folder));
    }

    /// Starts the gateway again with `journal` as the file that was left, and adopts what runs.
    pub(crate) async fn restart(&mut self) {
        self.start().await;
        self.client.ask(&self.open.clone()).await.expect("opened");
        self.client.ask(&Resolve { destination: self.key() }).await.expect("resolved");
    }

    pub(crate) async fn admit(&self, epoch: u64, limit_usd: NanoUsd) -> Result<(), ErrorCode> {
        let admit = Admit {
            destination: self.key(),
            epoch,
            incarnation: IncarnationId::from_u128(u128::from(epoch)),
            limit_usd,
            run_until_boot_ms: self.clock.boot_ms() + 1_000_000,
            boot_id: BOOT.to_owned(),
        };
        code(self.client.ask(&admit).await).map(drop)
    }

    pub(crate) async fn lease(&self, epoch: u64, for_ms: u64) -> Result<(), ErrorCode> {
        let run_until_boot_ms = self.clock.boot_ms() + for_ms;
        let boot_id = BOOT.to_owned();
        let lease = Lease { destination: self.key(), epoch, run_until_boot_ms, boot_id };
        code(self.client.ask(&lease).await).map(drop)
    }

    pub(crate) async fn limit(&self, epoch: u64, limit_usd: NanoUsd) {
        let limit = Limit { destination: self.key(), epoch, limit_usd };
        self.client.ask(&limit).await.expect("a limit");
    }

    pub(crate) async fn stand(&self, mode: Mode) {
        let stand = Stand { destination: self.key(), mode };
        self.client.ask(&stand).await.expect("it stands");
    }

    pub(crate) async fn close(&self, epoch: u64) -> Closed {
        let wait_ms = u64::try_from(DEADLINE.as_millis()).expect("seconds");
        let close = Close { destination: self.key(), epoch, at_boot_ms: None, wait_ms };
        self.client.ask(&close).await.expect("closed")
    }

    pub(crate) async fn acknowledge(&self, epoch: u64, seq: u64) -> Result<(), ErrorCode> {
        code(self.client.ask(&Acknowledge { destination: self.key(), epoch, seq }).await).map(drop)
    }

    /// The state as it is.
    pub(crate) async fn state(&self) -> MeterState {
        let meter = Meter { destination: self.key(), after: 0, wait_ms: 0 };
        self.client.ask(&meter).await.expect("a state")
    }

    /// The first state with this property, by long poll.
    pub(crate) async fn until(&self, holds: impl Fn(&MeterState) -> bool) -> MeterState {
        let mut after = 0;
        let found = async {
            loop {
                let meter = Meter { destination: self.key(), after, wait_ms: 10_000 };
                let state = self.client.ask(&meter).await.expect("a state");
                if holds(&state) {
                    return state;
                }
                after = state.revision;
            }
        };
        timeout(DEADLINE, found).await.expect("the state in time")
    }

    /// The account of an epoch, once no call is under way.
    pub(crate) async fn settled(&self, epoch: u64) -> EpochState {
        let state = self.until(|state| of(state, epoch).is_some_and(|epoch| epoch.holds_open == 0)).await;
        of(&state, epoch).expect("it was there").clone()
    }

    pub(crate) fn door(&self) -> Door {
        Door { path: self.open.door_dir.join("gateway.sock") }
    }

    /// Calls the model, and plays the upstream's part with this usage.
    pub(crate) async fn call(&mut self, body: &str, input: u64, output: u64) -> Answer {
        let door = self.door();
        let calling = tokio::spawn({
            let body = body.to_owned();
            async move { door.post(CHAT, &body).await }
        });
        self.upstream.asked().await.used(input, output).await;
        calling.await.expect("an answer")
    }
}

pub(crate) fn of(state: &MeterState, epoch: u64) -> Option<&EpochState> {
    state.epochs.iter().find(|found| found.epoch == epoch)
}

pub(crate) fn code<T>(outcome: Result<T, ClientError>) -> Result<T, ErrorCode> {
    outcome.map_err(|error| match error {
        ClientError::Refused(problem) => problem.code,
        other => panic!("{other:?}"),
    })
}

/// A request of exactly so many bytes.
pub(crate) fn body(max_tokens: Option<u64>, stream: bool, bytes: usize) -> String {
    let limit = max_tokens.map_or(String::new(), |limit| format!(",\"max_tokens\":{limit}"));
    let stream = if stream { ",\"stream\":true" } else { "" };
    let text = |fill: usize| {
        let fill = "x".repeat(fill);
        format!(
            "{{\"model\":\"m\"{limit}{stream},\"messages\":[{{\"role\":\"user\",\"content\":\"{fill}\"}}]}}"
        )
    };
    text(bytes.checked_sub(text(0).len()).expect("room for the frame"))
}

/// The agent's side of the door.
#[derive(Clone)]
pub(crate) struct Door {
    path: PathBuf,
}

/// A whole answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    /// What came of the body.
    pub(crate) body: Vec<u8>,
    /// The body came to its end.
    pub(crate) complete: bool,
}

/// An answer that is still coming. Dropped, the agent hangs up.
pub(crate) struct Reading {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    incoming: Incoming,
    connection: tokio::task::JoinHandle<()>,
}

impl Answer {
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).expect("JSON")
    }

    /// The stable word of a refusal.
    pub(crate) fn code(&self) -> String {
        self.json()["error"]["code"].as_str().expect("a code").to_owned()
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("text")
    }
}

impl Door {
    pub(crate) async fn post(&self, path: &str, body: &str) -> Answer {
        let token = format!("Bearer {TOKEN}");
        self.send(request(path, &[("authorization", &token)], body)).await.all().await
    }

    /// Posts and reads the head.
    pub(crate) async fn begin(&self, path: &str, body: &str) -> Reading {
        let token = format!("Bearer {TOKEN}");
        self.send(request(path, &[("authorization", &token)], body)).await
    }

    pub(crate) async fn send(&self, request: Request<Full<Bytes>>) -> Reading {
        let (response, connection) = timeout(DEADLINE, exchange(&self.path, request)).await.expect("in time");
        let (parts, incoming) = response.expect("an answer").into_parts();
        Reading { status: parts.status, headers: parts.headers, incoming, connection }
    }
}

pub(crate) fn request(path: &str, headers: &[(&str, &str)], body: &str) -> Request<Full<Bytes>> {
    let mut request =
        Request::post(path).header("host", "gateway").header("content-type", "application/json");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(Full::new(Bytes::copy_from_slice(body.as_bytes()))).expect("a request")
}

async fn exchange(
    path: &Path,
    request: Request<Full<Bytes>>,
) -> (hyper::Result<http::Response<Incoming>>, tokio::task::JoinHandle<()>) {
    let stream = tokio::net::UnixStream::connect(path).await.expect("a door");
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.expect("a connection");
    let connection = tokio::spawn(async move {
        let _ = connection.await;
    });
    (sender.send_request(request).await, connection)
}

impl Reading {
    /// The next bytes, or none at the end; an error where the answer breaks off.
    pub(crate) async fn next(&mut self) -> Option<Result<Bytes, hyper::Error>> {
        let frame = timeout(DEADLINE, self.incoming.frame()).await.expect("in time")?;
        Some(frame.map(|frame| frame.into_data().expect("no trailers")))
    }

    pub(crate) async fn all(mut self) -> Answer {
        let mut body = Vec::new();
        let complete = loop {
            match self.next().await {
                Some(Ok(bytes)) => body.extend_from_slice(&bytes),
                Some(Err(_)) => break false,
                None => break true,
            }
        };
        let headers = std::mem::take(&mut self.headers);
        Answer { status: self.status, headers, body, complete }
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        self.connection.abort();
    }
}
