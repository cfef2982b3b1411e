//! `budget_leases` and `usage_reports`: what each epoch of a transfer may spend, and has spent.
//!
//! A lease row carries the version of its transfer at its last change, as a budget does, and its limit is never
//! lowered. Of the reports of an epoch the last accepted one is kept: it stands for all before it.

use std::collections::BTreeMap;

use handoff_core::state::{Epoch, Generation};
use handoff_core::transfer::EpochAccount;
use handoff_protocol::totals::Tokens;
use handoff_protocol::{NanoUsd, ProjectId, Timestamp, Totals, TransferId};
use rusqlite::Connection;
use rusqlite::types::ToSql;

use super::cells::{self, Cells, bits};
use crate::changes::{Increment, TransferChange};
use crate::failure::Failure;
use crate::words::Word;

const SELECT: &str =
    "SELECT l.epoch, l.node_id, l.generation, l.incarnation, l.limit_nano, l.closed, r.seq, r.body,
        r.model_nano, r.compute_nano, r.egress_nano, r.wind_down_nano,
        r.input, r.cache_read, r.cache_write_5m, r.cache_write_1h, r.output, r.reasoning,
        r.run_ms, r.frozen_ms, r.egress_bytes
    FROM budget_leases AS l
    LEFT JOIN usage_reports AS r ON r.project_id = l.project_id AND r.transfer_id = l.transfer_id
        AND r.kind = 'totals' AND r.number = l.epoch
    WHERE l.project_id = ?1 AND l.transfer_id = ?2";

pub(super) const INSERT_LEASE: &str = "INSERT INTO budget_leases
        (project_id, transfer_id, epoch, version, node_id, incarnation, limit_nano, closed, generation)
    VALUES (?1, ?2, ?3, ?5, ?6, ?7, ?8, ?9, ?10)";

pub(super) const UPDATE_LEASE: &str = "UPDATE budget_leases SET version = ?5, node_id = ?6, incarnation = ?7,
        limit_nano = ?8, closed = ?9, generation = ?10
    WHERE project_id = ?1 AND transfer_id = ?2 AND epoch = ?3 AND version <= ?4 AND limit_nano <= ?8";

const PUT_REPORT: &str = "INSERT INTO usage_reports (project_id, transfer_id, kind, number, seq, body,
        model_nano, compute_nano, egress_nano, wind_down_nano, recorded_nano,
        input, cache_read, cache_write_5m, cache_write_1h, output, reasoning,
        run_ms, frozen_ms, egress_bytes, detail, reported_at_ms)
    VALUES (?1, ?2, 'totals', ?3, ?4, ?5, ?6, ?7, ?8, ?9, 0, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, '', ?19)
    ON CONFLICT (project_id, transfer_id, kind, number) DO UPDATE SET seq = excluded.seq, body = excluded.body,
        model_nano = excluded.model_nano, compute_nano = excluded.compute_nano,
        egress_nano = excluded.egress_nano, wind_down_nano = excluded.wind_down_nano, input = excluded.input,
        cache_read = excluded.cache_read, cache_write_5m = excluded.cache_write_5m,
        cache_write_1h = excluded.cache_write_1h, output = excluded.output, reasoning = excluded.reasoning,
        run_ms = excluded.run_ms, frozen_ms = excluded.frozen_ms, egress_bytes = excluded.egress_bytes,
        reported_at_ms = excluded.reported_at_ms
    WHERE usage_reports.seq = ?20";

const INSERT_INCREMENT: &str = "INSERT INTO usage_reports (project_id, transfer_id, kind, number, seq, body,
        model_nano, compute_nano, egress_nano, wind_down_nano, recorded_nano,
        input, cache_read, cache_write_5m, cache_write_1h, output, reasoning,
        run_ms, frozen_ms, egress_bytes, detail, reported_at_ms)
    VALUES (?1, ?2, 'increment', ?3, 0, NULL, 0, 0, 0, 0, ?4, 0, 0, 0, 0, 0, 0, 0, 0, 0, ?5, ?6)";

pub(super) fn load(
    connection: &Connection,
    project: ProjectId,
    transfer: TransferId,
) -> Result<BTreeMap<Epoch, EpochAccount>, Failure> {
    let key = [project.to_string(), transfer.to_string()];
    Ok(cells::all(connection, SELECT, key, read)?.into_iter().collect())
}

