//! The narration: flavor text from one data file, always marked as a story.

use std::collections::BTreeMap;

use crate::output::Output;

/// The paragraphs by moment.
pub(super) struct Story(BTreeMap<&'static str, &'static str>);

impl Story {
    pub(super) fn load() -> Self {
        let lines = include_str!("narration.txt").lines().filter(|line| !line.starts_with('#'));
        Self(lines.filter_map(|line| line.split_once(": ")).collect())
    }

    pub(super) fn tell(&self, output: Output, moment: &str) {
        if let Some(text) = self.0.get(moment) {
            output.progress(format_args!("\n  (story, not a system claim) {text}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_moment_has_its_paragraph() {
        let story = Story::load();
        for moment in ["opening", "departure", "arrival", "poor", "ending"] {
            assert!(story.0.contains_key(moment), "{moment}");
        }
    }
}
