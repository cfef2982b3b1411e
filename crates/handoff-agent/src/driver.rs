//! Carries out what the machine says, in order, and reports back. Every decision is the machine's.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use handoff_protocol::Timestamp;
use handoff_protocol::document::ModelInfo;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::control::FromAgent;
use crate::control::channel::{Channel, Incoming};
use crate::error::AgentError;
use crate::journal::{Journal, Loaded};
use crate::machine::{Effect, Event, ExitReason, Machine};
use crate::message::ToolCall;
use crate::model::{Client, Request};
use crate::options::{AgentOptions, Observer, Place, Register};
use crate::outgoing::{Note, Outgoing};
use crate::registry::{Record, Registration, start_ticks};
use crate::standing;
use crate::tools::{OFFERED, StateFile, Tools, Workspace};

/// Runs a session until it is retired or stopped.
///
/// # Errors
/// The session may not run here, is not well, or its directory cannot be written any more: then nothing was done
/// that is not recorded, and a later start goes on from there.
pub async fn run(options: AgentOptions) -> Result<ExitReason, AgentError> {
    let journal = Journal::lock(&options.session_dir)?;
    let epoch = match &options.place {
        Place::Source { .. } => Some(standing::may_run(&options.session_dir)?),
        Place::Destination => None,
    };
    let loaded = journal.load()?;
    let model = loaded.document.as_ref().and_then(|document| document.model.clone());
    let registration = register(&options, model)?;
    let stop = options.stop.clone();
    let wait_for_go = options.place == Place::Destination;
    let (mut driver, start) = Driver::new(options, loaded, wait_for_go, epoch)?;
    let ended = driver.drive(start, &stop).await;
    if matches!(ended, Ok(ExitReason::CutOff)) {
        return ended;
    }
    driver.running = None;
    driver.channel.close().await;
    registration.map_or(Ok(()), Registration::leave)?;
    ended
}

fn register(options: &AgentOptions, model: Option<ModelInfo>) -> Result<Option<Registration>, AgentError> {
    let Place::Source { register: Some(Register { home, name }) } = &options.place else { return Ok(None) };
    let pid = std::process::id();
    let control_socket = match &options.control {
        crate::control::Control::Socket(path) => Some(path.clone()),
        crate::control::Control::None | crate::control::Control::Inherited(_) => None,
    };
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let record = Record {
        name: name.clone(),
        pid,
        start_ticks: start_ticks(pid).unwrap_or_default(),
        session_dir: absolute(&options.session_dir)?,
        workspace: absolute(&options.workspace)?,
        control_socket,
        model,
        started_at: Timestamp::from_unix_ms(i64::try_from(since.as_millis()).unwrap_or(i64::MAX)),
    };
    Registration::enter(home, &record).map(Some)
}

fn absolute(path: &std::path::Path) -> Result<std::path::PathBuf, AgentError> {
    path.canonicalize().map_err(|error| AgentError::file(path, error))
}

/// The one thing that is running outside.
struct Running {
    task: AbortOnDropHandle<()>,
    cancel: CancellationToken,
}

struct Driver {
    machine: Machine,
    journal: Journal,
    session_dir: std::path::PathBuf,
    outgoing: Outgoing,
    system: String,
    request: Request,
    client: Arc<Client>,
    tools: Arc<Tools>,
    state: StateFile,
    channel: Channel,
    epoch: Option<u64>,
    running: Option<Running>,
    events: mpsc::UnboundedReceiver<Event>,
    report: mpsc::UnboundedSender<Event>,
    observer: Option<Observer>,
}

impl Driver {
    fn new(
        options: AgentOptions,
        loaded: Loaded,
        wait_for_go: bool,
        epoch: Option<u64>,
    ) -> Result<(Self, Event), AgentError> {
        let document = loaded.document.as_ref();
        let known = document.and_then(|document| document.model.as_ref());
        let name = options.endpoint.model.clone().or_else(|| known.map(|known| known.name.clone()));
        let name = name.ok_or_else(|| AgentError::Options("no model is named".to_owned()))?;
        let limit = options.endpoint.max_tokens.or(known.and_then(|known| known.max_tokens));
        let elsewhere = document.and_then(|document| document.environment.workspace.clone());
        let elsewhere = elsewhere.into_iter().map(Into::into).collect();
        let workspace = Workspace::open(&options.workspace, elsewhere)
            .map_err(|error| AgentError::file(&options.workspace, error))?;
        let (state, tool_state) = StateFile::open(&options.session_dir)?;
        let (report, events) = mpsc::unbounded_channel();
        let driver = Self {
            machine: Machine::at(loaded.durable, loaded.now),
            journal: loaded.journal,
            session_dir: options.session_dir,
            outgoing: loaded.outgoing,
            system: loaded.system,
            request: Request::new(name, limit),
            client: Arc::new(Client::new(&options.endpoint)?),
            tools: Arc::new(Tools::new(workspace, options.limits, tool_state)),
            state,
            channel: Channel::open(options.control)?,
            epoch,
            running: None,
            events,
            report,
            observer: options.observer,
        };
        driver.tell_notes(loaded.notes);
        Ok((driver, Event::Started { recovered: loaded.recovered, wait_for_go, epoch }))
    }

