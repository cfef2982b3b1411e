//! A function has at most 60 lines of code, blank lines and comments not counted.

use super::{Finding, Source};

const RULE: &str = "function-length";
const LIMIT: usize = 60;

pub(super) fn check(source: &Source<'_>) -> Vec<Finding> {
    let lines: Vec<&str> = source.text.lines().map(str::trim).collect();
    let mut findings = Vec::new();
    for function in &source.outline.functions {
        let code = &lines[function.first_line - 1..function.last_line.min(lines.len())];
        let length = code.iter().filter(|line| !line.is_empty() && !line.starts_with("//")).count();
        if length > LIMIT {
            let name = &function.name;
            let advice = format!(
                "{name} has {length} lines of code, at most {LIMIT}; name its steps and take them out"
            );
            findings.push(Finding::new(RULE, source.path, function.first_line, advice));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::super::tests::of_source;
    use super::*;

    fn function(statements: usize) -> String {
        format!("fn long() {{\n{}}}\n", "    // Why.\n\n    step();\n".repeat(statements))
    }

    #[test]
    fn lines_of_code_count_wherever_the_function_stands() {
        assert!(of_source(check, "crates/a/src/lib.rs", &function(58)).is_empty());
        for text in [
            function(59),
            format!("impl A {{\n{}}}\n", function(59)),
            format!("trait A {{\n{}}}\n", function(59)),
            format!("mod tests {{\n#[test]\n{}}}\n", function(59)),
        ] {
            let found = of_source(check, "crates/a/src/lib.rs", &text);
            assert_eq!(found.len(), 1);
            assert!(found[0].contains("long has 61 lines"), "{found:?}");
        }
    }
}
