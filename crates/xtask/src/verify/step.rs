//! Runs one command of a suite: shows what it prints, line by line, and stops it when its time is up.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use super::processes;
use super::suites::Step;

/// After so long without output a line says that it still runs.
const SILENCE: Duration = Duration::from_secs(60);
/// How long output may go on after the command has ended: whoever holds it is a leftover.
const DRAIN: Duration = Duration::from_secs(10);
/// How long a command has to end after it was asked to.
const GRACE: Duration = Duration::from_secs(15);
/// How much of a saved output is shown after a failure.
const SAVED_BYTES: usize = 32 << 10;

enum Event {
    Line(String),
    Ended(std::io::Result<ExitStatus>),
}

/// Runs a step until it ends or the deadline. Every line goes to `tally`.
///
/// # Errors
/// A sentence that says why it failed.
pub(super) fn run(
    root: &Path,
    out: &Path,
    step: &Step,
    deadline: Instant,
    tally: &mut dyn FnMut(&str),
) -> Result<(), String> {
    if Instant::now() >= deadline {
        return Err("no time was left for it".to_owned());
    }
    let child = spawn(root, out, step).map_err(|error| format!("it cannot be run: {error}"))?;
    let pid = child.id();
    let watch = Watch { pid, name: &step.run[0], started: Instant::now(), deadline };
    let ended = watch.until_end(&listen(child), tally);
    if let (Err(_), Some(file)) = (&ended, &step.save) {
        show_saved(&out.join(file));
    }
    ended
}

/// The end of what a failed step wrote to a file: nobody else will look at it.
fn show_saved(file: &Path) {
    let bytes = std::fs::read(file).unwrap_or_default();
    let end = &bytes[bytes.len().saturating_sub(SAVED_BYTES)..];
    println!("{}", String::from_utf8_lossy(end));
}

fn spawn(root: &Path, out: &Path, step: &Step) -> std::io::Result<Child> {
    let place = out.to_string_lossy();
    let mut arguments = step.run.iter().map(|word| word.replace("{out}", &place));
    let mut command = Command::new(arguments.next().unwrap_or_default());
    command.args(arguments).envs(&step.env).current_dir(root).stdin(Stdio::null()).stderr(Stdio::piped());
    match &step.save {
        Some(file) => command.stdout(File::create(out.join(file))?),
        None => command.stdout(Stdio::piped()),
    };
    command.spawn()
}

/// One stream of everything that happens to the command. It closes when nobody holds its output any more.
fn listen(mut child: Child) -> Receiver<Event> {
    let (sender, receiver) = mpsc::channel();
    let outputs: [Option<Box<dyn Read + Send>>; 2] = [
        child.stdout.take().map(|pipe| Box::new(pipe) as Box<dyn Read + Send>),
        child.stderr.take().map(|pipe| Box::new(pipe) as Box<dyn Read + Send>),
    ];
    for output in outputs.into_iter().flatten() {
        let sender = sender.clone();
        thread::spawn(move || forward(output, &sender));
    }
    thread::spawn(move || sender.send(Event::Ended(child.wait())));
    receiver
}

fn forward(output: Box<dyn Read + Send>, sender: &Sender<Event>) {
    let mut reader = BufReader::new(output);
    let mut line = Vec::new();
    while reader.read_until(b'\n', &mut line).is_ok_and(|length| length > 0) {
        let text = String::from_utf8_lossy(&line).trim_end_matches(['\n', '\r']).to_owned();
        if sender.send(Event::Line(text)).is_err() {
            return;
        }
        line.clear();
    }
}

struct Watch<'a> {
    pid: u32,
    name: &'a str,
    started: Instant,
    deadline: Instant,
}

