//! A match over an enum of ours answers every variant: a new status or command must break it, not slip into
//! `_`.

use super::{Finding, Source};

const RULE: &str = "wildcard-arm";

pub(super) fn check(source: &Source<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for arms in &source.outline.matches {
        let mut owners = arms.iter().filter_map(|arm| arm.owner.as_deref());
        let own = owners.find(|owner| source.repo.is_own_enum(owner));
        let wild = arms.iter().find(|arm| arm.is_wild && !source.is_test(arm.line));
        if let (Some(name), Some(arm)) = (own, wild) {
            let advice = format!("name the other variants of {name}: a new one must break this match");
            findings.push(Finding::new(RULE, source.path, arm.line, advice));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::super::tests::of_source;
    use super::*;

    #[test]
    fn a_wildcard_beside_variants_of_ours_is_found() {
        let text = "enum Status { A, B, C }\nfn a(s: Status) {\n    match s {\n        Status::A | Status::B => {}\n        _ => {}\n    }\n}\n";
        let found = of_source(check, "crates/a/src/lib.rs", text);
        assert_eq!(found, ["5: name the other variants of Status: a new one must break this match"]);
    }

    #[test]
    fn foreign_enums_and_guarded_arms_are_left_alone() {
        let text = "enum Status { A, B }\nfn a(s: Status, o: Ordering) {\n    match o { Ordering::Less => {} _ => {} }\n    match s { Status::A => {} _ if late() => {} Status::B => {} }\n    match 1 { 2 => {} _ => {} }\n}\n";
        assert!(of_source(check, "crates/a/src/lib.rs", text).is_empty());
    }
}
