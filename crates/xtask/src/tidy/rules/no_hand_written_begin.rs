//! A Postgres adapter opens transactions by `transaction()` or uses one statement. A BEGIN written by hand
//! stays open on a pooled connection when its future is dropped, and later acknowledged writes are lost.

use super::{Finding, Source};

const RULE: &str = "no-begin";

pub(super) fn check(source: &Source<'_>) -> Vec<Finding> {
    if source.crate_name() != "handoff-store" || !source.path.contains("postgres") {
        return Vec::new();
    }
    let has_begin = |line: &str| {
        line.split(|letter: char| !letter.is_alphanumeric() && letter != '_').any(|word| word == "BEGIN")
    };
    let opens = |text: &str| text.trim_start().to_uppercase().starts_with("BEGIN");
    let advice = "use transaction() or one statement: a BEGIN written by hand leaks into the pool";
    let by_text =
        source.text.lines().enumerate().filter(|(_, line)| has_begin(line)).map(|(index, _)| index + 1);
    let by_string = source.strings().filter(|(_, text)| opens(text)).map(|(line, _)| line);
    by_text.chain(by_string).map(|line| Finding::new(RULE, source.path, line, advice)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::super::tests::of_source;
    use super::*;

    #[test]
    fn begin_is_found_in_postgres_adapters_only() {
        let text = "fn a() {\n    run(\"BEGIN\");\n    run(\"begin transaction\");\n}\n";
        let found = of_source(check, "crates/handoff-store/src/postgres/writer.rs", text);
        assert!(
            found.iter().any(|line| line.starts_with("2:"))
                && found.iter().any(|line| line.starts_with("3:"))
        );
        assert!(of_source(check, "crates/handoff-store/src/sqlite.rs", text).is_empty());
        let fine = "fn begins() { client.transaction(); }";
        assert!(of_source(check, "crates/handoff-store/src/postgres.rs", fine).is_empty());
    }
}
