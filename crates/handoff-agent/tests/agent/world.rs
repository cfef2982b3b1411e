//! A world for one agent: its session, workspace, model, and a way to speak to it.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use handoff_agent::control::{Control, FromAgent, ToAgent};
use handoff_agent::machine::Effect;
use handoff_agent::{
    AgentError, AgentOptions, Endpoint, ExitReason, NewSession, Observer, Place, Reach, new_session,
};
use handoff_protocol::session_dir::{BOUNDARY, Boundary, MESSAGES};
use handoff_scripted_model::{Listen, Options, Record, Running, Script, ScriptedModel, read_log};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// How long anything may take before a test says that it never happens.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A session with its workspace and model.
pub(crate) struct World {
    pub(crate) dir: tempfile::TempDir,
    _model: Running,
}

/// The model of the world in this directory.
pub(crate) fn endpoint(dir: &Path) -> Endpoint {
    let reach = Reach::Socket { path: dir.join("model.sock"), prefix: "/v1".to_owned() };
    Endpoint { model: Some("scripted".to_owned()), ..Endpoint::new(reach) }
}

impl World {
    /// A new session that was told to begin, and a model that plays this script.
    pub(crate) async fn playing(script: Script) -> Self {
        Self::empty(script).await.begun()
    }

    /// The same without a log of requests.
    pub(crate) async fn playing_unlogged(script: Script) -> Self {
        Self::with(script, false).await.begun()
    }

    fn begun(self) -> Self {
        let new = NewSession {
            session_id: handoff_protocol::SessionId::from_u128(1),
            system_prompt: Some("be brief"),
            first_user_message: Some("begin"),
            model: None,
            mcp_config: &[],
            source_host: "laptop",
            workspace: &self.workspace(),
        };
        new_session(&self.session(), &new).expect("a new session");
        self
    }

    /// No session yet.
    pub(crate) async fn empty(script: Script) -> Self {
        Self::with(script, true).await
    }

    async fn with(script: Script, logged: bool) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let mut options = Options::of(script);
        options.log = logged.then(|| dir.path().join("requests.jsonl"));
        options.listen = Listen::Unix(dir.path().join("model.sock"));
        let model = ScriptedModel::start(options).await.expect("a socket");
        let world = Self { dir, _model: model };
        for path in [world.session(), world.workspace()] {
            std::fs::create_dir(path).expect("made");
        }
        world
    }

    pub(crate) fn session(&self) -> PathBuf {
        self.dir.path().join("session")
    }

    pub(crate) fn workspace(&self) -> PathBuf {
        self.dir.path().join("workspace")
    }

    fn socket(&self) -> PathBuf {
        self.dir.path().join("agent.sock")
    }

    /// A source with a control socket.
    pub(crate) fn options(&self) -> AgentOptions {
        let endpoint = endpoint(self.dir.path());
        let control = Control::Socket(self.socket());
        AgentOptions::new(
            self.session(),
            self.workspace(),
            endpoint,
            control,
            Place::Source { register: None },
        )
    }

    pub(crate) fn start(&self) -> Agent {
        Agent::start(self.options(), self.socket())
    }

    pub(crate) fn start_with(&self, options: AgentOptions) -> Agent {
        Agent::start(options, self.socket())
    }

    /// Runs until the agent says that it is idle, then ends it in order.
    pub(crate) async fn run_until_idle(&self) -> ExitReason {
        let mut options = self.options();
        options.control = Control::None;
        let stop = options.stop.clone();
        options.observer = Some(Observer::new(move |effect| {
            if matches!(effect, Effect::Tell(FromAgent::Idle { .. })) {
                stop.cancel();
            }
            true
        }));
        within(handoff_agent::run(options)).await.expect("it runs")
    }

    /// Runs until the agent has carried out so many effects, and cuts it off there. `None`: it was idle before.
    pub(crate) async fn cut_off_after(&self, effects: usize) -> Option<Effect> {
        let mut options = self.options();
        options.control = Control::None;
        let stop = options.stop.clone();
        let seen = Arc::new(Mutex::new((0, None)));
        let count = seen.clone();
        options.observer = Some(Observer::new(move |effect| {
            let mut seen = count.lock().expect("no panic");
            seen.0 += 1;
            seen.1 = Some(effect.clone());
            if matches!(effect, Effect::Tell(FromAgent::Idle { .. })) {
                stop.cancel();
            }
            stop.is_cancelled() || seen.0 < effects
        }));
        match within(handoff_agent::run(options)).await.expect("it runs") {
            ExitReason::CutOff => seen.lock().expect("no panic").1.take(),
            ExitReason::Stopped | ExitReason::Retired => None,
        }
    }

    pub(crate) fn messages(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.session().join(MESSAGES)).expect("messages");
        text.lines().map(str::to_owned).collect()
    }

    pub(crate) fn boundary(&self) -> Boundary {
        let bytes = std::fs::read(self.session().join(BOUNDARY)).expect("a boundary");
        serde_json::from_slice(&bytes).expect("a boundary")
    }

    pub(crate) fn requests(&self) -> Vec<Record> {
        let log = self.dir.path().join("requests.jsonl");
        if log.exists() { read_log(&log).expect("a log") } else { Vec::new() }
    }

    pub(crate) fn file(&self, name: &str) -> String {
        std::fs::read_to_string(self.workspace().join(name)).unwrap_or_default()
    }
}

