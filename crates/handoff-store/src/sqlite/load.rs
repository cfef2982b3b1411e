//! Loads what a batch has to know: whole states, as the machine looks at them.

use std::collections::BTreeMap;

use handoff_core::state::State;
use handoff_core::transfer::Transfer;
use handoff_protocol::{ProjectId, SessionId, TransferId};
use rusqlite::Connection;

use super::cache::Cache;
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

/// What the store knows of what is wanted. What is taken out of the cache is put back by whoever commits.
pub(super) fn load(connection: &Connection, wanted: &Wanted, cache: &mut Cache) -> Result<Loaded, Failure> {
    let mut loaded = Loaded::default();
    let mut sessions: BTreeMap<SessionKey, Vec<TransferId>> =
        wanted.sessions.iter().map(|key| (*key, Vec::new())).collect();
    for (project, transfer) in &wanted.transfers {
        let known = cache.home((*project, *transfer));
        let session =
            known.map_or_else(|| home(connection, *project, *transfer), |session| Ok(Some(session)))?;
        if let Some(session) = session {
            sessions.entry((*project, session)).or_default().push(*transfer);
        }
    }
    for (key, named) in sessions {
        let known = match cache.take(key) {
            Some(state) => Some((state, named)),
            None => state(connection, key, named)?,
        };
        if let Some((state, named)) = known {
            loaded.states.insert(key, with_transfers(connection, key, state, named)?);
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

/// A session without transfers, and the transfers to read: its pending and live one, those that are not closed,
/// and those that were named.
fn state(
    connection: &Connection,
    (project, session): SessionKey,
    mut named: Vec<TransferId>,
) -> Result<Option<(State, Vec<TransferId>)>, Failure> {
    let Some(found) = session_row::load(connection, project, session)? else { return Ok(None) };
    let key = [project.to_string(), session.to_string()];
    named.extend(cells::all(connection, UNCLOSED, key, |cells| cells.id::<TransferId>())?);
    named.extend(found.pending.into_iter().chain(found.live));
    Ok(Some((State { session: Some(found), ..State::default() }, named)))
}

/// Adds transfers to a state, and those that they were carved from.
fn with_transfers(
    connection: &Connection,
    (project, session): SessionKey,
    mut state: State,
    mut left: Vec<TransferId>,
) -> Result<State, Failure> {
    while let Some(id) = left.pop() {
        if state.transfers.contains_key(&id) {
            continue;
        }
        let there = transfer(connection, project, id)?;
        let there = there.ok_or_else(|| Failure::Broken(format!("transfer {id} of session {session}")))?;
        left.extend(there.budget.and_then(|budget| budget.carved).map(|carved| carved.from));
        state.transfers.insert(id, there);
    }
    Ok(state)
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
    cache: &Cache,
) -> Result<BTreeMap<ChainKey, Head>, Failure> {
    let head = |chain| match cache.head(chain) {
        Some(head) => Ok((chain, head)),
        None => Ok((chain, record_row::head(connection, chain)?)),
    };
    chains.into_iter().map(head).collect()
}
