//! Small files that are replaced whole, and are on disk when the call returns.

use std::fs::File;
use std::io::Write;
use std::path::Path;

/// Replaces a file of a directory: a reader sees the old one or the new one, also after a power cut.
pub(crate) fn replace(dir: &Path, name: &str, bytes: &[u8]) -> std::io::Result<()> {
    prepare(dir, name, bytes)?;
    sync_dir(dir)
}

/// Replaces a file of which only a later [`sync_dir`] says that it stays.
pub(crate) fn prepare(dir: &Path, name: &str, bytes: &[u8]) -> std::io::Result<()> {
    let beside = dir.join(format!("{name}.tmp"));
    let mut file = File::create(&beside)?;
    file.write_all(bytes)?;
    file.sync_data()?;
    std::fs::rename(&beside, dir.join(name))
}

/// Makes every rename in the directory durable.
pub(crate) fn sync_dir(dir: &Path) -> std::io::Result<()> {
    File::open(dir)?.sync_all()
}

/// The file's bytes; `None` if it is not there.
pub(crate) fn read(path: &Path) -> std::io::Result<Option<Vec<u8>>> {
    match std::fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
