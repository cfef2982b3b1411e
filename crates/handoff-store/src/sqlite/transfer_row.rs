//! `transfers`: one attempt to move a session. What hangs on it is read from its own tables beside it.

use std::collections::{BTreeMap, BTreeSet};

use handoff_core::state::Epoch;
use handoff_core::transfer::{EndReason, Ended, FinalMark, Push, Transfer};
use handoff_protocol::money::PicoUsd;
use handoff_protocol::{AuthorizationId, ProjectId, Tier, TierName, Timestamp, TransferId};
use rusqlite::Connection;
use rusqlite::types::ToSql;

use super::cells::{self, Cells, bits, json};
use crate::changes::TransferChange;
use crate::failure::Failure;
use crate::words::Word;

const SELECT: &str =
    "SELECT transfer_id, session_id, status, version, event_seq, staged_at_ms, expires_at_ms,
        snapshot, mark_epoch, mark_ground, final_requested,
        tier, cpu_millis, memory_bytes, pids, egress_bits, run_price_pico, frozen_price_pico,
        push, push_digest, push_missing, receipt, authorization_id, resting, waiting_since_ms, grace_until_ms,
        ended, ended_words, ended_at_ms, ledger_closed
    FROM transfers WHERE project_id = ?1 AND transfer_id = ?2";

pub(super) const INSERT: &str = "INSERT INTO transfers (project_id, transfer_id, session_id, status, version,
        event_seq, staged_at_ms, expires_at_ms, snapshot, mark_epoch, mark_ground, final_requested,
        tier, cpu_millis, memory_bytes, pids, egress_bits, run_price_pico, frozen_price_pico,
        push, push_digest, push_missing, receipt, authorization_id, resting, waiting_since_ms, grace_until_ms,
        ended, ended_words, ended_at_ms, ledger_closed, changed_at_ms)
    VALUES (?1, ?2, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22,
        ?23, ?24, ?25, ?26, ?27, ?28, ?29, ?30, ?31, ?32, ?33)";

/// All that may change but what the indexes are over: those are written anew for every column that is named.
pub(super) const UPDATE: &str = "UPDATE transfers SET version = ?6, event_seq = ?7, staged_at_ms = ?8, expires_at_ms = ?9,
        snapshot = ?10, mark_epoch = ?11, mark_ground = ?12, final_requested = ?13, tier = ?14, cpu_millis = ?15,
        memory_bytes = ?16, pids = ?17, egress_bits = ?18, run_price_pico = ?19, frozen_price_pico = ?20,
        push = ?21, push_digest = ?22, push_missing = ?23, receipt = ?24, authorization_id = ?25, resting = ?26,
        waiting_since_ms = ?27, grace_until_ms = ?28, ended = ?29, ended_words = ?30, ended_at_ms = ?31,
        changed_at_ms = ?33
    WHERE project_id = ?1 AND transfer_id = ?2 AND version = ?3";

/// What the indexes are over, after the rest was written.
pub(super) const UPDATE_STANDING: &str = "UPDATE transfers SET status = ?4, ledger_closed = ?5
    WHERE project_id = ?1 AND transfer_id = ?2 AND version = ?3";

/// The transfer without what hangs on it, and the id of its last authorisation.
pub(super) fn load(
    connection: &Connection,
    project: ProjectId,
    transfer: TransferId,
) -> Result<Option<(Transfer, Option<AuthorizationId>)>, Failure> {
    cells::one(connection, SELECT, [project.to_string(), transfer.to_string()], read)
}

fn read(cells: &mut Cells<'_>) -> Result<(Transfer, Option<AuthorizationId>), Failure> {
    let transfer = Transfer {
        id: cells.id()?,
        session: cells.id()?,
        status: cells.word()?,
        version: cells.count()?,
        event_seq: cells.count()?,
        staged_at: cells.time()?,
        expires_at: cells.time()?,
        snapshot: cells.digest()?,
        mark: mark(cells)?,
        final_requested: cells.flag()?,
        tier: tier(cells)?,
        push: push(cells)?,
        receipt: cells.flag()?,
        budget: None,
        assignment: None,
        former_assignments: BTreeMap::new(),
        authorization: None,
        spent_tokens: BTreeSet::new(),
        epochs: BTreeMap::new(),
        resting: false,
        waiting_since: None,
        grace_until: None,
        ended: None,
        ledger_closed: false,
    };
    let authorization = cells.maybe_id()?;
    let transfer = Transfer {
        resting: cells.flag()?,
        waiting_since: cells.maybe_time()?,
        grace_until: cells.maybe_time()?,
        ended: ended(cells)?,
        ledger_closed: cells.flag()?,
        ..transfer
    };
    Ok((transfer, authorization))
}

fn mark(cells: &mut Cells<'_>) -> Result<Option<FinalMark>, Failure> {
    match (cells.maybe_count()?, cells.maybe_word()?) {
        (Some(epoch), Some(ground)) => Ok(Some(FinalMark { epoch: Epoch(epoch), ground })),
        (None, None) => Ok(None),
        _ => Err(Failure::Broken("column transfers.mark_epoch".to_owned())),
    }
}

fn tier(cells: &mut Cells<'_>) -> Result<Option<Tier>, Failure> {
    let name: Option<String> = cells.take()?;
    let figures: [Option<u64>; 6] = [
        cells.maybe_count()?,
        cells.maybe_count()?,
        cells.maybe_count()?,
        cells.maybe_count()?,
        cells.maybe_count()?,
        cells.maybe_count()?,
    ];
    let broken = || Failure::Broken("column transfers.tier".to_owned());
    let Some(name) = name else {
        return if figures.iter().all(Option::is_none) { Ok(None) } else { Err(broken()) };
    };
    let [Some(cpu), Some(memory_bytes), Some(pids), Some(egress), Some(run), Some(frozen)] = figures else {
        return Err(broken());
    };
    Ok(Some(Tier {
        name: TierName(name),
        cpu_millis: u32::try_from(cpu).map_err(|_| broken())?,
        memory_bytes,
        pids: u32::try_from(pids).map_err(|_| broken())?,
        egress_bits_per_second: egress,
        run_price: PicoUsd::from_pico(run),
        frozen_price: PicoUsd::from_pico(frozen),
    }))
}

