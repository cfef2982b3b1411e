//! Looking through the files of a workspace for what looks like a credential, within bounds. What is found is told
//! by file, line and kind, and travels: a workspace is the user's, and changing it would break what it is for.

use std::time::{Duration, Instant};

use handoff_protocol::document::ReportKind;
use serde::{Deserialize, Serialize};

use crate::capture::Moment;
use crate::limits::{SEARCH_BYTES, SEARCH_FILE_BYTES, SEARCH_FINAL_BYTES};
use crate::report::Report;
use crate::secret::{self, SecretKind};

/// A file with a zero byte in so many of its first bytes is no text.
const TEXT_PROBE: usize = 8 << 10;
/// How long a plan may look; whoever asked waits for it.
const SURVEY_TIME: Duration = Duration::from_secs(3);
/// Entries of one workspace that are told; a flood must not hide what else is reported.
const TOLD: usize = 100;

/// Something that looks like a credential; the value is not kept. Of each kind, the first in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Sighting {
    /// Counted from 1.
    line: u64,
    kind: SecretKind,
}

/// One search through a workspace.
#[derive(Debug)]
pub(crate) struct Search {
    bytes_left: u64,
    deadline: Option<Instant>,
    told: usize,
    untold: u64,
    unsearched: u64,
}

impl Search {
    /// For a capture. During the pause of a move only a little is looked through: what is new since the draft.
    pub(crate) fn of_capture(moment: Moment) -> Self {
        let bytes = match moment {
            Moment::Draft => SEARCH_BYTES,
            Moment::Final => SEARCH_FINAL_BYTES,
        };
        Self::within(bytes, None)
    }

    /// For a plan.
    pub(crate) fn of_survey() -> Self {
        Self::within(SEARCH_BYTES, Some(SURVEY_TIME))
    }

    fn within(bytes_left: u64, time: Option<Duration>) -> Self {
        let deadline = time.map(|time| Instant::now() + time);
        Self { bytes_left, deadline, told: 0, untold: 0, unsearched: 0 }
    }

    /// Whether a file of this size is looked through at all, and may still be.
    pub(crate) fn has_room_for(&self, bytes: u64) -> bool {
        bytes <= self.bytes_left && self.deadline.is_none_or(|deadline| Instant::now() < deadline)
    }

    /// Looks through a whole file; none where the bounds are reached.
    pub(crate) fn look(&mut self, bytes: &[u8]) -> Option<Vec<Sighting>> {
        if !is_searched(bytes.len() as u64) || bytes[..bytes.len().min(TEXT_PROBE)].contains(&0) {
            return Some(Vec::new());
        }
        if !self.has_room_for(bytes.len() as u64) {
            return None;
        }
        self.bytes_left -= bytes.len() as u64;
        let mut sightings: Vec<Sighting> = Vec::new();
        let (mut line, mut counted) = (1, 0);
        for found in secret::scan(bytes) {
            let between = &bytes[counted..found.range.start];
            line += between.iter().filter(|byte| **byte == b'\n').count() as u64;
            counted = found.range.start;
            if sightings.iter().all(|sighting| sighting.kind != found.kind) {
                sightings.push(Sighting { line, kind: found.kind });
            }
        }
        Some(sightings)
    }

    /// Reports what was seen in a file, or that it was not looked through.
    pub(crate) fn tell(&mut self, report: &mut Report, at: &str, seen: Option<&[Sighting]>) {
        let Some(seen) = seen else {
            self.unsearched += 1;
            return;
        };
        for Sighting { line, kind } in seen {
            if self.told == TOLD {
                self.untold += 1;
                continue;
            }
            self.told += 1;
            let why = format!("line {line} holds what looks like {}; it travels as it is", kind.words());
            report.add(ReportKind::Degraded, at, why);
        }
    }

    /// Reports what was left out.
    pub(crate) fn finish(self, report: &mut Report) {
        let mut say = |why: String| report.add(ReportKind::Degraded, "workspace", why);
        if self.untold > 0 {
            say(format!("{} more places look like credentials; they travel as they are", self.untold));
        }
        if self.unsearched > 0 {
            say(format!(
                "the search for credentials was cut short: {} files travel without it",
                self.unsearched
            ));
        }
    }
}

/// Larger files are data.
pub(crate) fn is_searched(bytes: u64) -> bool {
    bytes <= SEARCH_FILE_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token() -> String {
        ["ghp_", "a1B2c3D4e5F6g7H8i9J0k1"].concat()
    }

    #[test]
    fn a_sighting_has_a_line_and_a_kind() {
        let text =
            format!("one\ntwo {0}\n\nk={0}\nkey = {1}", token(), ["AKIA", "0123456789ABCDEF"].concat());
        let seen = Search::of_survey().look(text.as_bytes()).expect("room");
        let expected = [(2, SecretKind::CodeHostToken), (5, SecretKind::CloudKey)];
        assert_eq!(seen.iter().map(|one| (one.line, one.kind)).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn data_is_passed_over_and_bounds_are_said() {
        let mut search = Search::within(100, None);
        let data = format!("\0{}", token());
        assert_eq!(search.look(data.as_bytes()), Some(Vec::new()));
        let large = format!("{}{}", " ".repeat(SEARCH_FILE_BYTES as usize), token());
        assert_eq!(search.look(large.as_bytes()), Some(Vec::new()));
        assert_eq!(search.look(&[b'x'; 80]), Some(Vec::new()));
        assert_eq!(search.look(token().as_bytes()), None, "20 bytes are left");
        assert_eq!(Search::within(100, Some(Duration::ZERO)).look(b"x"), None);
        let mut report = Report::default();
        search.tell(&mut report, "a", None);
        for _ in 0..TOLD + 2 {
            search.tell(&mut report, "b", Some(&[Sighting { line: 1, kind: SecretKind::ApiKey }]));
        }
        search.finish(&mut report);
        let report = report.finish();
        assert_eq!(report.len(), TOLD + 2);
        assert!(report[TOLD].why.starts_with("2 more places"), "{}", report[TOLD].why);
        assert!(report[TOLD + 1].why.contains("cut short: 1 files"), "{}", report[TOLD + 1].why);
    }
}
