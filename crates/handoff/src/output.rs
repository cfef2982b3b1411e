//! What people and programs read: text on a terminal, one JSON document with `--json`, progress on standard
//! error, and the exit that an error deserves.

use std::fmt::Display;
use std::io::Write as _;
use std::process::ExitCode;

use handoff_protocol::error::Exit;
use handoff_protocol::{ErrorCode, Problem};

use crate::refusal;

/// Where the output goes.
#[derive(Debug, Clone, Copy)]
pub struct Output {
    json: bool,
}

impl Output {
    /// Text, or one JSON document.
    pub fn new(json: bool) -> Self {
        Self { json }
    }

    /// Whether standard output holds one JSON document and nothing else.
    pub fn is_json(self) -> bool {
        self.json
    }

    /// A line of the answer, for people.
    pub fn line(self, line: impl Display) {
        if !self.json {
            write_out(format_args!("{line}\n"));
        }
    }

    /// A line of progress.
    pub fn progress(self, line: impl Display) {
        let mut out = anstream::stderr().lock();
        let _ = writeln!(out, "{line}");
    }

    /// The document of a program's answer, under the name of its shape.
    pub fn titled(self, schema: &'static str, document: &impl serde::Serialize) {
        self.document(&Titled { schema, document });
    }

    /// The document of a program's answer that carries the name of its shape already.
    pub fn document(self, document: &impl serde::Serialize) {
        if self.json {
            let text = serde_json::to_string_pretty(document).expect("answers are plain data");
            write_out(format_args!("{text}\n"));
        }
    }
}

#[derive(serde::Serialize)]
struct Titled<'a, T> {
    schema: &'static str,
    #[serde(flatten)]
    document: &'a T,
}

fn write_out(text: std::fmt::Arguments<'_>) {
    let mut out = anstream::stdout().lock();
    // A reader that went away has seen enough.
    let _ = out.write_fmt(text);
    let _ = out.flush();
}

/// Says what is wrong with the words of a command line that could not be read, to a program as well: whether it
/// asked for JSON is looked up in the words themselves.
pub fn misused(error: &clap::Error, words: &[String]) -> ExitCode {
    let _ = error.print();
    let asked_for_json = words.iter().take_while(|word| *word != "--").any(|word| word == "--json");
    Output::new(asked_for_json).titled("handoff.error.v1", &usage(error));
    ExitCode::from(Exit::Usage as u8)
}

/// The parser's words as a problem: its first paragraph says what is wrong.
fn usage(error: &clap::Error) -> Problem {
    let text = error.to_string();
    let first = text.split("\n\n").next().unwrap_or_default();
    let lines: Vec<&str> = first.lines().map(str::trim).collect();
    let message = lines.join(" ");
    let message = message.strip_prefix("error: ").unwrap_or(&message);
    let message = match error.kind() {
        clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => "a command is missing",
        _ => message,
    };
    Problem::new(ErrorCode::InvalidArgument, message, "see `handoff --help`, or `handoff COMMAND --help`")
}

/// Says what went wrong and what to do, and gives the exit for it.
pub fn fail(output: Output, error: &anyhow::Error) -> ExitCode {
    let problem = refusal::problem(error);
    output.progress(format_args!("error: {} [{}]", problem.message, problem.code));
    if !problem.hint.is_empty() {
        output.progress(format_args!("  → {}", problem.hint));
    }
    output.titled("handoff.error.v1", &problem);
    ExitCode::from(problem.code.exit() as u8)
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::cli::Cli;

    #[test]
    fn the_parser_s_words_become_one_sentence() {
        let said = |words: &[&str]| usage(&Cli::try_parse_from(words).expect_err("wrong words")).message;
        let amount = said(&["handoff", "plan", "--budget", "five"]);
        assert!(amount.starts_with("invalid value 'five' for '--budget <USD>': 'five' is not"), "{amount}");
        assert_eq!(said(&["handoff"]), "a command is missing");
        let missing = said(&["handoff", "transfer", "push"]);
        assert_eq!(missing, "the following required arguments were not provided: <TRANSFER>");
    }
}
