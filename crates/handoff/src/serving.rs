//! Reaching the control plane: connect to the state socket, and where nobody answers, start one in the
//! background, and another when that one ends. A lock elects who does.

use std::io::Read as _;
use std::process::Child;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;
use handoff_client::Client;
use handoff_protocol::{ErrorCode, Problem};
use tokio::time::sleep;

use crate::config::Home;
use crate::process::{is_taken, start_answering, take_role};
use crate::refusal::{OrRefuse as _, refuse};

/// How long a control plane may take to answer after its start.
const START_WITHIN: Duration = Duration::from_secs(20);
/// The pause between two starts of a supervisor.
const BETWEEN_STARTS: Duration = Duration::from_millis(100);

/// A client of a control plane that answers. Where that one ends in the meantime, because it was idle or because it
/// was told to, the client's next call starts another.
pub async fn ensure(home: &Home) -> Result<Client> {
    let starter = Arc::new(Starter::new(home));
    let deadline = Instant::now() + START_WITHIN;
    while !answers(home).await {
        starter.start_where_none_runs()?;
        if Instant::now() > deadline {
            let message = format!("the control plane did not start within {} s", START_WITHIN.as_secs());
            let hint = format!("see {}", home.log().join("supervise.log").display());
            return Err(refuse(ErrorCode::StoreUnavailable, message, hint));
        }
        sleep(Duration::from_millis(20)).await;
    }
    Ok(connect(home).when_away(move || {
        if let Err(error) = starter.start_where_none_runs() {
            tracing::warn!(error = format!("{error:#}"), "the control plane cannot be started");
        }
    }))
}

/// Starts a supervisor where none runs, and again when the one that it started has ended: an earlier one that was
/// still ending may have been in its way.
struct Starter {
    home: Home,
    started: Mutex<Started>,
}

#[derive(Default)]
struct Started {
    supervisor: Option<Child>,
    last: Option<Instant>,
}

impl Starter {
    fn new(home: &Home) -> Self {
        Self { home: home.clone(), started: Mutex::default() }
    }

    /// Refuses with what the supervisor says that somebody must correct first.
    fn start_where_none_runs(&self) -> Result<()> {
        let home = &self.home;
        home.prepare()?;
        let mut started = self.started.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(supervisor) = &mut started.supervisor {
            if supervisor.try_wait()?.is_none() {
                return Ok(());
            }
            let ended = started.supervisor.take();
            if let Some(problem) = ended.and_then(last_words) {
                return Err(problem.into());
            }
        }
        if started.last.is_some_and(|last| last.elapsed() < BETWEEN_STARTS) {
            return Ok(());
        }
        let Some(_starting) = take_role(home, "start")? else { return Ok(()) };
        if !is_taken(home, "supervise")? {
            started.last = Some(Instant::now());
            started.supervisor = Some(start_answering(home, "supervise", &["supervise"])?);
        }
        Ok(())
    }
}

/// Why a supervisor ended, if not in order.
fn last_words(mut ended: Child) -> Option<Problem> {
    let mut text = String::new();
    ended.stdout.take()?.read_to_string(&mut text).ok()?;
    serde_json::from_str(&text).ok()
}

/// A client of the state socket, whether anybody answers or not.
pub fn connect(home: &Home) -> Client {
    Client::unix(home.socket()).retrying(Duration::from_secs(15))
}

/// Whether a control plane answers, without starting one.
pub async fn answers(home: &Home) -> bool {
    Client::unix(home.socket()).health().await.is_ok()
}

/// This host's name, for people.
pub fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Reads a token from a file, or from standard input.
pub fn read_token(path: &std::path::Path) -> Result<handoff_protocol::request::TokenText> {
    let text = if path == std::path::Path::new("-") {
        std::io::read_to_string(std::io::stdin())?
    } else {
        let message = format!("the token file {} cannot be read", path.display());
        let hint = "name a file with the token, or - for standard input";
        std::fs::read_to_string(path).or_refuse(ErrorCode::InvalidArgument, message, hint)?
    };
    Ok(handoff_protocol::request::TokenText::new(text.trim().to_owned()))
}