/// What every log of one session must show: no request is refused, and every conversation goes on from the one
/// before.
pub(crate) fn assert_one_conversation(requests: &[Record]) {
    for pair in requests.windows(2) {
        let (before, after) = (&pair[0].message_digests, &pair[1].message_digests);
        assert!(after.starts_with(before), "{} messages, then {}", before.len(), after.len());
    }
    let refused: Vec<_> = requests.iter().filter(|record| record.status == 400).collect();
    assert!(refused.is_empty(), "{refused:?}");
}

/// A running agent and a connection to it.
pub(crate) struct Agent {
    socket: PathBuf,
    pub(crate) stop: CancellationToken,
    task: JoinHandle<Result<ExitReason, AgentError>>,
}

impl Agent {
    fn start(options: AgentOptions, socket: PathBuf) -> Self {
        let stop = options.stop.clone();
        Self { socket, stop, task: tokio::spawn(handoff_agent::run(options)) }
    }

    pub(crate) async fn connect(&self) -> Line {
        let connected = async {
            loop {
                if let Ok(stream) = UnixStream::connect(&self.socket).await {
                    return Line::over(stream);
                }
                tokio::task::yield_now().await;
            }
        };
        within(connected).await
    }

    pub(crate) async fn ended(self) -> Result<ExitReason, AgentError> {
        within(self.task).await.expect("no panic")
    }

    /// Ends it in order.
    pub(crate) async fn stop(self) {
        self.stop.cancel();
        assert_eq!(self.ended().await.expect("it ran"), ExitReason::Stopped);
    }
}

/// One connection of a runtime.
pub(crate) struct Line(BufReader<UnixStream>);

impl Line {
    pub(crate) fn over(stream: UnixStream) -> Self {
        Self(BufReader::new(stream))
    }

    pub(crate) async fn tell(&mut self, line: &ToAgent) {
        let text = serde_json::to_string(line).expect("plain data");
        self.tell_raw(&format!("{text}\n")).await;
    }

    pub(crate) async fn tell_raw(&mut self, text: &str) {
        self.0.get_mut().write_all(text.as_bytes()).await.expect("somebody listens");
    }

    /// The next line; `None` when the agent hung up.
    pub(crate) async fn hear(&mut self) -> Option<FromAgent> {
        let mut text = String::new();
        within(self.0.read_line(&mut text)).await.expect("readable");
        (!text.is_empty()).then(|| serde_json::from_str(&text).expect("a line"))
    }

    /// The first line from now on that this finds something in.
    pub(crate) async fn hear_until<T>(&mut self, find: impl Fn(&FromAgent) -> Option<T>) -> T {
        loop {
            let told = self.hear().await.expect("it is still there");
            if let Some(found) = find(&told) {
                return found;
            }
        }
    }

    /// Quiesces, and says where it stands.
    pub(crate) async fn quiesce(&mut self, within_ms: u64) -> Boundary {
        self.tell(&ToAgent::Quiesce { within_ms, freeze: None }).await;
        self.quiesced().await
    }

    pub(crate) async fn quiesced(&mut self) -> Boundary {
        self.hear_until(|told| match told {
            FromAgent::Quiesced { boundary, .. } => Some(boundary.clone()),
            _ => None,
        })
        .await
    }

    pub(crate) async fn step(&mut self, at_least: u64) {
        self.hear_until(|told| matches!(told, FromAgent::Step { step } if *step >= at_least).then_some(()))
            .await;
    }
}

/// Waits, but not for ever.
pub(crate) async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect("it happens in time")
}

/// Waits for a condition that nothing announces.
pub(crate) async fn until(condition: impl Fn() -> bool) {
    let met = async {
        let mut looks = tokio::time::interval(Duration::from_millis(2));
        while !condition() {
            looks.tick().await;
        }
    };
    within(met).await;
}

/// Writes a history of these messages, as a restore does, with a boundary at their end.
pub(crate) fn restore(
    session: &Path,
    system_prompt: &str,
    messages: &[&str],
    turn: handoff_protocol::document::TurnState,
) {
    use handoff_protocol::session_dir::{SYSTEM_PROMPT, TOOL_STATE};
    let text: String = messages.iter().map(|message| format!("{message}\n")).collect();
    let boundary =
        Boundary { step: 1, messages_bytes: text.len() as u64, messages: messages.len() as u64, turn };
    std::fs::write(session.join(SYSTEM_PROMPT), system_prompt).expect("written");
    std::fs::write(session.join(MESSAGES), text).expect("written");
    std::fs::write(session.join(TOOL_STATE), "{}").expect("written");
    std::fs::write(session.join(BOUNDARY), serde_json::to_vec(&boundary).expect("data")).expect("written");
}

impl World {
    /// Starts an agent, lets it do one more step, and ends it in order.
    pub(crate) async fn run_once_more(&self) {
        let agent = self.start();
        let step = self.boundary().step;
        agent.connect().await.step(step + 1).await;
        agent.stop().await;
    }
}
