//! Ends: a process is killed in the middle of its work, or the store is dropped with callers still waiting. What
//! was answered is there, and what is there is whole.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command as Process, Stdio};
use std::sync::Arc;
use std::task::Poll;

use handoff_core::Policy;
use handoff_core::command::{Actor, Command, Role, Stage};
use handoff_core::ledger::{Chain, Envelope, Filter, Ledger, Request};
use handoff_protocol::{Digest, ProjectId, SessionId, TransferId};
use handoff_store::{OpenError, OpenOptions, SqliteLedger};
use tempfile::TempDir;

/// Names the store that the victim works on; set only for the process that is to be killed.
const VICTIM: &str = "HANDOFF_STORE_VICTIM";
const PROJECT: ProjectId = ProjectId::from_u128(1);
const TASKS: u128 = 8;
/// Answers that the victim gives before it is killed.
const ANSWERS: usize = 200;

fn open(path: &Path) -> SqliteLedger {
    SqliteLedger::open(path, Policy::default(), OpenOptions::default()).expect("the store opens")
}

/// The nth command: it can be made again by whoever asks whether it was applied.
fn command(number: u128) -> Envelope {
    let stage = Stage {
        transfer: TransferId::from_u128(number),
        session: SessionId::from_u128(number),
        project: PROJECT,
        principal: "laptop".to_owned(),
        expected_epoch: None,
        snapshot: Some(Digest::of(&number.to_be_bytes())),
        is_final: number.is_multiple_of(2),
        abandon_source: false,
        labels: Default::default(),
    };
    Envelope {
        project: PROJECT,
        actor: Actor { principal: "laptop".to_owned(), role: Role::Source },
        request: Some(Request {
            id: format!("number-{number}").parse().expect("a request id"),
            body: Digest::of(&number.to_be_bytes()),
        }),
        expected_version: None,
        command: Command::Stage(stage),
    }
}

/// Works until it is killed, when it is asked to; says the number of every command that was answered.
#[test]
fn the_victim_works_until_it_is_killed() {
    let Ok(path) = std::env::var(VICTIM) else { return };
    let ledger = Arc::new(open(Path::new(&path)));
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let work = |task: u128| {
        let ledger = Arc::clone(&ledger);
        async move {
            for number in (task + 1..).step_by(TASKS as usize) {
                let answer = ledger.apply(vec![command(number)]).await.remove(0);
                answer.expect("it is applied");
                writeln!(std::io::stdout().lock(), "answered {number}").expect("somebody listens");
            }
        }
    };
    let tasks: Vec<_> = (0..TASKS).map(|task| runtime.spawn(work(task))).collect();
    for task in tasks {
        runtime.block_on(task).expect("the task goes on");
    }
}

/// Starts the victim, lets it answer for a while, and kills it. Gives what it answered.
fn kill_in_the_middle(path: &Path) -> BTreeSet<u128> {
    let mut victim = Process::new(std::env::current_exe().expect("this test's own file"))
        .args(["--exact", "kill::the_victim_works_until_it_is_killed", "--nocapture"])
        .env(VICTIM, path)
        .stdout(Stdio::piped())
        .spawn()
        .expect("the victim starts");
    let lines = BufReader::new(victim.stdout.take().expect("it is piped")).lines();
    let numbers = lines.map_while(Result::ok).filter_map(|line| line.strip_prefix("answered ")?.parse().ok());
    let mut answered = BTreeSet::new();
    for number in numbers {
        answered.insert(number);
        if answered.len() == 1 {
            let second = SqliteLedger::open(path, Policy::default(), OpenOptions::default());
            assert!(matches!(second, Err(OpenError::StoreLocked { .. })), "the victim has it open");
        }
        if answered.len() == ANSWERS {
            victim.kill().expect("it can be killed");
        }
    }
    victim.wait().expect("it ends");
    answered
}

async fn check(ledger: &SqliteLedger, answered: &BTreeSet<u128>) {
    for number in answered {
        let again = ledger.apply(vec![command(*number)]).await.remove(0).expect("it is answered again");
        assert!(again.replayed, "number {number} was answered and is not there");
    }
    let filter = Filter { limit: usize::MAX, ..Filter::default() };
    let found = ledger.transfers(PROJECT, &filter).await.expect("the store answers").found;
    assert!(found.len() >= answered.len());
    for found in found {
        let id = found.transfer.id;
        let events = ledger.events(PROJECT, id, 0, 0).await.expect("the store answers");
        assert_eq!((events.len(), events[0].seq, found.transfer.event_seq), (1, 1, 1));
        assert_eq!(found.session.pending, Some(id));
        let chain = ledger.verify_chain(PROJECT, Some(id)).await.expect("the store answers");
        assert!(matches!(chain, Chain::Whole { links: 2, .. }), "{chain:?}");
    }
}

#[tokio::test]
async fn after_a_kill_everything_that_was_answered_is_there_and_whole() {
    let folder = TempDir::new().expect("a folder for a test");
    let path = folder.path().join("handoff.db");
    let mut answered = BTreeSet::new();
    for _ in 0..2 {
        // The second victim finds the first one's commands and is answered again.
        answered.extend(kill_in_the_middle(&path));
        check(&open(&path), &answered).await;
    }
}

#[tokio::test]
async fn dropped_with_callers_waiting_the_store_finishes_what_was_asked() {
    let folder = TempDir::new().expect("a folder for a test");
    let path = folder.path().join("handoff.db");
    let ledger = open(&path);
    let mut calls: Vec<_> = (1..=64u128).map(|number| ledger.apply(vec![command(number)])).collect();
    // Each is heard, then all callers go away without their answers.
    std::future::poll_fn(|context| {
        for call in &mut calls {
            let _ = call.as_mut().poll(context);
        }
        Poll::Ready(())
    })
    .await;
    drop(calls);
    drop(ledger);
    let ledger = open(&path);
    let filter = Filter { limit: usize::MAX, ..Filter::default() };
    let found = ledger.transfers(PROJECT, &filter).await.expect("the store answers").found;
    let numbers: BTreeSet<u128> = found.iter().map(|found| found.transfer.id.as_u128()).collect();
    check(&ledger, &numbers).await;
    assert_eq!(numbers.len(), 64, "asked is asked, whether or not somebody waits for the answer");
}
