//! What people and programs read: text on a terminal, one JSON document with `--json`, progress on standard
//! error, and the exit that an error deserves.

use std::fmt::Display;
use std::io::Write as _;
use std::process::ExitCode;

use handoff_client::ClientError;
use handoff_protocol::error::Exit;
use handoff_protocol::{ErrorCode, Problem};

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

    /// The document of a program's answer.
    pub fn document(self, document: &impl serde::Serialize) {
        if self.json {
            let text = serde_json::to_string_pretty(document).expect("answers are plain data");
            write_out(format_args!("{text}\n"));
        }
    }
}

fn write_out(text: std::fmt::Arguments<'_>) {
    let mut out = anstream::stdout().lock();
    // A reader that went away has seen enough.
    let _ = out.write_fmt(text);
    let _ = out.flush();
}

/// Says what went wrong and what to do, and gives the exit for it.
pub fn fail(output: Output, error: &anyhow::Error) -> ExitCode {
    let problem = error.chain().find_map(problem_of);
    let exit = match &problem {
        Some(problem) => problem.code.exit(),
        None if error.chain().any(|cause| cause.to_string().starts_with("misconfigured")) => Exit::Usage,
        None => Exit::Refused,
    };
    match problem {
        Some(problem) if output.is_json() => output.document(&problem),
        Some(problem) => {
            output.progress(format_args!("error: {:#} [{}]", WithoutProblem(error, &problem), problem.code));
            output.progress(format_args!("  → {}", problem.hint));
        }
        None if output.is_json() => {
            let problem = Problem::new(ErrorCode::Internal, format!("{error:#}"), "");
            output.document(&problem);
        }
        None => output.progress(format_args!("error: {error:#}")),
    }
    ExitCode::from(exit as u8)
}

fn problem_of(cause: &(dyn std::error::Error + 'static)) -> Option<Problem> {
    if let Some(problem) = cause.downcast_ref::<Problem>() {
        return Some(problem.clone());
    }
    cause.downcast_ref::<ClientError>().map(ClientError::problem)
}

/// The error's own words in front of the problem's message.
struct WithoutProblem<'a>(&'a anyhow::Error, &'a Problem);

impl Display for WithoutProblem<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let outer = self.0.to_string();
        if outer.contains(&self.1.message) {
            write!(f, "{}", self.1.message)
        } else {
            write!(f, "{outer}: {}", self.1.message)
        }
    }
}
