//! `cargo xtask spec`: holds `docs/protocol.md` against the code.
//!
//! The document is written by people and read by people; five tables in it are also read here. Each stands as
//! the first table under its heading, and words of the protocol stand between backticks:
//!
//! | heading | columns | compared with |
//! |---|---|---|
//! | `## Statuses` | status, … | `handoff_protocol::Status` |
//! | `## Commands` | command, who, legal from, provided that, to, usage event | `handoff_core::grid` |
//! | `## Events` | event, … | `handoff_protocol::request::EventType` |
//! | `## Errors` | code, HTTP, retryable, exit, meaning | `handoff_protocol::ErrorCode` |
//! | `## Tools` | tool, command, … | the six tools, and the commands above |
//!
//! Requirements are list items that begin with a bold `H-` and a number. Each number stands once and none is
//! left out; each says MUST, SHOULD or MAY; and whatever names one in code or documents names one that exists.
//! The documentation of some test names it (`/// H-12` above the test, or in the `//!` of a file of tests), unless
//! it carries the mark ◌ of what is not built yet, and then none does.

mod document;
mod requirements;
mod tables;

use std::path::Path;

use anyhow::{Context, Result};

use crate::git;
use document::Document;

const PATH: &str = "docs/protocol.md";

/// What to do besides comparing.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// List the requirements that are not built
    #[arg(long)]
    not_built: bool,
}

/// One place where document and code differ.
#[derive(Debug, PartialEq, Eq)]
struct Difference {
    path: String,
    line: usize,
    what: String,
}

impl Difference {
    fn new(line: usize, what: impl Into<String>) -> Self {
        Self { path: PATH.to_owned(), line, what: what.into() }
    }
}

/// Compares and prints what differs. True when nothing does.
///
/// # Errors
/// When a file cannot be read.
pub(crate) fn run(root: &Path, options: &Options) -> Result<bool> {
    let text = std::fs::read_to_string(root.join(PATH)).with_context(|| format!("reading {PATH}"))?;
    let document = Document::parse(&text);
    let mut texts = Vec::new();
    for path in git::files(root)?.into_iter().filter(|path| path.ends_with(".rs") || path.ends_with(".md")) {
        if let Ok(text) = std::fs::read_to_string(root.join(&path)) {
            texts.push((path, text));
        }
    }
    let mut differences = tables::compare(&document);
    differences.extend(requirements::check(&document, &texts));
    differences.extend(requirements::unheld(&document, &texts));
    for Difference { path, line, what } in &differences {
        println!("{path}:{line}: spec: {what}");
    }
    if options.not_built {
        for (number, words) in requirements::not_built(&document) {
            println!("H-{number} is not built: {words}");
        }
    }
    let requirements = document.requirements.len();
    println!("spec: {requirements} requirements, 5 tables, {} differences", differences.len());
    Ok(differences.is_empty())
}
