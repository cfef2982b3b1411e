//! What must not be part of any build, however indirectly: TLS stacks beside rustls with ring.

use super::{Finding, Repo};

const RULE: &str = "lock-file";
const BANNED: &[&str] = &["aws-lc-sys", "openssl-sys", "native-tls"];

pub(super) fn check(repo: &Repo) -> Vec<Finding> {
    let text = repo.text("Cargo.lock").unwrap_or("");
    let mut findings = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let name = line.strip_prefix("name = \"").and_then(|rest| rest.strip_suffix('"'));
        if let Some(name) = name.filter(|name| BANNED.contains(name)) {
            let advice = format!(
                "{name} must stay out: find who brings it with `cargo tree -i {name}` and choose ring"
            );
            findings.push(Finding::new(RULE, "Cargo.lock", index + 1, advice));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::super::tests::of_repo;
    use super::*;

    #[test]
    fn a_banned_package_is_found_by_its_name() {
        let text = "[[package]]\nname = \"ring\"\n\n[[package]]\nname = \"aws-lc-sys\"\ndependencies = [\n \"openssl-sys\",\n]\n";
        let found = of_repo(check, &[("Cargo.lock", text)]);
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("Cargo.lock:5: "), "{found:?}");
    }
}
