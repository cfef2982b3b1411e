//! A match over an enum of ours answers every variant: a new status or command must break it, not slip into
//! `_`.

use syn::visit::Visit;

use super::{Finding, Repo, Source};

const RULE: &str = "wildcard-arm";

pub(super) fn check(source: &Source<'_>) -> Vec<Finding> {
    let mut matches = Matches { repo: source.repo, found: Vec::new() };
    matches.visit_file(&source.tree);
    let report = |(line, name): (usize, String)| {
        let advice = format!("name the other variants of {name}: a new one must break this match");
        Finding::new(RULE, source.path, line, advice)
    };
    matches.found.into_iter().filter(|(line, _)| !source.is_test(*line)).map(report).collect()
}

struct Matches<'a> {
    repo: &'a Repo,
    found: Vec<(usize, String)>,
}

impl<'ast> Visit<'ast> for Matches<'_> {
    fn visit_expr_match(&mut self, expression: &'ast syn::ExprMatch) {
        let own = expression.arms.iter().find_map(|arm| own_enum(self.repo, &arm.pat));
        let wild = expression.arms.iter().find(|arm| arm.guard.is_none() && is_wild(&arm.pat));
        if let (Some(name), Some(arm)) = (own, wild) {
            self.found.push((syn::spanned::Spanned::span(&arm.pat).start().line, name));
        }
        syn::visit::visit_expr_match(self, expression);
    }
}

fn is_wild(pattern: &syn::Pat) -> bool {
    match pattern {
        syn::Pat::Wild(_) => true,
        syn::Pat::Or(pattern) => pattern.cases.iter().any(is_wild),
        syn::Pat::Paren(pattern) => is_wild(&pattern.pat),
        _ => false,
    }
}

/// The enum of ours that a pattern names a variant of, as `Enum::Variant`.
fn own_enum(repo: &Repo, pattern: &syn::Pat) -> Option<String> {
    let path = match pattern {
        syn::Pat::Path(pattern) => &pattern.path,
        syn::Pat::TupleStruct(pattern) => &pattern.path,
        syn::Pat::Struct(pattern) => &pattern.path,
        syn::Pat::Or(pattern) => return pattern.cases.iter().find_map(|case| own_enum(repo, case)),
        syn::Pat::Paren(pattern) => return own_enum(repo, &pattern.pat),
        syn::Pat::Reference(pattern) => return own_enum(repo, &pattern.pat),
        _ => return None,
    };
    let owner = path.segments.iter().rev().nth(1)?.ident.to_string();
    repo.is_own_enum(&owner).then_some(owner)
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
