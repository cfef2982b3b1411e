//! Reading rows: every cell is taken in the order of the statement's columns, and one that does not read says
//! which it was.

use std::str::FromStr;

use handoff_protocol::{Digest, NanoUsd, Timestamp};
use rusqlite::types::{FromSql, ValueRef};
use rusqlite::{Connection, Params, Row};
use serde::de::DeserializeOwned;

use crate::failure::Failure;
use crate::words::Word;

/// The cells of one row, from the left.
pub(super) struct Cells<'r> {
    row: &'r Row<'r>,
    next: usize,
}

impl<'r> Cells<'r> {
    pub(super) fn new(row: &'r Row<'r>) -> Self {
        Self { row, next: 0 }
    }

    fn step(&mut self) -> usize {
        self.next += 1;
        self.next - 1
    }

    fn broken(&self, at: usize) -> Failure {
        let name = self.row.as_ref().column_name(at).unwrap_or("a column too many");
        Failure::Broken(format!("column {name}"))
    }

    /// A plain value: text, integer, bytes, or an option of one.
    pub(super) fn take<T: FromSql>(&mut self) -> Result<T, Failure> {
        let at = self.step();
        self.row.get(at).map_err(|_| self.broken(at))
    }

    fn parsed<T>(&mut self, parse: impl FnOnce(&str) -> Option<T>) -> Result<Option<T>, Failure> {
        let at = self.step();
        match self.row.get_ref(at)? {
            ValueRef::Null => Ok(None),
            ValueRef::Text(text) => {
                let parsed = std::str::from_utf8(text).ok().and_then(parse);
                parsed.map(Some).ok_or_else(|| self.broken(at))
            }
            ValueRef::Integer(_) | ValueRef::Real(_) | ValueRef::Blob(_) => Err(self.broken(at)),
        }
    }

    fn there<T>(&mut self, found: Option<T>) -> Result<T, Failure> {
        found.ok_or_else(|| self.broken(self.next - 1))
    }

    /// An id.
    pub(super) fn id<T: FromStr>(&mut self) -> Result<T, Failure> {
        let found = self.maybe_id()?;
        self.there(found)
    }

    /// An id, or none.
    pub(super) fn maybe_id<T: FromStr>(&mut self) -> Result<Option<T>, Failure> {
        self.parsed(|text| text.parse().ok())
    }

    /// A value of a closed list.
    pub(super) fn word<T: Word>(&mut self) -> Result<T, Failure> {
        let found = self.maybe_word()?;
        self.there(found)
    }

    /// A value of a closed list, or none.
    pub(super) fn maybe_word<T: Word>(&mut self) -> Result<Option<T>, Failure> {
        self.parsed(T::from_word)
    }

    /// A JSON text.
    pub(super) fn json<T: DeserializeOwned>(&mut self) -> Result<T, Failure> {
        let found = self.maybe_json()?;
        self.there(found)
    }

    /// A JSON text, or none.
    pub(super) fn maybe_json<T: DeserializeOwned>(&mut self) -> Result<Option<T>, Failure> {
        self.parsed(|text| serde_json::from_str(text).ok())
    }

    /// A digest.
    pub(super) fn digest(&mut self) -> Result<Digest, Failure> {
        self.take().map(Digest::from_bytes)
    }

    /// A digest, or none.
    pub(super) fn maybe_digest(&mut self) -> Result<Option<Digest>, Failure> {
        self.take::<Option<[u8; 32]>>().map(|bytes| bytes.map(Digest::from_bytes))
    }

    /// A counter, by its bits.
    pub(super) fn count(&mut self) -> Result<u64, Failure> {
        self.take::<i64>().map(i64::cast_unsigned)
    }

    /// A counter, or none.
    pub(super) fn maybe_count(&mut self) -> Result<Option<u64>, Failure> {
        self.take::<Option<i64>>().map(|count| count.map(i64::cast_unsigned))
    }

    /// An amount.
    pub(super) fn nano(&mut self) -> Result<NanoUsd, Failure> {
        self.take().map(NanoUsd::from_nano)
    }

    /// A point in time.
    pub(super) fn time(&mut self) -> Result<Timestamp, Failure> {
        self.take().map(Timestamp::from_unix_ms)
    }

    /// A point in time, or none.
    pub(super) fn maybe_time(&mut self) -> Result<Option<Timestamp>, Failure> {
        self.take::<Option<i64>>().map(|ms| ms.map(Timestamp::from_unix_ms))
    }

    /// Zero or one.
    pub(super) fn flag(&mut self) -> Result<bool, Failure> {
        match self.take::<i64>()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(self.broken(self.next - 1)),
        }
    }
}

/// A counter as a column holds it: by its bits, so that every value comes back.
pub(super) const fn bits(count: u64) -> i64 {
    count.cast_signed()
}

/// A JSON text for a column.
pub(super) fn json<T: serde::Serialize>(value: &T) -> String {
    serde_json::to_string(value).expect("texts, numbers and maps of texts are always JSON")
}

/// The row that a statement finds, if it finds one.
pub(super) fn one<T>(
    connection: &Connection,
    sql: &str,
    params: impl Params,
    read: impl FnOnce(&mut Cells<'_>) -> Result<T, Failure>,
) -> Result<Option<T>, Failure> {
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query(params)?;
    match rows.next()? {
        Some(row) => read(&mut Cells::new(row)).map(Some),
        None => Ok(None),
    }
}

/// All rows that a statement finds.
pub(super) fn all<T>(
    connection: &Connection,
    sql: &str,
    params: impl Params,
    mut read: impl FnMut(&mut Cells<'_>) -> Result<T, Failure>,
) -> Result<Vec<T>, Failure> {
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query(params)?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(read(&mut Cells::new(row))?);
    }
    Ok(found)
}

/// Runs a statement that must change exactly one row. Where its condition does not hold, somebody else changed
/// the row since the decision.
pub(super) fn exactly_one(
    connection: &Connection,
    what: &'static str,
    sql: &str,
    params: impl Params,
) -> Result<(), Failure> {
    match connection.prepare_cached(sql)?.execute(params)? {
        1 => Ok(()),
        _ => Err(Failure::Conflict(what.to_owned())),
    }
}