impl Watch<'_> {
    fn until_end(&self, events: &Receiver<Event>, tally: &mut dyn FnMut(&str)) -> Result<(), String> {
        let mut heard = Instant::now();
        loop {
            let wake = (heard + SILENCE).min(self.deadline);
            match events.recv_timeout(wake.saturating_duration_since(Instant::now())) {
                Ok(Event::Line(line)) => {
                    show(&line, tally);
                    heard = Instant::now();
                }
                Ok(Event::Ended(status)) => return self.after_end(status, events, tally),
                Err(RecvTimeoutError::Timeout) if Instant::now() >= self.deadline => {
                    return Err(self.stop(events, tally));
                }
                Err(RecvTimeoutError::Timeout) => {
                    println!("… {} has been running for {} s", self.name, self.started.elapsed().as_secs());
                    heard = Instant::now();
                }
                Err(RecvTimeoutError::Disconnected) => return Err("it was lost".to_owned()),
            }
        }
    }

    fn after_end(
        &self,
        status: std::io::Result<ExitStatus>,
        events: &Receiver<Event>,
        tally: &mut dyn FnMut(&str),
    ) -> Result<(), String> {
        let drained = drain(events, Instant::now() + DRAIN, tally);
        let status = status.map_err(|error| format!("it was lost: {error}"))?;
        if !status.success() {
            return Err(format!("it ended with {status}"));
        }
        if !drained {
            return Err("it left a process behind that holds its output".to_owned());
        }
        Ok(())
    }

    /// Stops the command and all that it started.
    fn stop(&self, events: &Receiver<Event>, tally: &mut dyn FnMut(&str)) -> String {
        let family = processes::family(self.pid);
        processes::ask_to_end(self.pid);
        await_end(events, Instant::now() + GRACE, tally);
        processes::end(&family);
        drain(events, Instant::now() + DRAIN, tally);
        format!("it was stopped after {} s, its time was up", self.started.elapsed().as_secs())
    }
}

/// Shows what comes until the command itself has ended, or the deadline.
fn await_end(events: &Receiver<Event>, deadline: Instant, tally: &mut dyn FnMut(&str)) {
    while let Ok(Event::Line(line)) = events.recv_timeout(deadline.saturating_duration_since(Instant::now()))
    {
        show(&line, tally);
    }
}

/// Shows what still comes until everybody has let go. False when somebody has not by the deadline.
fn drain(events: &Receiver<Event>, deadline: Instant, tally: &mut dyn FnMut(&str)) -> bool {
    loop {
        match events.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(Event::Line(line)) => show(&line, tally),
            Ok(Event::Ended(_)) => {}
            Err(RecvTimeoutError::Timeout) => return false,
            Err(RecvTimeoutError::Disconnected) => return true,
        }
    }
}

fn show(line: &str, tally: &mut dyn FnMut(&str)) {
    println!("{line}");
    tally(line);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, limit: Duration) -> (Result<(), String>, Vec<String>) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let run = ["sh", "-c", script].map(str::to_owned).to_vec();
        let step = Step { run, env: [("WORD".to_owned(), "said".to_owned())].into(), save: None };
        let mut lines = Vec::new();
        let mut tally = |line: &str| lines.push(line.to_owned());
        let ended = super::run(folder.path(), folder.path(), &step, Instant::now() + limit, &mut tally);
        (ended, lines)
    }

    #[test]
    fn both_outputs_are_heard_and_input_is_closed() {
        let (ended, mut lines) = shell("echo $WORD; echo more >&2; cat; printf end", Duration::from_secs(60));
        assert_eq!(ended, Ok(()));
        lines.sort();
        assert_eq!(lines, ["end", "more", "said"]);
    }

    #[test]
    fn a_command_past_its_time_is_stopped_with_what_it_started() {
        let (ended, lines) = shell("sleep 600 & echo $!; wait", Duration::from_millis(300));
        assert!(ended.expect_err("stopped").contains("its time was up"));
        let pid = &lines[0];
        let gone = || {
            std::fs::read_to_string(format!("/proc/{pid}/stat")).map_or(true, |stat| stat.contains(") Z "))
        };
        let deadline = Instant::now() + Duration::from_secs(10);
        while !gone() {
            assert!(Instant::now() < deadline, "process {pid} is still there");
            thread::yield_now();
        }
    }
}
