//! Nobody sleeps: a test waits for a condition with a deadline, a thread waits for an event with a time-out.

use super::super::token::Token;
use super::{Finding, Source};

const RULE: &str = "no-sleep";

pub(super) fn check(source: &Source<'_>) -> Vec<Finding> {
    let tokens = &source.tokens;
    let mut findings = Vec::new();
    for (index, token) in tokens.iter().enumerate() {
        if !matches!(token.name(), Some("sleep" | "sleep_ms")) {
            continue;
        }
        let owner = qualifier(&tokens[..index]);
        let called = tokens.get(index + 1).is_some_and(|next| next.opens('('));
        if source.is_test(token.line) && (called || owner == Some("time")) {
            let advice = "wait for a condition with a deadline: handoff_testkit::wait, or ticks of tokio::time::interval under a timeout";
            findings.push(Finding::new(RULE, source.path, token.line, advice));
        } else if owner == Some("thread") {
            let advice = "a thread waits for an event with a time-out, never for time to pass";
            findings.push(Finding::new(RULE, source.path, token.line, advice));
        }
    }
    findings
}

/// The name before the last `::`.
fn qualifier(before: &[Token]) -> Option<&str> {
    match before {
        [.., owner, first, second] if first.is(':') && second.is(':') => owner.name(),
        [..] => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::tests::of_source;
    use super::*;

    #[test]
    fn tests_may_not_sleep_in_any_spelling() {
        for body in [
            "std::thread::sleep(second);",
            "tokio::time::sleep(second).await;",
            "sleep(second).await;",
            "tokio::select! { _ = time::sleep(second) => {} }",
        ] {
            let text = format!("#[cfg(test)]\nmod tests {{\n async fn a() {{ {body} }}\n}}\n");
            assert_eq!(of_source(check, "crates/a/src/lib.rs", &text).len(), 1, "{body}");
            let text = format!("async fn a() {{ {body} }}\n");
            assert_eq!(of_source(check, "crates/a/tests/a.rs", &text).len(), 1, "{body}");
        }
    }

    #[test]
    fn production_code_may_wait_by_tokio_only() {
        let path = "crates/a/src/lib.rs";
        assert_eq!(of_source(check, path, "fn a() { std::thread::sleep(second); }").len(), 1);
        assert!(of_source(check, path, "async fn a() { tokio::time::sleep(second).await; }").is_empty());
        assert!(of_source(check, path, "fn sleep_is_a_word(sleep: u8) -> u8 { sleep }").is_empty());
    }
}
