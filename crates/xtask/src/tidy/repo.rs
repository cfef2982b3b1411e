//! The files of the repository as text, and what has to be known about all of them before one is judged.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result};

use crate::git;

/// Every file that belongs to the repository.
pub(super) struct Repo {
    /// Text by path; none for what is not UTF-8.
    files: BTreeMap<String, Option<String>>,
    own_enums: BTreeSet<String>,
    test_modules: BTreeSet<String>,
}

impl Repo {
    /// Reads what git knows of, or would with the next `git add`.
    pub(super) fn load(root: &Path) -> Result<Self> {
        let mut files = BTreeMap::new();
        for path in git::files(root)? {
            let place = root.join(&path);
            // Removed but not yet committed, or a link to a folder.
            if !place.is_file() {
                continue;
            }
            let bytes = std::fs::read(&place).with_context(|| format!("reading {path}"))?;
            files.insert(path, String::from_utf8(bytes).ok());
        }
        Ok(Self::new(files))
    }

    /// A repository that holds exactly these texts.
    #[cfg(test)]
    pub(super) fn of(files: &[(&str, &str)]) -> Self {
        Self::new(files.iter().map(|(path, text)| ((*path).to_owned(), Some((*text).to_owned()))).collect())
    }

    /// A repository of texts that were read already; none for what is not UTF-8.
    pub(super) fn new(files: BTreeMap<String, Option<String>>) -> Self {
        let mut repo = Self { files, own_enums: BTreeSet::new(), test_modules: BTreeSet::new() };
        let (mut enums, mut modules) = (BTreeSet::new(), BTreeSet::new());
        for (path, text) in repo.texts().filter(|(path, _)| path.ends_with(".rs")) {
            enums.extend(text.lines().filter_map(declared_enum).map(str::to_owned));
            modules.extend(test_modules(path, text));
        }
        repo.own_enums = enums;
        repo.test_modules = modules;
        repo
    }

    /// All paths, sorted.
    pub(super) fn paths(&self) -> impl Iterator<Item = &str> {
        self.files.keys().map(String::as_str)
    }

    /// All texts with their paths, sorted.
    pub(super) fn texts(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files.iter().filter_map(|(path, text)| Some((path.as_str(), text.as_deref()?)))
    }

    /// The text at a path.
    pub(super) fn text(&self, path: &str) -> Option<&str> {
        self.files.get(path)?.as_deref()
    }

    /// Whether a file or folder is there.
    pub(super) fn has(&self, path: &str) -> bool {
        let folder = format!("{path}/");
        path.is_empty()
            || self.files.contains_key(path)
            || self.files.range(folder.clone()..).next().is_some_and(|(next, _)| next.starts_with(&folder))
    }

    /// Whether some source of ours declares an enum of this name.
    pub(super) fn is_own_enum(&self, name: &str) -> bool {
        self.own_enums.contains(name)
    }

    /// Whether the file is a module, or below one, that another file declares under `#[cfg(test)]`.
    pub(super) fn is_test_module(&self, path: &str) -> bool {
        let stem = path.strip_suffix(".rs").unwrap_or(path);
        let stem = stem.strip_suffix("/mod").unwrap_or(stem);
        self.test_modules.iter().any(|module| {
            stem.strip_prefix(module.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
    }
}

fn declared_enum(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let line = match line.strip_prefix("pub") {
        Some(rest) if rest.starts_with('(') => rest.split_once(')')?.1.trim_start(),
        Some(rest) => rest.trim_start(),
        None => line,
    };
    let name = line.strip_prefix("enum ")?;
    name.split(|letter: char| !letter.is_alphanumeric() && letter != '_')
        .next()
        .filter(|name| !name.is_empty())
}

/// Stems of the files that `#[cfg(test)] mod name;` of this file refers to.
fn test_modules(path: &str, text: &str) -> Vec<String> {
    let (folder, file) = path.rsplit_once('/').unwrap_or(("", path));
    let folder = match file {
        "lib.rs" | "main.rs" | "mod.rs" => folder.to_owned(),
        _ => path.trim_end_matches(".rs").to_owned(),
    };
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let declared = lines.windows(2).filter(|pair| pair[0] == "#[cfg(test)]").filter_map(|pair| {
        let (_, name) = pair[1].strip_suffix(';')?.split_once("mod ")?;
        Some(format!("{folder}/{name}"))
    });
    declared.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_under_cfg_test_are_found_with_what_lies_below_them() {
        let repo = Repo::of(&[
            ("crates/a/src/lib.rs", "//! A.\n#[cfg(test)]\nmod given;\nmod real;\n"),
            ("crates/a/src/real.rs", "#[cfg(test)]\npub(crate) mod world;\n"),
        ]);
        for path in ["crates/a/src/given.rs", "crates/a/src/given/mod.rs", "crates/a/src/given/more.rs"] {
            assert!(repo.is_test_module(path), "{path}");
        }
        assert!(repo.is_test_module("crates/a/src/real/world.rs"));
        assert!(!repo.is_test_module("crates/a/src/real.rs"));
        assert!(!repo.is_test_module("crates/a/src/given_more.rs"));
    }

    #[test]
    fn enums_and_folders_are_known() {
        let repo = Repo::of(&[("a/b.rs", "pub(super) enum Color<T> {\n}\nenum Kind {}\n")]);
        assert!(repo.is_own_enum("Color") && repo.is_own_enum("Kind") && !repo.is_own_enum("Option"));
        assert!(repo.has("a") && repo.has("a/b.rs") && !repo.has("a/b"));
    }
}
