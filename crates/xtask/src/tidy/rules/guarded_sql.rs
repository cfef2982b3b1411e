//! Every statement that changes a session, transfer, budget or lease says which version, status or epoch it
//! expects. Without it a late writer overwrites what somebody else decided.

use super::{Finding, Repo, Source};

const RULE: &str = "guarded-sql";
const GUARDED: &[&str] = &["sessions", "transfers", "budgets", "budget_leases"];
const CONDITIONS: &[&str] = &["version", "status", "epoch"];
/// Words that may stand between a verb and its table.
const FILLERS: &[&str] =
    &["only", "or", "ignore", "replace", "abort", "rollback", "fail", "into", "from", "handoff"];

/// Statements in string literals of the store.
pub(super) fn check(source: &Source<'_>) -> Vec<Finding> {
    if source.crate_name() != "handoff-store" {
        return Vec::new();
    }
    source
        .strings()
        .filter(|(line, _)| !source.is_test(*line))
        .flat_map(|(line, text)| unguarded(&text).into_iter().map(move |advice| (line, advice)))
        .map(|(line, advice)| Finding::new(RULE, source.path, line, advice))
        .collect()
}

/// Statements in files of their own. Migrations may change what they like: nothing runs beside them.
pub(super) fn check_files(repo: &Repo) -> Vec<Finding> {
    let is_ours = |path: &str| {
        path.starts_with("crates/handoff-store/") && path.ends_with(".sql") && !path.contains("migrations/")
    };
    repo.texts()
        .filter(|(path, _)| is_ours(path))
        .flat_map(|(path, text)| {
            unguarded(text).into_iter().map(move |advice| Finding::new(RULE, path, 1, advice))
        })
        .collect()
}

/// What is wrong with the statements in a text.
fn unguarded(text: &str) -> Vec<String> {
    let mut advice = Vec::new();
    for statement in text.split(';') {
        let words = words(statement);
        let starts: Vec<usize> = (0..words.len()).filter(|at| is_verb(&words, *at)).collect();
        for (nth, start) in starts.iter().enumerate() {
            let end = starts.get(nth + 1).copied().unwrap_or(words.len());
            advice.extend(judge(&words, *start, end));
        }
    }
    advice
}

/// Names and braces in order, lower case. `t.version` is two words; `{table}` begins with the word `{`.
fn words(statement: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    for letter in statement.chars() {
        let last = words.last_mut().expect("never empty");
        if letter.is_alphanumeric() || letter == '_' {
            last.extend(letter.to_lowercase());
        } else if letter == '{' {
            words.extend(["{".to_owned(), String::new()]);
        } else if !last.is_empty() {
            words.push(String::new());
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

/// `UPDATE`, `DELETE` or `DO UPDATE`/`REPLACE` of an upsert; not the lock of `FOR UPDATE`.
fn is_verb(words: &[String], at: usize) -> bool {
    let before = at.checked_sub(1).map(|at| words[at].as_str());
    match words[at].as_str() {
        "update" => !matches!(before, Some("for" | "on" | "key")),
        "delete" => before != Some("on"),
        "replace" => matches!(before, None | Some("or" | "insert")),
        _ => false,
    }
}

fn judge(words: &[String], start: usize, end: usize) -> Option<String> {
    let is_upsert = words[start] == "update" && start > 0 && words[start - 1] == "do";
    let table = if is_upsert {
        let insert = words[..start].iter().rposition(|word| word == "insert")?;
        target(&words[insert + 1..])?
    } else {
        target(&words[start + 1..])?
    };
    let verb = words[start].to_uppercase();
    if table == "{" {
        return Some(format!("{verb}: write the table's name out, so that its condition can be checked"));
    }
    if !GUARDED.contains(&table) {
        return None;
    }
    if verb == "REPLACE" {
        return Some(format!("REPLACE INTO {table} has no condition; use UPDATE … WHERE version = …"));
    }
    let body = &words[start..end];
    let condition = body.iter().position(|word| word == "where").map_or(&[][..], |at| &body[at..]);
    if condition.iter().any(|word| CONDITIONS.contains(&word.as_str())) {
        return None;
    }
    Some(format!("{verb} of {table} needs a version, status or epoch in its WHERE, in the same literal"))
}

fn target(words: &[String]) -> Option<&str> {
    words.iter().map(String::as_str).find(|word| !FILLERS.contains(word))
}

#[cfg(test)]
mod tests {
    use super::super::super::tests::{of_repo, of_source};
    use super::*;

    #[test]
    fn a_change_without_its_condition_is_found() {
        for bad in [
            "UPDATE transfers SET status = ?1 WHERE transfer_id = ?2",
            "update sessions set epoch = epoch + 1",
            "UPDATE ONLY handoff.budgets SET version = version + 1 WHERE id = $1",
            "WITH moved AS (UPDATE sessions SET holder = $1 WHERE id = $2 RETURNING id) UPDATE transfers SET x = 1 WHERE version = $3",
            "INSERT INTO transfers (a) VALUES (1) ON CONFLICT (a) DO UPDATE SET status = 'x'",
            "INSERT OR REPLACE INTO budget_leases VALUES (?1)",
            "REPLACE INTO sessions VALUES (?1)",
            "DELETE FROM budget_leases WHERE transfer_id = ?1",
            "SELECT 1; UPDATE sessions SET a = 1 WHERE id = 2",
            "UPDATE {table} SET version = 1 WHERE version = 0",
        ] {
            assert_eq!(unguarded(bad).len(), 1, "{bad}");
        }
    }

    #[test]
    fn conditions_locks_and_other_tables_pass() {
        for good in [
            "UPDATE transfers SET status = ?1 WHERE transfer_id = ?2 AND version = ?3",
            "UPDATE transfers AS t SET status = u.status FROM unnest($1) AS u(id) WHERE t.id = u.id AND t.version = u.was",
            "UPDATE budget_leases SET closed = 1 WHERE transfer_id = ?1 AND epoch = ?2",
            "SELECT version FROM sessions WHERE id = $1 FOR UPDATE",
            "SELECT 1 FROM sessions FOR NO KEY UPDATE",
            "INSERT INTO transfers (a) VALUES (1) ON CONFLICT DO NOTHING",
            "UPDATE nodes SET seen = ?1 WHERE id = ?2",
            "FOREIGN KEY (a) REFERENCES sessions ON DELETE CASCADE",
        ] {
            assert!(unguarded(good).is_empty(), "{good}: {:?}", unguarded(good));
        }
    }

    #[test]
    fn the_store_s_literals_and_files_are_read() {
        let text = "fn a() {\n    run(\"UPDATE sessions SET a = 1\");\n}\n";
        assert_eq!(of_source(check, "crates/handoff-store/src/sqlite.rs", text).len(), 1);
        assert!(of_source(check, "crates/handoff/src/main.rs", text).is_empty());
        let files = [
            ("crates/handoff-store/src/close.sql", "UPDATE budgets SET a = 1"),
            ("crates/handoff-store/migrations/V1__a.sql", "UPDATE budgets SET a = 1"),
        ];
        assert_eq!(of_repo(check_files, &files).len(), 1);
    }
}
