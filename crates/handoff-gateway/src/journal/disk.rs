//! The file behind a journal. Whatever an earlier, refused write left behind is cut off before the next one.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::format::MAGIC;

/// Where a journal's bytes go. Calls block.
pub(crate) trait Disk: Send {
    /// Adds bytes and makes them durable, all or nothing as far as a reader can tell; returns the length of
    /// the journal.
    fn append(&mut self, bytes: &[u8]) -> io::Result<u64>;

    /// Puts these records in the place of all others, all or nothing.
    fn replace(&mut self, bytes: &[u8]) -> io::Result<()>;
}

/// A journal in a file.
#[derive(Debug)]
pub(crate) struct FileDisk {
    path: PathBuf,
    file: File,
    /// Bytes that are durable and whole.
    good: u64,
    /// Bytes after `good` may be there.
    dirty: bool,
}

impl FileDisk {
    /// Opens or makes the file and cuts off what is behind its first `good` bytes.
    pub(super) fn open(path: &Path, good: u64) -> io::Result<Self> {
        let file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
        let mut disk = Self { path: path.to_owned(), file, good, dirty: true };
        disk.clean()?;
        if good == 0 {
            disk.append(MAGIC)?;
            sync_folder(path)?;
        } else {
            disk.file.sync_all()?;
        }
        Ok(disk)
    }

    fn clean(&mut self) -> io::Result<()> {
        if self.dirty {
            self.file.set_len(self.good)?;
            self.file.seek(SeekFrom::Start(self.good))?;
            self.dirty = false;
        }
        Ok(())
    }
}

impl Disk for FileDisk {
    fn append(&mut self, bytes: &[u8]) -> io::Result<u64> {
        self.clean()?;
        // If any step fails, what is written is not counted and is cut off before the next try.
        self.dirty = true;
        self.file.write_all(bytes)?;
        self.file.sync_data()?;
        self.dirty = false;
        self.good += bytes.len() as u64;
        Ok(self.good)
    }

    fn replace(&mut self, bytes: &[u8]) -> io::Result<()> {
        let fresh = self.path.with_extension("new");
        let mut file =
            OpenOptions::new().read(true).write(true).create(true).truncate(true).mode(0o600).open(&fresh)?;
        file.write_all(MAGIC)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        std::fs::rename(&fresh, &self.path)?;
        // From here on the new file is the journal, whether or not its folder could be synced.
        self.good = (MAGIC.len() + bytes.len()) as u64;
        self.file = file;
        self.dirty = false;
        sync_folder(&self.path)
    }
}

/// Makes the name of a file durable.
pub(crate) fn sync_folder(path: &Path) -> io::Result<()> {
    let folder = path.parent().ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::{format, open};
    use crate::meter::Record;

    #[test]
    fn a_journal_goes_on_where_it_was_and_a_torn_tail_is_cut() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.holds");
        let (records, mut disk) = open(&path).expect("a new journal");
        assert_eq!(records, []);
        disk.append(&format::write(&[Record::Exhausted])).expect("room");
        let mut file = OpenOptions::new().append(true).open(&path).expect("the journal");
        file.write_all(&format::write(&[Record::Replenished])[..9]).expect("room");
        let (records, mut disk) = open(&path).expect("the journal");
        assert_eq!(records, [Record::Exhausted]);
        disk.append(&format::write(&[Record::Reserved { ms: 1 }])).expect("room");
        assert_eq!(open(&path).expect("the journal").0, [Record::Exhausted, Record::Reserved { ms: 1 }]);
    }

    #[test]
    fn a_journal_that_was_written_anew_goes_on() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.holds");
        let (_, mut disk) = open(&path).expect("a new journal");
        disk.append(&format::write(&[Record::Exhausted, Record::Replenished])).expect("room");
        disk.replace(&format::write(&[Record::Reserved { ms: 5 }])).expect("room");
        disk.append(&format::write(&[Record::Exhausted])).expect("room");
        drop(disk);
        assert_eq!(open(&path).expect("the journal").0, [Record::Reserved { ms: 5 }, Record::Exhausted]);
        assert_eq!(std::fs::read_dir(folder.path()).expect("the folder").count(), 1);
    }
}
