//! A new session: its directory as an agent at a source finds it.

use std::path::Path;

use handoff_protocol::SessionId;
use handoff_protocol::document::{
    AgentInfo, Environment, Lineage, McpServer, ModelInfo, SessionDocument, TurnState,
};
use handoff_protocol::session_dir::{
    BOUNDARY, Boundary, MCP_CONFIG, MESSAGES, SESSION, SYSTEM_PROMPT, Standing, TOOL_STATE,
};

use crate::error::AgentError;
use crate::message::{quoted, user};
use crate::{durable, standing};

/// The kind that a session document names for this loop.
pub const KIND: &str = "handoff";

/// What a session begins with.
#[derive(Debug, Clone)]
pub struct NewSession<'s> {
    /// Its name, for as long as it exists anywhere.
    pub session_id: SessionId,
    /// Its system prompt, if it has one.
    pub system_prompt: Option<&'s str>,
    /// The first thing that is said to it; without one it waits.
    pub first_user_message: Option<&'s str>,
    /// The model it talks to.
    pub model: Option<ModelInfo>,
    /// Its tool servers.
    pub mcp_config: &'s [McpServer],
    /// The host's name, for people.
    pub source_host: &'s str,
    /// Its workspace, for people and for paths in the history.
    pub workspace: &'s Path,
}

/// Makes the session directory. The session has epoch 1 and this host holds it; it gets an id when it is staged
/// for the first time.
///
/// # Errors
/// The directory holds something already, or cannot be written.
pub fn new_session(dir: &Path, new: &NewSession<'_>) -> Result<(), AgentError> {
    let file = |error| AgentError::file(dir, error);
    std::fs::create_dir_all(dir).map_err(file)?;
    if std::fs::read_dir(dir).map_err(file)?.next().is_some() {
        return Err(AgentError::NotEmpty(dir.to_owned()));
    }
    let messages = new.first_user_message.map(|text| format!("{}\n", user(text))).unwrap_or_default();
    let said = new.first_user_message.is_some();
    let boundary = Boundary {
        step: 0,
        messages_bytes: messages.len() as u64,
        messages: u64::from(said),
        turn: if said { TurnState::ModelNext } else { TurnState::Idle },
    };
    let prompt = new.system_prompt.map_or_else(|| "null".to_owned(), quoted);
    for (name, text) in [
        (SYSTEM_PROMPT, prompt),
        (MESSAGES, messages),
        (TOOL_STATE, "{}".to_owned()),
        (MCP_CONFIG, json(&new.mcp_config)),
        (SESSION, json(&document(new))),
        (BOUNDARY, json(&boundary)),
    ] {
        durable::prepare(dir, name, text.as_bytes()).map_err(file)?;
    }
    // Last, and durable with everything before: an agent refuses to start without it.
    standing::write(dir, &Standing::Holder { session_id: new.session_id, epoch: 1 })
}

fn json<T: serde::Serialize>(value: &T) -> String {
    serde_json::to_string(value).expect("plain data")
}

fn document(new: &NewSession<'_>) -> SessionDocument {
    SessionDocument {
        lineage: Lineage {
            session_id: None,
            epoch: None,
            parent: None,
            source_host: new.source_host.to_owned(),
        },
        agent: AgentInfo { kind: KIND.to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() },
        spent_usd: None,
        environment: Environment {
            os: std::env::consts::OS.to_owned(),
            arch: std::env::consts::ARCH.to_owned(),
            workspace: Some(new.workspace.to_string_lossy().into_owned()),
        },
        turn: if new.first_user_message.is_some() { TurnState::ModelNext } else { TurnState::Idle },
        model: new.model.clone(),
        report: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new() -> NewSession<'static> {
        NewSession {
            session_id: SessionId::from_u128(1),
            system_prompt: Some("be brief"),
            first_user_message: Some("é \"go\""),
            model: None,
            mcp_config: &[],
            source_host: "laptop",
            workspace: Path::new("/w"),
        }
    }

    #[test]
    fn a_new_session_can_be_opened_and_is_not_made_twice() {
        let dir = tempfile::tempdir().expect("a directory");
        new_session(dir.path(), &new()).expect("made");
        let loaded = crate::journal::Journal::lock(dir.path()).expect("free").load().expect("loads");
        assert_eq!((loaded.durable.clone(), loaded.recovered.model_next), (loaded.now, true));
        assert_eq!(loaded.system, r#"{"role":"system","content":"be brief"}"#);
        assert_eq!(loaded.document.expect("there").environment.workspace.as_deref(), Some("/w"));
        assert_eq!(standing::may_run(dir.path()).expect("a holder"), 1);
        assert!(matches!(new_session(dir.path(), &new()), Err(AgentError::NotEmpty(_))));
    }

    #[test]
    fn without_a_first_message_it_waits() {
        let dir = tempfile::tempdir().expect("a directory");
        let quiet = NewSession { first_user_message: None, system_prompt: None, ..new() };
        new_session(dir.path(), &quiet).expect("made");
        let loaded = crate::journal::Journal::lock(dir.path()).expect("free").load().expect("loads");
        assert_eq!((loaded.durable.clone(), loaded.durable.turn), (loaded.now, TurnState::Idle));
        assert_eq!((loaded.system.as_str(), loaded.recovered.model_next), ("", false));
    }
}