fn read(cells: &mut Cells<'_>) -> Result<(Epoch, EpochAccount), Failure> {
    let epoch = Epoch(cells.count()?);
    let account = EpochAccount {
        node: cells.id()?,
        generation: Generation(cells.count()?),
        incarnation: cells.id()?,
        limit: cells.nano()?,
        closed: cells.maybe_word()?,
        totals: Totals::default(),
        seq: 0,
        body: None,
    };
    let Some(seq) = cells.maybe_count()? else { return Ok((epoch, account)) };
    Ok((epoch, EpochAccount { seq, body: Some(cells.digest()?), totals: totals(cells)?, ..account }))
}

fn totals(cells: &mut Cells<'_>) -> Result<Totals, Failure> {
    Ok(Totals {
        model_usd: cells.nano()?,
        compute_usd: cells.nano()?,
        egress_usd: cells.nano()?,
        wind_down_usd: cells.nano()?,
        tokens: Tokens {
            input: cells.count()?,
            cache_read: cells.count()?,
            cache_write_5m: cells.count()?,
            cache_write_1h: cells.count()?,
            output: cells.count()?,
            reasoning: cells.count()?,
        },
        run_ms: cells.count()?,
        frozen_ms: cells.count()?,
        egress_bytes: cells.count()?,
    })
}

/// Writes the leases and the reports that changed.
pub(super) fn write(connection: &Connection, change: &TransferChange, at: Timestamp) -> Result<(), Failure> {
    for (epoch, account) in &change.after.epochs {
        let was = change.before.as_ref().and_then(|before| before.epochs.get(epoch));
        if was.map(lease) != Some(lease(account)) {
            write_lease(connection, change, *epoch, account, was.is_some())?;
        }
        if let Some(body) = account.body
            && was.map(report) != Some(report(account))
        {
            let seq_before = was.map_or(0, |was| was.seq);
            let row = Report { epoch: *epoch, account, body: body.as_bytes(), seq_before };
            write_report(connection, change, &row, at)?;
        }
    }
    Ok(())
}

/// The part of an account that is a lease row.
fn lease(account: &EpochAccount) -> impl PartialEq + use<> {
    (account.node, account.generation, account.incarnation, account.limit, account.closed)
}

/// The part of an account that is a report row.
fn report(account: &EpochAccount) -> impl PartialEq + use<> {
    (account.seq, account.body, account.totals)
}

fn write_lease(
    connection: &Connection,
    change: &TransferChange,
    epoch: Epoch,
    account: &EpochAccount,
    is_known: bool,
) -> Result<(), Failure> {
    let sql = if is_known { UPDATE_LEASE } else { INSERT_LEASE };
    let values: [&dyn ToSql; 10] = [
        &change.project.to_string(),
        &change.after.id.to_string(),
        &bits(epoch.0),
        &change.before.as_ref().map(|before| bits(before.version)),
        &bits(change.after.version),
        &account.node.to_string(),
        &account.incarnation.to_string(),
        &account.limit.nano(),
        &account.closed.map(Word::word),
        &bits(account.generation.0),
    ];
    cells::exactly_one(connection, "budget lease", sql, &values[..])
}

struct Report<'a> {
    epoch: Epoch,
    account: &'a EpochAccount,
    body: &'a [u8; 32],
    seq_before: u64,
}

fn write_report(
    connection: &Connection,
    change: &TransferChange,
    report: &Report<'_>,
    at: Timestamp,
) -> Result<(), Failure> {
    let totals = &report.account.totals;
    let nano = |amount: NanoUsd| amount.nano();
    let values: [&dyn ToSql; 20] = [
        &change.project.to_string(),
        &change.after.id.to_string(),
        &bits(report.epoch.0),
        &bits(report.account.seq),
        report.body,
        &nano(totals.model_usd),
        &nano(totals.compute_usd),
        &nano(totals.egress_usd),
        &nano(totals.wind_down_usd),
        &bits(totals.tokens.input),
        &bits(totals.tokens.cache_read),
        &bits(totals.tokens.cache_write_5m),
        &bits(totals.tokens.cache_write_1h),
        &bits(totals.tokens.output),
        &bits(totals.tokens.reasoning),
        &bits(totals.run_ms),
        &bits(totals.frozen_ms),
        &bits(totals.egress_bytes),
        &at.unix_ms(),
        &bits(report.seq_before),
    ];
    cells::exactly_one(connection, "usage report", PUT_REPORT, &values[..])
}

/// Writes an increment as a row of its own.
pub(super) fn write_increment(
    connection: &Connection,
    increment: &Increment,
    at: Timestamp,
) -> Result<(), Failure> {
    let values: [&dyn ToSql; 6] = [
        &increment.project.to_string(),
        &increment.transfer.to_string(),
        &bits(increment.seq),
        &increment.cost.nano(),
        &increment.detail,
        &at.unix_ms(),
    ];
    cells::exactly_one(connection, "usage increment", INSERT_INCREMENT, &values[..])
}
