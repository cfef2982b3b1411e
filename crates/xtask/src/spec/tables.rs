//! The five tables, each held against the list in the code that it describes.

use handoff_core::Role;
use handoff_core::grid::CommandKind;
use handoff_protocol::request::{EventType, Operation};
use handoff_protocol::{ErrorCode, Status};

use super::Difference;
use super::document::{Document, Row};

/// The only tools there are. None mints, terminates, or asks what a model wants.
const TOOLS: [&str; 6] =
    ["snapshot_state", "provision_runtime", "push_state", "activate", "report_usage", "get_status"];

/// Roles that a command can be given in. An admin may give what people may give, so it is not listed.
const ROLES: [Role; 5] = [Role::Source, Role::Caller, Role::Orchestrator, Role::Node, Role::ControlPlane];

/// Everything that differs.
pub(super) fn compare(document: &Document) -> Vec<Difference> {
    type Check = fn(&[Row]) -> Vec<Difference>;
    let checks: [(&str, Check); 5] = [
        ("Statuses", statuses),
        ("Commands", commands),
        ("Events", events),
        ("Errors", errors),
        ("Tools", tools),
    ];
    let mut found = Vec::new();
    for (heading, check) in checks {
        match document.table(heading) {
            Some(rows) => found.extend(check(rows)),
            None => found.push(Difference::new(1, format!("there is no table under '## {heading}'"))),
        }
    }
    found
}

/// The words of the first column are exactly these, in this order.
fn first_column(rows: &[Row], what: &str, expected: &[&str]) -> Vec<Difference> {
    let mut found = Vec::new();
    for (index, row) in rows.iter().enumerate() {
        let word = row.words(0).first().copied().unwrap_or("");
        if expected.get(index).is_none_or(|right| *right != word) {
            let right = expected.get(index).map_or("no more rows".to_owned(), |right| format!("`{right}`"));
            found.push(Difference::new(row.line, format!("{what} `{word}`: the code has {right} here")));
        }
    }
    for missing in expected.iter().skip(rows.len()) {
        let line = rows.last().map_or(1, |row| row.line);
        found.push(Difference::new(line, format!("{what} `{missing}` is missing")));
    }
    found
}

fn statuses(rows: &[Row]) -> Vec<Difference> {
    first_column(rows, "status", &Status::ALL.map(Status::as_str))
}

fn events(rows: &[Row]) -> Vec<Difference> {
    first_column(rows, "event", &EventType::ALL.map(EventType::as_str))
}

fn errors(rows: &[Row]) -> Vec<Difference> {
    let codes: Vec<&str> = ErrorCode::ALL.iter().map(|code| code.as_str()).collect();
    let mut found = first_column(rows, "error", &codes);
    for row in rows {
        let word = row.words(0).first().copied().unwrap_or("").to_owned();
        let Some(code) = ErrorCode::ALL.iter().find(|code| code.as_str() == word) else { continue };
        let columns = [
            code.http_status().to_string(),
            if code.retryable() { "yes" } else { "no" }.to_owned(),
            (code.exit() as u8).to_string(),
            code.sentence().to_owned(),
        ];
        for (index, right) in columns.iter().enumerate() {
            let written = row.text(index + 1);
            if written != right {
                let what = format!("error `{word}`: '{written}' is '{right}' in the code");
                found.push(Difference::new(row.line, what));
            }
        }
    }
    found
}

fn commands(rows: &[Row]) -> Vec<Difference> {
    let names: Vec<&str> = CommandKind::ALL.iter().map(|kind| kind.as_str()).collect();
    let mut found = first_column(rows, "command", &names);
    for row in rows {
        let word = row.words(0).first().copied().unwrap_or("");
        if let Some(kind) = CommandKind::ALL.iter().find(|kind| kind.as_str() == word) {
            found.extend(command(row, *kind));
        }
    }
    found
}

