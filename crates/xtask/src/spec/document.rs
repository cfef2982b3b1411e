//! The specification as far as it is read by machine: tables under headings, and numbered requirements.

use std::collections::BTreeMap;

/// The mark of a requirement that is not built yet, between its number and its words.
pub(super) const NOT_BUILT: char = '◌';

/// A parsed document.
pub(super) struct Document {
    /// The first table under each second-level heading.
    tables: BTreeMap<String, Vec<Row>>,
    /// In order of appearance.
    pub(super) requirements: Vec<Requirement>,
}

/// One row of a table, without its header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) line: usize,
    cells: Vec<String>,
}

/// One numbered requirement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Requirement {
    pub(super) line: usize,
    pub(super) number: u64,
    pub(super) text: String,
    /// It does not carry the mark of what is not built yet.
    pub(super) is_built: bool,
}

impl Row {
    /// The text of a cell, from 0; empty where there is none.
    pub(super) fn text(&self, column: usize) -> &str {
        self.cells.get(column).map_or("", String::as_str)
    }

    /// The words between backticks in a cell, up to the first parenthesis. What stands in parentheses happens
    /// sometimes.
    pub(super) fn words(&self, column: usize) -> Vec<&str> {
        let text = self.text(column);
        quoted(text.split('(').next().unwrap_or(text))
    }

    /// All words between backticks in a cell.
    pub(super) fn all_words(&self, column: usize) -> Vec<&str> {
        quoted(self.text(column))
    }
}

fn quoted(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

impl Document {
    /// Reads a document.
    pub(super) fn parse(text: &str) -> Self {
        let mut document = Self { tables: BTreeMap::new(), requirements: Vec::new() };
        let (mut heading, mut table) = (String::new(), Vec::new());
        for (index, line) in text.lines().enumerate() {
            let number = index + 1;
            if line.starts_with('|') {
                table.push(row(number, line));
                continue;
            }
            document.keep(&heading, &mut table);
            if let Some(words) = line.strip_prefix("## ") {
                heading = words.trim().to_owned();
            } else if let Some(found) = requirement(number, line) {
                document.requirements.push(found);
            } else if let (Some(last), true) = (document.requirements.last_mut(), line.starts_with("  ")) {
                last.text.push(' ');
                last.text.push_str(line.trim());
            }
        }
        document.keep(&heading, &mut table);
        document
    }

    /// The rows of the first table under a heading.
    pub(super) fn table(&self, heading: &str) -> Option<&[Row]> {
        self.tables.get(heading).map(Vec::as_slice)
    }

    /// Keeps a finished table, if it is the first under its heading. Its first two lines are its header.
    fn keep(&mut self, heading: &str, table: &mut Vec<Row>) {
        let table = std::mem::take(table);
        if table.len() > 2 && !self.tables.contains_key(heading) {
            self.tables.insert(heading.to_owned(), table.into_iter().skip(2).collect());
        }
    }
}

fn row(line: usize, text: &str) -> Row {
    let inner = text.trim().trim_start_matches('|').trim_end_matches('|');
    Row { line, cells: inner.split('|').map(|cell| cell.trim().to_owned()).collect() }
}

fn requirement(line: usize, text: &str) -> Option<Requirement> {
    let rest = text.strip_prefix("- **H-")?;
    let (number, words) = rest.split_once("**")?;
    let (words, is_built) = match words.trim().strip_prefix(NOT_BUILT) {
        Some(words) => (words, false),
        None => (words, true),
    };
    Some(Requirement { line, number: number.parse().ok()?, text: words.trim().to_owned(), is_built })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_and_requirements_are_read() {
        let text = "# T\n\n- **H-1** A source MUST\n  stop.\n\n## Events\n\nWords.\n\n| event | by |\n|---|---|\n| `a` | `x` (`y` at times) |\n\n| other |\n|---|\n| `b` |\n- **H-2** ◌ ▲ More ◌.\n";
        let document = Document::parse(text);
        let rows = document.table("Events").expect("a table");
        assert_eq!((rows.len(), rows[0].line), (1, 12));
        assert_eq!(rows[0].words(0), ["a"]);
        assert_eq!(rows[0].words(1), ["x"]);
        assert_eq!(rows[0].all_words(1), ["x", "y"]);
        assert_eq!(rows[0].words(7), Vec::<&str>::new());
        assert_eq!(document.requirements.len(), 2);
        assert_eq!(document.requirements[0].text, "A source MUST stop.");
        assert_eq!(document.requirements[1].number, 2);
        assert_eq!(document.requirements[1].text, "▲ More ◌.");
        assert_eq!([0, 1].map(|at| document.requirements[at].is_built), [true, false]);
    }
}
