//! A name says what is inside: no drawers for odds and ends.

use super::{Finding, Source};

const RULE: &str = "module-name";
const DRAWERS: &[&str] =
    &["common", "helper", "helpers", "manager", "managers", "misc", "stuff", "util", "utils", "utilities"];

pub(super) fn check(source: &Source<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let path = source.path.trim_end_matches(".rs");
    if let Some(drawer) = path.split(['/', '-']).find(|part| DRAWERS.contains(part)) {
        findings.push(Finding::new(RULE, source.path, 1, advice(drawer)));
    }
    for (line, name) in &source.outline.modules {
        if DRAWERS.contains(&name.as_str()) {
            findings.push(Finding::new(RULE, source.path, *line, advice(name)));
        }
    }
    findings
}

fn advice(drawer: &str) -> String {
    format!("'{drawer}' says nothing; name the module after what its functions are about")
}

#[cfg(test)]
mod tests {
    use super::super::super::tests::of_source;
    use super::*;

    #[test]
    fn drawers_are_found_as_file_folder_crate_and_module() {
        for path in
            ["crates/a/src/utils.rs", "crates/a/tests/common/mod.rs", "crates/handoff-common/src/lib.rs"]
        {
            assert_eq!(of_source(check, path, "//! A.\n").len(), 1, "{path}");
        }
        assert_eq!(of_source(check, "crates/a/src/lib.rs", "//! A.\nmod helpers {}\n").len(), 1);
        assert!(of_source(check, "crates/a/src/utility_bill.rs", "mod commons {}").is_empty());
    }
}
