//! `nodes`: who offers destinations, and with which key receipts are signed.

use handoff_core::ledger::NodeRecord;
use handoff_protocol::node::Capacity;
use handoff_protocol::{NodeId, ProjectId, Timestamp};
use rusqlite::types::ToSql;
use rusqlite::{Connection, params};

use super::cells::{self, Cells, bits, json};
use crate::failure::Failure;

const SELECT_ALL: &str =
    "SELECT node_id, project_id, name, public_key, cpu_millis, memory_bytes, isolation, seen_at_ms
    FROM nodes WHERE project_id = ?1 ORDER BY node_id";

const PUT: &str = "INSERT INTO nodes
        (project_id, node_id, name, public_key, cpu_millis, memory_bytes, isolation, seen_at_ms)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
    ON CONFLICT (node_id) DO UPDATE SET name = excluded.name, cpu_millis = excluded.cpu_millis,
        memory_bytes = excluded.memory_bytes, isolation = excluded.isolation,
        seen_at_ms = max(nodes.seen_at_ms, excluded.seen_at_ms)
    WHERE nodes.project_id = excluded.project_id AND nodes.public_key = excluded.public_key";

/// A node says only its id when it is heard of; `nodes_by_id` makes that id its own.
const SEE: &str = "UPDATE nodes SET seen_at_ms = ?2 WHERE node_id = ?1 AND seen_at_ms < ?2";

pub(super) fn all(connection: &Connection, project: ProjectId) -> Result<Vec<NodeRecord>, Failure> {
    cells::all(connection, SELECT_ALL, [project.to_string()], read)
}

fn read(cells: &mut Cells<'_>) -> Result<NodeRecord, Failure> {
    Ok(NodeRecord {
        id: cells.id()?,
        project: cells.id()?,
        name: cells.take()?,
        public_key: cells.take()?,
        capacity: Capacity { cpu_millis: cells.count()?, memory_bytes: cells.count()? },
        isolation: cells.json()?,
        seen_at: cells.time()?,
    })
}

/// Whether it was written: a known id with another key, or in another project, is not.
pub(super) fn put(connection: &Connection, node: &NodeRecord, now: Timestamp) -> Result<bool, Failure> {
    let values: [&dyn ToSql; 8] = [
        &node.project.to_string(),
        &node.id.to_string(),
        &node.name,
        &node.public_key,
        &bits(node.capacity.cpu_millis),
        &bits(node.capacity.memory_bytes),
        &json(&node.isolation),
        &now.unix_ms(),
    ];
    Ok(connection.prepare_cached(PUT)?.execute(&values[..])? == 1)
}

/// Marks a node as heard of. An unknown one stays unknown.
pub(super) fn see(connection: &Connection, node: NodeId, now: Timestamp) -> Result<(), Failure> {
    connection.prepare_cached(SEE)?.execute(params![node.to_string(), now.unix_ms()])?;
    Ok(())
}
