//! The journal's bytes: a magic line, then records of a length (u32, little endian), the first eight bytes of
//! the SHA-256 over length and body, and the body as JSON.

use std::io;

use sha2::{Digest as _, Sha256};

use crate::meter::Record;

/// The first bytes of every journal; the digit is the format's version.
pub(crate) const MAGIC: &[u8] = b"handoff-holds-1\n";
const HEAD: usize = 4 + SUM;
const SUM: usize = 8;

/// Why a journal cannot be read or written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum JournalError {
    /// There is no room left.
    #[error("there is no room left for the journal")]
    Full,
    /// The file begins with something else.
    #[error("the file is not a journal of this version")]
    Foreign,
    /// A record was written by a newer program.
    #[error("a record of the journal is of a kind that is not known: {0}")]
    Unknown(String),
    /// The disk refuses for another reason.
    #[error("the journal cannot be read or written: {0}")]
    Io(String),
}

impl JournalError {
    /// The writer's runtime has been shut down.
    pub(crate) fn ended() -> Self {
        Self::Io("the writer has ended".to_owned())
    }
}

impl From<io::Error> for JournalError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::Full,
            _ => Self::Io(error.to_string()),
        }
    }
}

/// The bytes of these records.
pub(super) fn write(records: &[Record]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for record in records {
        let body = serde_json::to_vec(record).expect("a record is plain data");
        let length = u32::try_from(body.len()).expect("a record is far below 4 GiB").to_le_bytes();
        bytes.extend_from_slice(&length);
        bytes.extend_from_slice(&sum(length, &body));
        bytes.extend_from_slice(&body);
    }
    bytes
}

/// The whole records at the beginning of a file, and how many of its bytes they take. What comes after was
/// not durable when the writer ended: nobody relied on it.
pub(super) fn read(bytes: &[u8]) -> Result<(Vec<Record>, usize), JournalError> {
    if bytes.len() < MAGIC.len() && MAGIC.starts_with(bytes) {
        return Ok((Vec::new(), 0));
    }
    let mut rest = bytes.strip_prefix(MAGIC).ok_or(JournalError::Foreign)?;
    let mut records = Vec::new();
    while let Some((body, after)) = next(rest) {
        let record =
            serde_json::from_slice(body).map_err(|error| JournalError::Unknown(error.to_string()))?;
        records.push(record);
        rest = after;
    }
    Ok((records, bytes.len() - rest.len()))
}

fn next(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (head, rest) = bytes.split_at_checked(HEAD)?;
    let (length, stated) = head.split_first_chunk::<4>()?;
    let (body, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
    (!body.is_empty() && stated == sum(*length, body)).then_some((body, rest))
}

fn sum(length: [u8; 4], body: &[u8]) -> [u8; SUM] {
    let digest = Sha256::new().chain_update(length).chain_update(body).finalize();
    *digest.first_chunk::<SUM>().expect("a digest has 32 bytes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_cut_anywhere_gives_the_records_that_are_whole() {
        let records = [Record::Exhausted, Record::Reserved { ms: 10 }, Record::Replenished];
        let mut ends = vec![MAGIC.len()];
        let mut bytes = MAGIC.to_vec();
        for record in &records {
            bytes.extend_from_slice(&write(std::slice::from_ref(record)));
            ends.push(bytes.len());
        }
        for length in 0..=bytes.len() {
            let (read, good) = super::read(&bytes[..length]).expect("a journal");
            let whole = ends.iter().filter(|end| **end <= length).count().saturating_sub(1);
            assert_eq!(read, records[..whole], "{length}");
            let expected = if length < MAGIC.len() { 0 } else { ends[whole] };
            assert_eq!(good, expected, "{length}");
        }
    }

    #[test]
    fn a_flipped_bit_or_zeros_end_the_journal() {
        let bytes = [MAGIC, &write(&[Record::Exhausted, Record::Replenished])].concat();
        for at in MAGIC.len()..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert!(super::read(&damaged).expect("a journal").0.len() < 2, "{at}");
        }
        let zeros = [bytes.as_slice(), &[0; 64]].concat();
        assert_eq!(super::read(&zeros).expect("a journal").1, bytes.len());
        assert_eq!(super::read(b"something else entirely"), Err(JournalError::Foreign));
    }
}
