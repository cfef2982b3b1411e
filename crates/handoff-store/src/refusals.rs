//! Refusals in the audit log: which command, by whom, and the code; never content and never a token's text.
//!
//! So many per minute and transfer at most, so that whoever is refused cannot fill the disk; the next one that is
//! written says how many were not.

use std::collections::BTreeMap;

use handoff_core::command::Role;
use handoff_core::ledger::{Envelope, LedgerError};
use handoff_protocol::document::Facts;
use handoff_protocol::{ErrorCode, ProjectId, Timestamp, TransferId};

use crate::rows::{Book, Row, detail_text};

const PER_WINDOW: u32 = 10;
const WINDOW_MS: u64 = 60_000;
/// Windows that are kept before the old ones are looked for.
const WINDOWS: usize = 4096;

/// How many were written lately, by transfer.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    windows: BTreeMap<(ProjectId, Option<TransferId>), Window>,
}

#[derive(Debug)]
struct Window {
    began: Timestamp,
    written: u32,
    left_out: u64,
}

impl Refusals {
    /// The row for a refused command, unless there have been too many. `transfer` is the one it is about, if
    /// there is one.
    pub(crate) fn row(
        &mut self,
        envelope: &Envelope,
        error: &LedgerError,
        transfer: Option<TransferId>,
        now: Timestamp,
    ) -> Option<Row> {
        let code = code(error)?;
        // The reaper asks whether it is time, and is refused all day.
        if envelope.actor.role == Role::ControlPlane {
            return None;
        }
        let left_out = self.admit((envelope.project, transfer), now)?;
        let mut detail = Facts::from([
            ("command".to_owned(), envelope.command.kind().as_str().to_owned()),
            ("code".to_owned(), code.as_str().to_owned()),
        ]);
        if left_out > 0 {
            detail.insert("left_out".to_owned(), left_out.to_string());
        }
        Some(Row {
            project: envelope.project,
            transfer,
            session: None,
            book: Book::Audit { kind: "refused".to_owned() },
            at: now,
            actor: envelope.actor.clone(),
            detail: detail_text(&detail),
        })
    }

    /// How many were left out before this one, or none if this one is left out too.
    fn admit(&mut self, key: (ProjectId, Option<TransferId>), now: Timestamp) -> Option<u64> {
        if self.windows.len() >= WINDOWS {
            self.windows.retain(|_, window| now.ms_since(window.began) < WINDOW_MS);
        }
        let window = self.windows.entry(key).or_insert(Window { began: now, written: 0, left_out: 0 });
        if now.ms_since(window.began) >= WINDOW_MS {
            *window = Window { began: now, written: 0, left_out: window.left_out };
        }
        if window.written >= PER_WINDOW {
            window.left_out += 1;
            return None;
        }
        window.written += 1;
        Some(std::mem::take(&mut window.left_out))
    }
}

/// The code of a refusal; none for failures of the store itself.
fn code(error: &LedgerError) -> Option<ErrorCode> {
    match error {
        LedgerError::Refused(refusal) => Some(refusal.code()),
        LedgerError::RequestConflict => Some(ErrorCode::IdempotencyConflict),
        LedgerError::VersionMismatch { .. } => Some(ErrorCode::PreconditionFailed),
        LedgerError::Full | LedgerError::Unavailable(_) | LedgerError::Broken { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_a_minute_and_the_rest_is_counted() {
        let mut refusals = Refusals::default();
        let key = (ProjectId::from_u128(1), Some(TransferId::from_u128(1)));
        let at = Timestamp::from_unix_ms;
        let admitted = (0..25).filter(|_| refusals.admit(key, at(0)).is_some()).count();
        assert_eq!(admitted, 10);
        let other = (ProjectId::from_u128(1), None);
        assert_eq!(refusals.admit(other, at(1)), Some(0), "another transfer has its own");
        assert_eq!(refusals.admit(key, at(60_000)), Some(15));
        assert_eq!(refusals.admit(key, at(60_001)), Some(0));
    }

    #[test]
    fn old_windows_are_forgotten() {
        let mut refusals = Refusals::default();
        for transfer in 0..10_000u128 {
            let key = (ProjectId::from_u128(1), Some(TransferId::from_u128(transfer)));
            refusals.admit(key, Timestamp::from_unix_ms(i64::try_from(transfer).expect("small") * 100));
        }
        assert!(refusals.windows.len() <= WINDOWS);
    }
}
