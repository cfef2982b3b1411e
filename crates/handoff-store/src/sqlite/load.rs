//! Loads what a batch has to know: whole states, as the machine looks at them.

use std::collections::BTreeMap;

use handoff_core::state::State;
use handoff_core::transfer::Transfer;
use handoff_protocol::{ProjectId, SessionId, TransferId};
use rusqlite::{Connection, params};

use super::cells;
use super::{
    assignment_row, authorization_row, budget_row, epoch_row, record_row, request_row, session_row,
    token_row, transfer_row,
};
use crate::chain::{ChainKey, Head};
use crate::failure::Failure;
use crate::fold::{Loaded, SessionKey, Wanted};

const HOME: &str = "SELECT session_id FROM transfers WHERE project_id = ?1 AND transfer_id = ?2";

const UNCLOSED: &str = "SELECT transfer_id FROM transfers
    WHERE project_id = ?1 AND session_id = ?2 AND ledger_closed = 0";

/// What the store knows of what is wanted.
pub(super) fn load(connection: &Connection, wanted: &Wanted) -> Result<Loaded, Failure> {
    let mut loaded = Loaded::default();
    let mut sessions: BTreeMap<SessionKey, Vec<TransferId>> =
        wanted.sessions.iter().map(|key| (*key, Vec::new())).collect();
    for (project, transfer) in &wanted.transfers {
        if let Some(session) = home(connection, *project, *transfer)? {
            sessions.entry((*project, session)).or_default().push(*transfer);
        }
    }
    for ((project, session), named) in sessions {
        if let Some(state) = state(connection, project, session, &named)? {
            loaded.states.insert((project, session), state);
        }
    }
    for key in &wanted.requests {
        if let Some(remembered) = request_row::load(connection, key)? {
            loaded.requests.insert(key.clone(), remembered);
        }
    }
    for (project, token) in &wanted.tokens {
        if token_row::is_spent(connection, *project, *token)? {
            loaded.tokens.insert((*project, *token));
        }
    }
    for project in &wanted.rooms {
        loaded.rooms.insert(*project, assignment_row::rooms(connection, *project)?);
    }
    Ok(loaded)
}

fn home(
    connection: &Connection,
    project: ProjectId,
    transfer: TransferId,
) -> Result<Option<SessionId>, Failure> {
    cells::one(connection, HOME, [project.to_string(), transfer.to_string()], |cells| cells.id())
}

/// A session with its pending and live transfer, those that are not closed, those that were named, and those
/// that these were carved from.
fn state(
    connection: &Connection,
    project: ProjectId,
    session: SessionId,
    named: &[TransferId],
) -> Result<Option<State>, Failure> {
    let Some(found) = session_row::load(connection, project, session)? else { return Ok(None) };
    let keys = params![project.to_string(), session.to_string()];
    let mut left = cells::all(connection, UNCLOSED, keys, |cells| cells.id())?;
    left.extend(named.iter().copied().chain(found.pending).chain(found.live));
    let mut transfers = BTreeMap::new();
    while let Some(id) = left.pop() {
        if transfers.contains_key(&id) {
            continue;
        }
        let there = transfer(connection, project, id)?;
        let there = there.ok_or_else(|| Failure::Broken(format!("transfer {id} of session {session}")))?;
        left.extend(there.budget.and_then(|budget| budget.carved).map(|carved| carved.from));
        transfers.insert(id, there);
    }
    Ok(Some(State { session: Some(found), transfers, rooms: BTreeMap::new() }))
}

/// A transfer with all that hangs on it.
pub(super) fn transfer(
    connection: &Connection,
    project: ProjectId,
    id: TransferId,
) -> Result<Option<Transfer>, Failure> {
    let Some((mut transfer, authorization)) = transfer_row::load(connection, project, id)? else {
        return Ok(None);
    };
    transfer.budget = budget_row::load(connection, project, id)?;
    assignment_row::load(connection, project, &mut transfer)?;
    transfer.epochs = epoch_row::load(connection, project, id)?;
    transfer.spent_tokens = token_row::of_transfer(connection, project, id)?;
    if let Some(last) = authorization {
        let found = authorization_row::load(connection, project, last)?;
        transfer.authorization =
            Some(found.ok_or_else(|| Failure::Broken(format!("authorization {last} of transfer {id}")))?);
    }
    Ok(Some(transfer))
}

/// The last rows of chains.
pub(super) fn heads(
    connection: &Connection,
    chains: impl IntoIterator<Item = ChainKey>,
) -> Result<BTreeMap<ChainKey, Head>, Failure> {
    chains.into_iter().map(|chain| Ok((chain, record_row::head(connection, chain)?))).collect()
}
