//! Reaching the control plane: connect to the state socket, and where nobody answers, start one in the
//! background. A lock elects who starts it.

use std::time::Duration;

use anyhow::Result;
use handoff_client::Client;
use handoff_protocol::ErrorCode;
use tokio::time::{Instant, sleep};

use crate::config::Home;
use crate::process::{start_detached, take_role};
use crate::refusal::{OrRefuse as _, refuse};

/// How long a control plane may take to answer after its start.
const START_WITHIN: Duration = Duration::from_secs(20);

/// A client of a control plane that answers.
pub async fn ensure(home: &Home) -> Result<Client> {
    if answers(home).await {
        return Ok(connect(home));
    }
    home.prepare()?;
    let deadline = Instant::now() + START_WITHIN;
    let mut started = false;
    loop {
        if answers(home).await {
            return Ok(connect(home));
        }
        if !started && let Some(_starting) = take_role(home, "start")? {
            // The supervisor's own lock makes a second one end at once.
            start_detached(home, "supervise", &["supervise"])?;
            started = true;
        }
        if Instant::now() > deadline {
            let message = format!("the control plane did not start within {} s", START_WITHIN.as_secs());
            let hint = format!("see {}", home.log().join("supervise.log").display());
            return Err(refuse(ErrorCode::StoreUnavailable, message, hint));
        }
        sleep(Duration::from_millis(20)).await;
    }
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