    async fn drive(&mut self, start: Event, stop: &CancellationToken) -> Result<ExitReason, AgentError> {
        let mut next = start;
        loop {
            for effect in self.machine.handle(next) {
                let ended = self.carry_out(&effect).await?;
                if self.observer.as_mut().is_some_and(|observer| !observer.see(&effect)) {
                    return Ok(ExitReason::CutOff);
                }
                if let Some(reason) = ended {
                    return Ok(reason);
                }
            }
            next = self.next_event(stop).await;
        }
    }

    async fn next_event(&mut self, stop: &CancellationToken) -> Event {
        loop {
            if self.machine.awaits_snapshot() && !self.channel.attended() {
                return Event::Unattended;
            }
            tokio::select! {
                biased;
                () = stop.cancelled() => return Event::Stop,
                incoming = self.channel.next() => match incoming {
                    Incoming::Told(line) => return Event::Told(line),
                    Incoming::HungUp => {}
                    Incoming::Closed => return Event::Stop,
                },
                event = self.events.recv() => return event.expect("this side holds a sender itself"),
            }
        }
    }

    async fn carry_out(&mut self, effect: &Effect) -> Result<Option<ExitReason>, AgentError> {
        match effect {
            Effect::Append(message) => {
                self.state.save(&self.tools.state())?;
                self.journal.append(message)?;
                let notes = self.outgoing.push(message);
                self.tell_notes(notes);
            }
            Effect::WriteBoundary(boundary) => {
                self.state.save(&self.tools.state())?;
                self.journal.write_boundary(boundary)?;
            }
            Effect::WriteStanding(standing) => standing::write(&self.session_dir, standing)?,
            Effect::CallModel { ticket } => self.call_model(*ticket),
            Effect::RunTool { ticket, call } => self.run_tool(*ticket, call.clone()),
            Effect::CancelModel | Effect::CancelTool => self.cancel().await,
            Effect::Wait { ticket, wait_ms } => self.after(*wait_ms, Event::WaitOver { ticket: *ticket }),
            Effect::Deadline { ticket, within_ms } => {
                self.after(*within_ms, Event::DeadlineOver { ticket: *ticket });
            }
            Effect::Epoch(epoch) => self.epoch = Some(*epoch),
            Effect::Tell(told) => self.channel.tell(told),
            Effect::Stop(reason) => return Ok(Some(*reason)),
        }
        Ok(None)
    }

    fn call_model(&mut self, ticket: u64) {
        let body = self.request.body(&self.system, self.outgoing.messages(), OFFERED);
        let (client, epoch, report) = (self.client.clone(), self.epoch, self.report.clone());
        self.spawn(move |cancel| async move {
            let called = tokio::select! {
                called = client.call(body, epoch) => called,
                () = cancel.cancelled() => return,
            };
            let event = match called {
                Ok(answered) => {
                    tracing::debug!(tokens = ?answered.tokens, "the model answered");
                    Event::ModelAnswered { ticket, message: answered.message, calls: answered.calls }
                }
                Err(failure) => {
                    tracing::warn!(%failure, "the model was asked in vain");
                    Event::ModelFailed { ticket, failure }
                }
            };
            // Without a driver there is nobody to report to.
            let _ = report.send(event);
        });
    }

    fn run_tool(&mut self, ticket: u64, call: ToolCall) {
        let (tools, report) = (self.tools.clone(), self.report.clone());
        self.spawn(move |cancel| async move {
            let result = tools.run(call, cancel).await;
            let _ = report.send(Event::ToolFinished { ticket, result });
        });
    }

    fn spawn<F: Future<Output = ()> + Send + 'static>(&mut self, work: impl FnOnce(CancellationToken) -> F) {
        let cancel = CancellationToken::new();
        let task = AbortOnDropHandle::new(tokio::spawn(work(cancel.clone())));
        self.running = Some(Running { task, cancel });
    }

    /// Breaks off what is running, and waits until nothing of it runs any more: what a quiesce says must be true.
    async fn cancel(&mut self) {
        let Some(running) = self.running.take() else { return };
        running.cancel.cancel();
        if let Err(error) = running.task.await {
            tracing::warn!(%error, "what was broken off had failed");
        }
    }

    fn after(&self, ms: u64, event: Event) {
        let report = self.report.clone();
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(ms)).await;
            let _ = report.send(event);
        });
    }

    fn tell_notes(&self, notes: Vec<Note>) {
        for note in notes {
            tracing::info!(message = note.message, what = note.what, "the copy for the model was mended");
            self.channel.tell(&FromAgent::Note { message: note.message, what: note.what.to_owned() });
        }
    }
}
