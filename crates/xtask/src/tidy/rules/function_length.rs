//! A function has at most 60 lines of code, blank lines and comments not counted.

use syn::spanned::Spanned;
use syn::visit::Visit;

use super::{Finding, Source};

const RULE: &str = "function-length";
const LIMIT: usize = 60;

pub(super) fn check(source: &Source<'_>) -> Vec<Finding> {
    let lines: Vec<&str> = source.text.lines().map(str::trim).collect();
    let mut functions = Functions { lines: &lines, long: Vec::new() };
    functions.visit_file(&source.tree);
    let report = |(line, name, length): (usize, String, usize)| {
        let advice =
            format!("{name} has {length} lines of code, at most {LIMIT}; name its steps and take them out");
        Finding::new(RULE, source.path, line, advice)
    };
    functions.long.into_iter().map(report).collect()
}

struct Functions<'a> {
    lines: &'a [&'a str],
    long: Vec<(usize, String, usize)>,
}

impl Functions<'_> {
    fn look_at(&mut self, signature: &syn::Signature, body: &syn::Block) {
        let (first, last) = (signature.span().start().line, body.span().end().line);
        let code = &self.lines[first - 1..last.min(self.lines.len())];
        let length = code.iter().filter(|line| !line.is_empty() && !line.starts_with("//")).count();
        if length > LIMIT {
            self.long.push((first, signature.ident.to_string(), length));
        }
    }
}

impl<'ast> Visit<'ast> for Functions<'_> {
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.look_at(&item.sig, &item.block);
        syn::visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.look_at(&item.sig, &item.block);
        syn::visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(body) = &item.default {
            self.look_at(&item.sig, body);
        }
        syn::visit::visit_trait_item_fn(self, item);
    }
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
