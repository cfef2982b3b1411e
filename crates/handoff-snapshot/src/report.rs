//! Collecting what does not survive a move as it was, within a limit.

use handoff_protocol::document::{ReportEntry, ReportKind};

use crate::limits::REPORT_ENTRIES;

/// Bytes of a place that are shown; a hostile name must not fill the report.
const PLACE_CHARS: usize = 300;

/// The report while it is written.
#[derive(Debug, Default)]
pub(crate) struct Report {
    entries: Vec<ReportEntry>,
    more: u64,
}

impl Report {
    pub(crate) fn add(&mut self, what: ReportKind, at: &str, why: impl Into<String>) {
        if self.entries.len() == REPORT_ENTRIES {
            self.more += 1;
            return;
        }
        // Names of files are shown on terminals, and may be made to speak to them.
        let plain = |letter: char| if letter.is_control() { char::REPLACEMENT_CHARACTER } else { letter };
        let at = at.chars().take(PLACE_CHARS).map(plain).collect();
        self.entries.push(ReportEntry { what, at, why: why.into() });
    }

    pub(crate) fn extend(&mut self, entries: impl IntoIterator<Item = ReportEntry>) {
        for entry in entries {
            self.add(entry.what, &entry.at, entry.why);
        }
    }

    pub(crate) fn finish(mut self) -> Vec<ReportEntry> {
        if self.more > 0 {
            let why = format!("{} more entries are not listed", self.more);
            self.entries.push(ReportEntry { what: ReportKind::Degraded, at: "report".to_owned(), why });
        }
        self.entries
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_speak_to_a_terminal() {
        let mut report = Report::default();
        report.add(ReportKind::Excluded, "a\u{1b}[2Jb\nc", "a socket");
        assert_eq!(report.finish()[0].at, "a\u{fffd}[2Jb\u{fffd}c");
    }

    #[test]
    fn a_flood_is_counted_and_not_listed() {
        let mut report = Report::default();
        for number in 0..REPORT_ENTRIES + 7 {
            report.add(ReportKind::Excluded, &"x".repeat(number), "a socket");
        }
        let entries = report.finish();
        assert_eq!(entries.len(), REPORT_ENTRIES + 1);
        assert_eq!(entries[REPORT_ENTRIES].why, "7 more entries are not listed");
        assert!(entries.iter().all(|entry| entry.at.len() <= PLACE_CHARS));
    }
}
