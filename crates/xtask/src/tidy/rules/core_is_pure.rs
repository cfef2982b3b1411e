//! The machine decides from its arguments alone: no clock, environment, randomness, I/O or threads in it, and
//! nothing whose order changes from run to run.

use super::super::token::Token;
use super::{Finding, Source, rooms};

const RULE: &str = "core-is-pure";
const UNORDERED: &[&str] = &["HashMap", "HashSet", "RandomState"];
const CLOCKS: &[&str] = &["Instant", "SystemTime"];
const STD_EFFECTS: &[&str] = &["env", "fs", "net", "process", "thread"];

pub(super) fn check(source: &Source<'_>) -> Vec<Finding> {
    if !rooms::PURE.contains(&source.crate_name()) {
        return Vec::new();
    }
    let tokens = &source.tokens;
    let mut findings = Vec::new();
    for (index, token) in tokens.iter().enumerate() {
        let Some(name) = token.name() else { continue };
        if source.is_test(token.line) {
            continue;
        }
        if let Some(advice) = advice(source, name, &tokens[..index]) {
            findings.push(Finding::new(RULE, source.path, token.line, advice));
        }
    }
    findings
}

fn advice(source: &Source<'_>, name: &str, before: &[Token]) -> Option<&'static str> {
    if UNORDERED.contains(&name) && source.crate_name() == "handoff-core" {
        Some("use BTreeMap or BTreeSet: the same input must give the same decision in the same order")
    } else if CLOCKS.contains(&name) {
        Some("time is an argument: take the Timestamp that the caller read")
    } else if STD_EFFECTS.contains(&name) && follows_std(before) {
        Some("an effect: describe it in the decision and let an edge carry it out")
    } else {
        None
    }
}

fn follows_std(before: &[Token]) -> bool {
    match before {
        [.., owner, first, second] => owner.name() == Some("std") && first.is(':') && second.is(':'),
        [..] => false,
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::tests::of_source;
    use super::*;

    #[test]
    fn effects_and_disorder_are_found() {
        for bad in [
            "use std::collections::HashMap;",
            "fn a() { let now = std::time::Instant::now(); }",
            "use std::time::SystemTime;",
            "fn a() { std::env::var(\"A\"); }",
            "use std::fs::File;",
        ] {
            assert_eq!(of_source(check, "crates/handoff-core/src/machine.rs", bad).len(), 1, "{bad}");
        }
    }

    #[test]
    fn tests_edges_and_like_names_are_left_alone() {
        let text = "#[cfg(test)]\nmod tests {\n use std::collections::HashMap;\n}\nfn env(process: u8) {}\n";
        assert!(of_source(check, "crates/handoff-core/src/machine.rs", text).is_empty());
        assert!(of_source(check, "crates/handoff-node/src/lib.rs", "use std::time::Instant;").is_empty());
    }
}
