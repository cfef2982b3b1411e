//! Opening the file: who may, what is in it, and how every connection to it is set up.

use std::fs::{File, OpenOptions as FileOptions, TryLockError};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use handoff_protocol::Timestamp;
use rusqlite::{Connection, OpenFlags};

use super::{clock_row, project_row};
use crate::anchor::Anchor;
use crate::clock::{StoreClock, SystemClock};
use crate::failure::{OpenError, is_full};

mod migrations {
    //! The schema, step by step. A released step is never edited.
    refinery::embed_migrations!("migrations/sqlite");
}

/// Marks the file as ours: "HOFF".
const APPLICATION_ID: i32 = 0x484f_4646;
/// Statements that a connection keeps prepared.
const STATEMENTS: usize = 128;
/// How long a connection waits for another one's lock: only the short ones of a WAL being reset.
const BUSY: Duration = Duration::from_secs(5);
/// The WAL is cut back to this after a checkpoint, so that one large blob does not leave it large.
const WAL_BYTES: i64 = 64 << 20;

/// How a store is opened.
#[derive(Clone)]
pub struct OpenOptions {
    /// Where time comes from.
    pub clock: Arc<dyn StoreClock>,
    /// Threads that read.
    pub readers: usize,
    /// The largest that the file may grow to, in bytes; none means as large as the disk allows.
    pub limit_bytes: Option<u64>,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self { clock: Arc::new(SystemClock::default()), readers: 2, limit_bytes: None }
    }
}

/// An opened file.
pub(super) struct Opened {
    pub(super) writer: Connection,
    pub(super) readers: Vec<Connection>,
    /// Held for life: a second process finds it locked.
    pub(super) lock: File,
    /// What its time goes on from.
    pub(super) anchor: Option<Anchor>,
    pub(super) high_water: Option<Timestamp>,
}

/// Opens the file, makes it if it is not there, and brings its schema up to date.
pub(super) fn open(path: &Path, options: &OpenOptions) -> Result<Opened, OpenError> {
    let lock = lock(path)?;
    create(path).map_err(|error| unavailable(path, error))?;
    let mut writer = connect(path, options).map_err(|error| refuse(path, error))?;
    check_owner(path, &writer)?;
    check_version(path, &writer)?;
    check_journal(path, &writer)?;
    migrate(&mut writer).map_err(|error| not_migrated(path, error))?;
    let anchor = clock_row::load(&writer).map_err(|error| unavailable(path, error))?;
    let high_water = project_row::high_water(&writer).map_err(|error| unavailable(path, error))?;
    let reader = || {
        let reader = connect(path, options)?;
        reader.pragma_update(None, "query_only", true)?;
        Ok(reader)
    };
    let readers = (0..options.readers.max(1)).map(|_| reader()).collect::<rusqlite::Result<_>>();
    let readers = readers.map_err(|error| refuse(path, error))?;
    Ok(Opened { writer, readers, lock, anchor, high_water })
}

/// Brings the schema up to date.
pub(super) fn migrate(connection: &mut Connection) -> Result<(), refinery::Error> {
    migrations::migrations::runner().run(connection).map(drop)
}

/// Takes the lock file beside the store. The system lets it go when the process ends, however it ends.
fn lock(path: &Path) -> Result<File, OpenError> {
    let beside = lock_path(path);
    let opened = FileOptions::new().create(true).truncate(false).write(true).mode(0o600).open(beside);
    let file = opened.map_err(|error| unavailable(path, error))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(OpenError::StoreLocked { path: shown(path) }),
        Err(TryLockError::Error(error)) => Err(unavailable(path, error)),
    }
}

fn lock_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    PathBuf::from(name)
}

/// Makes the file before SQLite would, so that nobody else can read it.
fn create(path: &Path) -> std::io::Result<()> {
    FileOptions::new().create(true).truncate(false).write(true).mode(0o600).open(path).map(drop)
}

fn connect(path: &Path, options: &OpenOptions) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(BUSY)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "foreign_keys", true)?;
    connection.pragma_update(None, "trusted_schema", false)?;
    connection.pragma_update(None, "journal_size_limit", WAL_BYTES)?;
    if let Some(limit) = options.limit_bytes {
        let page: u64 = connection.pragma_query_value(None, "page_size", |row| row.get::<_, u32>(0))?.into();
        let pages = i64::try_from(limit / page.max(1)).unwrap_or(i64::MAX);
        connection.pragma_update(None, "max_page_count", pages)?;
    }
    Ok(connection)
}

/// Turns the write-ahead log on. Some file systems cannot share the memory that it needs.
fn check_journal(path: &Path, connection: &Connection) -> Result<(), OpenError> {
    let mode = connection.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get::<_, String>(0));
    match mode.map_err(|error| refuse(path, error))?.as_str() {
        "wal" => Ok(()),
        mode => {
            let why = format!("this file system does not allow a write-ahead log (the journal is '{mode}')");
            Err(OpenError::Unavailable { path: shown(path), source: why.into() })
        }
    }
}

/// Refuses a database that another program made.
fn check_owner(path: &Path, connection: &Connection) -> Result<(), OpenError> {
    let ask = || -> rusqlite::Result<(i32, i64)> {
        let owner = connection.pragma_query_value(None, "application_id", |row| row.get(0))?;
        let tables = connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
        Ok((owner, tables))
    };
    match ask().map_err(|error| refuse(path, error))? {
        (APPLICATION_ID, _) => Ok(()),
        (0, 0) => connection
            .pragma_update(None, "application_id", APPLICATION_ID)
            .map_err(|error| refuse(path, error)),
        _ => Err(OpenError::NotAStore { path: shown(path) }),
    }
}

/// Refuses a schema that a newer program made.
fn check_version(path: &Path, connection: &Connection) -> Result<(), OpenError> {
    let history = "SELECT count(*) FROM sqlite_schema WHERE name = 'refinery_schema_history'";
    let newest = "SELECT coalesce(max(version), 0) FROM refinery_schema_history";
    let ask = || -> rusqlite::Result<u32> {
        match connection.query_row(history, [], |row| row.get::<_, i64>(0))? {
            0 => Ok(0),
            _ => connection.query_row(newest, [], |row| row.get(0)),
        }
    };
    let found = ask().map_err(|error| refuse(path, error))?;
    let runner = migrations::migrations::runner();
    let versions = runner.get_migrations().iter().filter_map(|step| u32::try_from(step.version()).ok());
    let known = versions.max().unwrap_or(0);
    if found > known {
        return Err(OpenError::VersionUnsupported { path: shown(path), found, known });
    }
    Ok(())
}

fn refuse(path: &Path, error: rusqlite::Error) -> OpenError {
    if is_full(&error) {
        return OpenError::Full { path: shown(path) };
    }
    if error.sqlite_error_code() == Some(rusqlite::ErrorCode::NotADatabase) {
        return OpenError::NotAStore { path: shown(path) };
    }
    unavailable(path, error)
}

/// A failed migration carries the database's own error somewhere below.
fn not_migrated(path: &Path, error: refinery::Error) -> OpenError {
    let mut below: Option<&(dyn std::error::Error + 'static)> = Some(&error);
    while let Some(cause) = below {
        if cause.downcast_ref::<rusqlite::Error>().is_some_and(is_full) {
            return OpenError::Full { path: shown(path) };
        }
        below = cause.source();
    }
    unavailable(path, error)
}

fn unavailable(path: &Path, error: impl std::error::Error + Send + Sync + 'static) -> OpenError {
    OpenError::Unavailable { path: shown(path), source: Box::new(error) }
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}
