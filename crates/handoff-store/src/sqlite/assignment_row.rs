//! `assignments`: which node a transfer is placed on, by generation. The highest one is the present; an earlier
//! one counts until its node proves it absent.

use std::collections::BTreeMap;

use handoff_core::placement::Room;
use handoff_core::state::Generation;
use handoff_core::transfer::{Assignment, Transfer};
use handoff_protocol::node::ObservedState;
use handoff_protocol::{NodeId, ProjectId, Timestamp, TransferId};
use rusqlite::Connection;
use rusqlite::types::ToSql;

use super::cells::{self, Cells, bits};
use crate::changes::TransferChange;
use crate::failure::Failure;
use crate::words::Word;

const SELECT: &str = "SELECT generation, node_id, observed, last_alive_ms
    FROM assignments WHERE project_id = ?1 AND transfer_id = ?2 ORDER BY generation";

const PUT: &str =
    "INSERT INTO assignments (project_id, transfer_id, generation, node_id, observed, last_alive_ms)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6)
    ON CONFLICT (project_id, transfer_id, generation)
    DO UPDATE SET observed = excluded.observed, last_alive_ms = excluded.last_alive_ms
    WHERE assignments.node_id = excluded.node_id";

const PROVE_ABSENT: &str = "UPDATE assignments SET observed = 'absent'
    WHERE project_id = ?1 AND transfer_id = ?2 AND generation = ?3";

const ROOMS: &str = "SELECT n.node_id, n.cpu_millis, n.memory_bytes, n.seen_at_ms,
        coalesce(sum(t.cpu_millis / 2), 0), coalesce(sum(t.memory_bytes), 0)
    FROM nodes AS n
    LEFT JOIN assignments AS a ON a.project_id = n.project_id AND a.node_id = n.node_id
        AND a.observed IS NOT 'absent'
    LEFT JOIN transfers AS t ON t.project_id = a.project_id AND t.transfer_id = a.transfer_id
    WHERE n.project_id = ?1
    GROUP BY n.node_id";

/// Sets the transfer's present and former assignments.
pub(super) fn load(
    connection: &Connection,
    project: ProjectId,
    transfer: &mut Transfer,
) -> Result<(), Failure> {
    let key = [project.to_string(), transfer.id.to_string()];
    let mut rows = cells::all(connection, SELECT, key, read)?;
    transfer.assignment = rows.pop();
    let left = rows.into_iter().filter(|former| former.observed != Some(ObservedState::Absent));
    transfer.former_assignments = left.map(|former| (former.generation, former.node)).collect();
    Ok(())
}

fn read(cells: &mut Cells<'_>) -> Result<Assignment, Failure> {
    Ok(Assignment {
        generation: Generation(cells.count()?),
        node: cells.id()?,
        observed: cells.maybe_word()?,
        last_alive: cells.maybe_time()?,
    })
}

/// Writes the assignments that changed.
pub(super) fn write(connection: &Connection, change: &TransferChange) -> Result<(), Failure> {
    let key = (change.project, change.after.id);
    let was = change.before.as_ref();
    let known = was.map(generations).unwrap_or_default();
    for (generation, node) in &change.after.former_assignments {
        // One that was given and taken again within the batch was never written.
        if !known.contains_key(generation) {
            let former =
                Assignment { node: *node, generation: *generation, observed: None, last_alive: None };
            put(connection, key, &former)?;
        }
    }
    for generation in known.keys() {
        if !generations(&change.after).contains_key(generation) {
            prove_absent(connection, key, *generation)?;
        }
    }
    let present =
        change.after.assignment.filter(|present| was.and_then(|was| was.assignment) != Some(*present));
    present.map_or(Ok(()), |present| put(connection, key, &present))
}

fn generations(transfer: &Transfer) -> BTreeMap<Generation, NodeId> {
    let present = transfer.assignment.map(|present| (present.generation, present.node));
    transfer.former_assignments.iter().map(|(generation, node)| (*generation, *node)).chain(present).collect()
}

fn put(
    connection: &Connection,
    (project, transfer): (ProjectId, TransferId),
    assignment: &Assignment,
) -> Result<(), Failure> {
    let values: [&dyn ToSql; 6] = [
        &project.to_string(),
        &transfer.to_string(),
        &bits(assignment.generation.0),
        &assignment.node.to_string(),
        &assignment.observed.map(Word::word),
        &assignment.last_alive.map(Timestamp::unix_ms),
    ];
    cells::exactly_one(connection, "assignment", PUT, &values[..])
}

fn prove_absent(
    connection: &Connection,
    (project, transfer): (ProjectId, TransferId),
    generation: Generation,
) -> Result<(), Failure> {
    let values: [&dyn ToSql; 3] = [&project.to_string(), &transfer.to_string(), &bits(generation.0)];
    cells::exactly_one(connection, "assignment", PROVE_ABSENT, &values[..])
}

/// The room that each node of the project has left.
pub(super) fn rooms(connection: &Connection, project: ProjectId) -> Result<BTreeMap<NodeId, Room>, Failure> {
    let read = |cells: &mut Cells<'_>| {
        let node = cells.id()?;
        let (cpu, memory, seen_at) = (cells.count()?, cells.count()?, cells.time()?);
        let (cpu_taken, memory_taken) = (cells.count()?, cells.count()?);
        let room = Room {
            cpu_millis: cpu.saturating_sub(cpu_taken),
            memory_bytes: memory.saturating_sub(memory_taken),
            seen_at,
        };
        Ok((node, room))
    };
    Ok(cells::all(connection, ROOMS, [project.to_string()], read)?.into_iter().collect())
}
