//! The file: who may open it, what may be in it, and who may read it.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use handoff_core::Policy;
use handoff_protocol::ErrorCode;
use handoff_store::{OpenError, OpenOptions, SqliteLedger};
use rusqlite::Connection;
use tempfile::TempDir;

fn open(path: &Path) -> Result<SqliteLedger, OpenError> {
    SqliteLedger::open(path, Policy::default(), OpenOptions::default())
}

fn place() -> (TempDir, PathBuf) {
    let folder = TempDir::new().expect("a folder for a test");
    let path = folder.path().join("handoff.db");
    (folder, path)
}

fn code(opened: Result<SqliteLedger, OpenError>) -> ErrorCode {
    match opened {
        Ok(_) => panic!("it opened"),
        Err(error) => error.code(),
    }
}

/// H-94
#[test]
fn a_store_is_open_once_and_free_when_it_is_dropped() {
    let (_folder, path) = place();
    let first = open(&path).expect("it opens");
    assert_eq!(code(open(&path)), ErrorCode::StoreLocked);
    drop(first);
    open(&path).expect("its lock was let go");
}

#[tokio::test]
async fn blobs_keep_the_file_open() {
    let (_folder, path) = place();
    let ledger = open(&path).expect("it opens");
    let project = handoff_testkit::contract::world::fresh();
    let blobs = ledger.blobs(project, handoff_store::BlobLimits::default());
    drop(ledger);
    assert_eq!(code(open(&path)), ErrorCode::StoreLocked);
    drop(blobs);
    open(&path).expect("its lock was let go");
}

#[test]
fn a_newer_schema_is_refused_and_left_alone() {
    let (_folder, path) = place();
    drop(open(&path).expect("it opens"));
    let raw = Connection::open(&path).expect("the file opens");
    let newer = "INSERT INTO refinery_schema_history (version, name, applied_on, checksum)
        VALUES (999, 'later', '2030-01-01T00:00:00Z', '1')";
    raw.execute(newer, []).expect("a row of a later program");
    drop(raw);
    let before = std::fs::read(&path).expect("the file reads");
    let Err(error) = open(&path) else { panic!("it opened") };
    assert!(matches!(error, OpenError::VersionUnsupported { found: 999, known: 1.., .. }), "{error}");
    assert_eq!(error.code(), ErrorCode::VersionUnsupported);
    assert_eq!(std::fs::read(&path).expect("the file reads"), before);
}

#[test]
fn another_programs_file_is_refused_and_left_alone() {
    let (_folder, path) = place();
    let raw = Connection::open(&path).expect("the file opens");
    raw.execute_batch("CREATE TABLE theirs (a)").expect("a table");
    drop(raw);
    assert_eq!(code(open(&path)), ErrorCode::Misconfigured);
    let (_folder, path) = place();
    let text = "not a database, and long enough to be told apart from an empty one: ".repeat(100);
    std::fs::write(&path, &text).expect("a file");
    assert_eq!(code(open(&path)), ErrorCode::Misconfigured);
    assert_eq!(std::fs::read_to_string(&path).expect("the file reads"), text);
}

#[test]
fn a_folder_that_is_not_there_is_said_so() {
    let (folder, _) = place();
    let Err(error) = open(&folder.path().join("nowhere/handoff.db")) else { panic!("it opened") };
    assert_eq!(error.code(), ErrorCode::StoreUnavailable);
}

#[test]
fn nobody_else_can_read_it() {
    let (folder, path) = place();
    let _ledger = open(&path).expect("it opens");
    for entry in std::fs::read_dir(folder.path()).expect("the folder lists") {
        let entry = entry.expect("an entry");
        let mode = entry.metadata().expect("it is there").permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "{:?}", entry.file_name());
    }
}
