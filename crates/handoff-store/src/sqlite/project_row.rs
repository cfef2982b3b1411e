//! `projects`: the tenants, and the store's time as far as it has been used.

use handoff_protocol::{ProjectId, Timestamp};
use rusqlite::{Connection, params};

use super::cells;
use crate::failure::Failure;

const PUT: &str = "INSERT INTO projects (project_id, name, created_at_ms, clock_ms) VALUES (?1, ?1, ?2, ?2)
    ON CONFLICT (project_id) DO UPDATE SET clock_ms = max(projects.clock_ms, excluded.clock_ms)";

const HIGH_WATER: &str = "SELECT max(clock_ms) FROM projects";

/// Makes the project if it is new, and remembers that something of it was decided at this time.
pub(super) fn touch(connection: &Connection, project: ProjectId, at: Timestamp) -> Result<(), Failure> {
    connection.prepare_cached(PUT)?.execute(params![project.to_string(), at.unix_ms()])?;
    Ok(())
}

/// The latest time that anything was decided at.
pub(super) fn high_water(connection: &Connection) -> Result<Option<Timestamp>, Failure> {
    Ok(cells::one(connection, HIGH_WATER, [], |cells| cells.maybe_time())?.flatten())
}
