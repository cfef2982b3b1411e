//! `unsafe` lives in one crate, which talks to the kernel.

use super::{Finding, Source, rooms};

const RULE: &str = "unsafe-code";

pub(super) fn check(source: &Source<'_>) -> Vec<Finding> {
    if source.crate_name() == rooms::UNSAFE {
        return Vec::new();
    }
    let is_unsafe = |name: &str| name == "unsafe" || name == "unsafe_code";
    let advice = format!("only {} has unsafe code; rustix has a safe call for most of it", rooms::UNSAFE);
    source
        .names()
        .filter(|(_, name)| is_unsafe(name))
        .map(|(line, _)| Finding::new(RULE, source.path, line, advice.clone()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::super::tests::of_source;
    use super::*;

    #[test]
    fn unsafe_and_its_permission_are_found_outside_the_sandbox() {
        let text = "#![allow(unsafe_code)]\nfn a() {\n    unsafe { b() }\n}\n";
        assert_eq!(of_source(check, "crates/handoff-node/src/lib.rs", text).len(), 2);
        assert!(of_source(check, "crates/handoff-sandbox/src/lib.rs", text).is_empty());
        assert!(
            of_source(check, "crates/handoff-node/src/lib.rs", "// unsafe\nconst A: &str = \"unsafe\";")
                .is_empty()
        );
    }
}
