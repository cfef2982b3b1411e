//! Documents that are read first stay short.

use super::{Finding, Repo};

const RULE: &str = "document-length";
const LIMITS: &[(&str, usize)] = &[("README.md", 150), ("ARCHITECTURE.md", 200), ("docs/protocol.md", 600)];

pub(super) fn check(repo: &Repo) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, limit) in LIMITS {
        let lines = repo.text(path).map_or(0, |text| text.lines().count());
        if lines > *limit {
            let advice = format!("{lines} lines, at most {limit}; move detail to where it is needed");
            findings.push(Finding::new(RULE, path, limit + 1, advice));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::super::tests::of_repo;
    use super::*;

    #[test]
    fn one_line_too_many_is_found() {
        for (path, limit) in LIMITS {
            assert!(of_repo(check, &[(path, &"a\n".repeat(*limit))]).is_empty());
            assert_eq!(of_repo(check, &[(path, &"a\n".repeat(limit + 1))]).len(), 1, "{path}");
        }
    }
}