fn push(cells: &mut Cells<'_>) -> Result<Option<Push>, Failure> {
    let kind: Option<String> = cells.take()?;
    let (digest, missing) = (cells.maybe_digest()?, cells.maybe_json()?);
    match (kind.as_deref(), digest, missing) {
        (None, None, None) => Ok(None),
        (Some("requested"), Some(digest), None) => Ok(Some(Push::Requested { digest })),
        (Some("failed"), None, Some(missing)) => Ok(Some(Push::Failed { missing })),
        _ => Err(Failure::Broken("column transfers.push".to_owned())),
    }
}

fn ended(cells: &mut Cells<'_>) -> Result<Option<Ended>, Failure> {
    let kind: Option<String> = cells.take()?;
    let (words, at): (Option<String>, _) = (cells.take()?, cells.maybe_time()?);
    let reason = match (kind.as_deref(), words) {
        (None, None) => None,
        (Some("moved"), None) => Some(EndReason::Moved),
        (Some("grace_period_expired"), None) => Some(EndReason::GracePeriodExpired),
        (Some("ttl_expired"), None) => Some(EndReason::TimeToLive),
        (Some("requested"), Some(words)) => Some(EndReason::Requested(words)),
        _ => return Err(Failure::Broken("column transfers.ended".to_owned())),
    };
    match (reason, at) {
        (Some(reason), Some(at)) => Ok(Some(Ended { reason, at })),
        (None, None) => Ok(None),
        _ => Err(Failure::Broken("column transfers.ended_at_ms".to_owned())),
    }
}

/// Writes the transfer's own row: a new one, or the next version of the one that was decided on.
pub(super) fn write(connection: &Connection, change: &TransferChange, at: Timestamp) -> Result<(), Failure> {
    let before = change.before.as_ref().map(|before| before.version);
    let sql = if before.is_some() { UPDATE } else { INSERT };
    let transfer = &change.after;
    let tier = transfer.tier.as_ref();
    let (push, digest, missing) = push_cells(transfer.push.as_ref());
    let (ended, words) = ended_cells(transfer.ended.as_ref());
    let values: [&dyn ToSql; 33] = [
        &change.project.to_string(),
        &transfer.id.to_string(),
        &before.map(bits),
        &transfer.session.to_string(),
        &transfer.status.word(),
        &bits(transfer.version),
        &bits(transfer.event_seq),
        &transfer.staged_at.unix_ms(),
        &transfer.expires_at.unix_ms(),
        &transfer.snapshot.as_bytes(),
        &transfer.mark.map(|mark| bits(mark.epoch.0)),
        &transfer.mark.map(|mark| mark.ground.word()),
        &i64::from(transfer.final_requested),
        &tier.map(|tier| tier.name.as_str()),
        &tier.map(|tier| tier.cpu_millis),
        &tier.map(|tier| bits(tier.memory_bytes)),
        &tier.map(|tier| tier.pids),
        &tier.map(|tier| bits(tier.egress_bits_per_second)),
        &tier.map(|tier| bits(tier.run_price.pico())),
        &tier.map(|tier| bits(tier.frozen_price.pico())),
        &push,
        &digest,
        &missing,
        &i64::from(transfer.receipt),
        &transfer.authorization.as_ref().map(|last| last.id.to_string()),
        &i64::from(transfer.resting),
        &transfer.waiting_since.map(Timestamp::unix_ms),
        &transfer.grace_until.map(Timestamp::unix_ms),
        &ended,
        &words,
        &transfer.ended.as_ref().map(|ended| ended.at.unix_ms()),
        &i64::from(transfer.ledger_closed),
        &at.unix_ms(),
    ];
    cells::exactly_one(connection, "transfer", sql, &values[..])?;
    let standing = |transfer: &Transfer| (transfer.status, transfer.ledger_closed);
    match &change.before {
        Some(before) if standing(before) != standing(transfer) => {
            write_standing(connection, change.project, transfer)
        }
        Some(_) | None => Ok(()),
    }
}

fn write_standing(connection: &Connection, project: ProjectId, transfer: &Transfer) -> Result<(), Failure> {
    let values: [&dyn ToSql; 5] = [
        &project.to_string(),
        &transfer.id.to_string(),
        &bits(transfer.version),
        &transfer.status.word(),
        &i64::from(transfer.ledger_closed),
    ];
    cells::exactly_one(connection, "transfer", UPDATE_STANDING, &values[..])
}

fn push_cells(push: Option<&Push>) -> (Option<&'static str>, Option<[u8; 32]>, Option<String>) {
    match push {
        None => (None, None, None),
        Some(Push::Requested { digest }) => (Some("requested"), Some(*digest.as_bytes()), None),
        Some(Push::Failed { missing }) => (Some("failed"), None, Some(json(missing))),
    }
}

fn ended_cells(ended: Option<&Ended>) -> (Option<&'static str>, Option<&str>) {
    match ended.map(|ended| &ended.reason) {
        None => (None, None),
        Some(EndReason::Moved) => (Some("moved"), None),
        Some(EndReason::GracePeriodExpired) => (Some("grace_period_expired"), None),
        Some(EndReason::TimeToLive) => (Some("ttl_expired"), None),
        Some(EndReason::Requested(words)) => (Some("requested"), Some(words)),
    }
}