fn command(row: &Row, kind: CommandKind) -> Vec<Difference> {
    let roles: Vec<&str> =
        ROLES.iter().filter(|role| kind.permits(**role)).map(|role| role.as_str()).collect();
    let from: Vec<&str> = kind.legal_from().iter().map(|status| status.as_str()).collect();
    let event: Vec<&str> = kind.event().iter().map(|event| event.as_str()).collect();
    let mut found = Vec::new();
    for (column, name, right) in [(1, "who", &roles), (2, "legal from", &from), (5, "usage event", &event)] {
        let written = row.words(column);
        if sorted(&written) != sorted(right) {
            let what = format!("command `{kind}`, {name}: {written:?} is {right:?} in the code");
            found.push(Difference::new(row.line, what));
        }
    }
    for (column, is_known) in [(4, is_status as fn(&str) -> bool), (5, is_event)] {
        for word in row.all_words(column).into_iter().filter(|word| !is_known(word)) {
            found.push(Difference::new(row.line, format!("command `{kind}`: there is no `{word}`")));
        }
    }
    found
}

fn sorted<'a>(words: &[&'a str]) -> Vec<&'a str> {
    let mut words = words.to_vec();
    words.sort_unstable();
    words
}

fn is_status(word: &str) -> bool {
    Status::parse(word).is_some()
}

fn is_event(word: &str) -> bool {
    EventType::parse(word).is_some() || word.starts_with("cause: ")
}

fn tools(rows: &[Row]) -> Vec<Difference> {
    let mut found = first_column(rows, "tool", &TOOLS);
    for row in rows {
        for word in row.words(1) {
            if !CommandKind::ALL.iter().any(|kind| kind.as_str() == word) {
                found.push(Difference::new(row.line, format!("there is no command `{word}`")));
            }
        }
    }
    for operation in [Operation::ProvisionRuntime, Operation::Activate] {
        if !TOOLS.contains(&operation.as_str()) {
            found.push(Difference::new(1, format!("`{}` needs a token and is no tool", operation.as_str())));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: &str = include_str!("../../../../docs/protocol.md");

    /// What differs when a piece of the specification is written otherwise.
    fn differences(written: &str, otherwise: &str) -> Vec<String> {
        assert!(OWN.contains(written), "the specification says '{written}'");
        let text = OWN.replacen(written, otherwise, 1);
        compare(&Document::parse(&text)).into_iter().map(|found| found.what).collect()
    }

    /// H-95, H-105, H-106
    #[test]
    fn the_specification_says_what_the_code_does() {
        assert_eq!(compare(&Document::parse(OWN)), []);
    }

    #[test]
    fn a_table_that_says_otherwise_is_found() {
        for (written, otherwise) in [
            ("## Statuses", "## States"),
            ("| `pushed` |", "| `shipped` |"),
            ("| `state_pushed` |", "| `snapshot_pushed` |"),
            ("| `get_status` |", "| `terminate` |"),
            ("| `not_final` | 409 |", "| `not_final` | 410 |"),
            ("| `no_node` | 503 | yes |", "| `no_node` | 503 | no |"),
            (
                "| `activate` | `caller`, `orchestrator` |",
                "| `activate` | `source`, `caller`, `orchestrator` |",
            ),
            ("| `rest` | `node` | `active` |", "| `rest` | `node` | `active`, `insolvent` |"),
            ("| `expired` |\n", "| – |\n"),
        ] {
            let found = differences(written, otherwise);
            assert!(!found.is_empty(), "{written} → {otherwise} passes");
        }
    }

    #[test]
    fn rows_that_are_too_many_or_missing_are_found() {
        let rows = |words: &[&str]| {
            let body: String = words.iter().map(|word| format!("| `{word}` | x |\n")).collect();
            let document = Document::parse(&format!("## Statuses\n\n| status | x |\n|---|---|\n{body}"));
            statuses(document.table("Statuses").expect("a table")).len()
        };
        let all = Status::ALL.map(Status::as_str);
        assert_eq!(rows(&all), 0);
        assert_eq!(rows(&all[..6]), 1);
        assert_eq!(rows(&[&all[..], &["paused"]].concat()), 1);
    }
}
