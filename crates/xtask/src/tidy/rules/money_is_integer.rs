//! No float touches money: the crates that handle it know no floating point at all.

use super::super::token::{self, Kind};
use super::{Finding, Source, rooms};

const RULE: &str = "no-float";

pub(super) fn check(source: &Source<'_>) -> Vec<Finding> {
    if !rooms::NO_FLOATS.contains(&source.crate_name()) {
        return Vec::new();
    }
    let is_float = |kind: &Kind| match kind {
        Kind::Name(name) => matches!(name.as_str(), "f32" | "f64"),
        Kind::Literal(literal) => token::is_float(literal),
        Kind::Sign(_) | Kind::Open(_) | Kind::Close => false,
    };
    source
        .tokens
        .iter()
        .filter(|token| is_float(&token.kind) && !source.is_test(token.line))
        .map(|token| {
            let advice = "count in whole units (nano-USD, pico-USD, milliseconds); a float loses money";
            Finding::new(RULE, source.path, token.line, advice)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::super::tests::of_source;
    use super::*;

    #[test]
    fn types_and_literals_are_found_where_money_is() {
        let text = "fn a(x: f64) -> bool {\n    x > 1.5\n}\nstruct T(u8);\nfn b(t: T) -> u8 { t.0 }\n";
        assert_eq!(of_source(check, "crates/handoff-core/src/budget.rs", text).len(), 2);
        assert!(of_source(check, "crates/handoff/src/main.rs", text).is_empty());
    }

    #[test]
    fn a_test_may_try_what_a_float_would_do() {
        let text = "#[test]\nfn a() { assert_eq!(0.1 + 0.2, 0.3); }\n";
        assert!(of_source(check, "crates/handoff-core/src/budget.rs", text).is_empty());
    }
}
