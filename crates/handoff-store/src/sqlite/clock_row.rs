//! `clock`: what the store's time goes on from.

use rusqlite::{Connection, Transaction, params};

use super::cells::{self, bits};
use crate::anchor::Anchor;
use crate::clock::StoreTime;
use crate::failure::Failure;

const SELECT: &str = "SELECT boot_id, boot_ms, store_ms, off_ms FROM clock WHERE only = 1";

const PUT: &str = "INSERT INTO clock (only, boot_id, boot_ms, store_ms, off_ms) VALUES (1, ?1, ?2, ?3, ?4)
    ON CONFLICT (only) DO UPDATE SET boot_id = excluded.boot_id, boot_ms = excluded.boot_ms,
        store_ms = excluded.store_ms, off_ms = excluded.off_ms";

pub(super) fn load(connection: &Connection) -> Result<Option<Anchor>, Failure> {
    cells::one(connection, SELECT, [], |cells| {
        Ok(Anchor {
            boot_id: cells.take()?,
            boot_ms: cells.count()?,
            store: cells.time()?,
            off_ms: cells.take()?,
        })
    })
}

/// Commits, together with the anchor where one is due: no time is ever in the store without the course that it
/// was on.
pub(super) fn commit(transaction: Transaction<'_>, time: &StoreTime) -> Result<(), Failure> {
    let due = time.due();
    if let Some(anchor) = &due {
        let values = params![anchor.boot_id, bits(anchor.boot_ms), anchor.store.unix_ms(), anchor.off_ms];
        transaction.prepare_cached(PUT)?.execute(values)?;
    }
    transaction.commit()?;
    if due.is_some() {
        time.is_kept();
    }
    Ok(())
}
