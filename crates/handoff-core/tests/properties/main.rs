//! What holds of the machine whatever is asked of it, in whatever order and at whatever time.

mod invariants;
mod steps;

use handoff_core::apply::replay;
use handoff_core::grid::CommandKind;
use handoff_core::{Command, Decision, Fact, Policy, Reply, State, decide};
use handoff_protocol::Timestamp;
use proptest::prelude::*;

use steps::{Reader, Step, rooms, steps};

/// A history: the state after each accepted command, and all facts in order.
struct History {
    policy: Policy,
    state: State,
    facts: Vec<Fact>,
    now: Timestamp,
    reader: Reader,
}

impl History {
    fn new() -> Self {
        let now = Timestamp::from_unix_ms(1_000_000);
        let mut state = State::default();
        rooms(&mut state, now);
        Self { policy: Policy::default(), state, facts: Vec::new(), now, reader: Reader::new() }
    }

    /// Takes one step; what was decided, if it was accepted, with the state before it.
    fn take(&mut self, step: &Step) -> Option<(Command, Decision, State)> {
        self.now = self.now.plus_ms(step.later_ms);
        rooms(&mut self.state, self.now);
        let command = self.reader.command(&self.policy, &self.state, step, self.now);
        let before = self.state.clone();
        let decision = decide(&self.policy, &self.state, &command, self.now);
        assert_eq!(before, self.state, "a decision changes nothing by itself");
        let decision = decision.ok()?;
        decision.facts.iter().for_each(|fact| self.state.apply(fact));
        self.facts.extend(decision.facts.iter().cloned());
        Some((command, decision, before))
    }
}

/// Commands that may be sent again when their answer was lost: then they change nothing, and get their answer.
fn may_be_sent_again(command: &Command) -> bool {
    match command.kind() {
        CommandKind::Refresh
        | CommandKind::Push
        | CommandKind::Receipt
        | CommandKind::Claim
        | CommandKind::Reclaim
        | CommandKind::Checkpoint
        | CommandKind::Rest
        | CommandKind::Wake
        | CommandKind::ReportUsage
        | CommandKind::Return
        | CommandKind::Observe
        | CommandKind::WriteOff => true,
        CommandKind::Stage
        | CommandKind::Provision
        | CommandKind::Activate
        | CommandKind::Decline
        | CommandKind::Withdraw
        | CommandKind::Renew
        | CommandKind::RecordSpend
        | CommandKind::RaiseBudget
        | CommandKind::Reassign
        | CommandKind::Terminate
        | CommandKind::Expire
        | CommandKind::AbandonSource => false,
    }
}

/// Cases of each property: 150, times the rounds that a full run asks for.
#[expect(clippy::disallowed_methods, reason = "a test's length is no setting of the machine")]
fn cases() -> u32 {
    // As `handoff_testkit::rounds`, which knows this crate and a runtime, and so cannot be known here.
    let rounds = std::env::var("HANDOFF_TEST_ROUNDS").map_or(1, |text| text.parse().unwrap_or(0));
    assert!(rounds > 0, "HANDOFF_TEST_ROUNDS is a positive number: a full run must not be a short one");
    150 * rounds
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, ..ProptestConfig::default() })]

    /// Money, arbitration, epochs, leases and versions hold after every step.
    #[test]
    fn invariants_hold_after_every_step(steps in steps()) {
        let mut history = History::new();
        let mut money = invariants::Money::default();
        let mut places = invariants::Places::default();
        for step in &steps {
            let taken = history.take(step);
            let Some((command, decision, before)) = taken else { continue };
            let (policy, state, now) = (&history.policy, &history.state, history.now);
            money.note(&before, &decision.facts);
            money.check(policy, &before, state);
            places.note(&before, &command, &decision.facts);
            places.check(policy, state, now);
            invariants::arbitration(state);
            invariants::transitions(&before, state, &decision.facts);
            invariants::versions(&before, state, &command, &decision.facts);
            invariants::holder_was_out(&before, &decision.facts, now);
            invariants::one_place_runs(policy, state, now);
            prop_assert!(before != *state || decision.facts.is_empty(), "{command:?} made empty facts");
        }
    }

    /// H-11: folding the facts from the first one gives the present state, and events are numbered without gaps.
    #[test]
    fn the_history_gives_the_state(steps in steps()) {
        let mut history = History::new();
        for step in &steps {
            history.take(step);
        }
        let mut replayed = replay(&history.facts);
        replayed.rooms = history.state.rooms.clone();
        prop_assert_eq!(&replayed, &history.state);
        invariants::events_are_numbered(&history.state, &history.facts);
    }

    /// What a lost answer makes somebody send again is answered again and changes nothing.
    #[test]
    fn sent_again_it_changes_nothing(steps in steps()) {
        let mut history = History::new();
        for step in &steps {
            let taken = history.take(step);
            let Some((command, first, _)) = taken else { continue };
            if !may_be_sent_again(&command) {
                continue;
            }
            match decide(&history.policy, &history.state, &command, history.now) {
                Ok(again) => {
                    prop_assert_eq!(&again.facts, &Vec::new(), "{:?}", command);
                    prop_assert_eq!(again.reply, first.reply);
                }
                // A push that failed is asked for anew; nothing else is refused the second time.
                Err(refusal) => {
                    let failed = first.facts.iter().any(|fact| matches!(fact, Fact::PushFailed { .. }));
                    prop_assert!(failed, "{:?} was refused the second time: {}", command, refusal);
                }
            }
        }
    }

    /// Every answer to a report carries the limit that the books say.
    #[test]
    fn a_meter_is_told_what_the_books_say(steps in steps()) {
        let mut history = History::new();
        for step in &steps {
            let taken = history.take(step);
            let Some((Command::ReportUsage { transfer, usage, .. }, decision, _)) = taken else { continue };
            let Reply::Usage { accepted_seq, limit, .. } = decision.reply else {
                return Err(TestCaseError::fail("a report is answered as one"));
            };
            let account = history.state.transfers[&transfer].epochs[&handoff_core::Epoch(usage.epoch)];
            prop_assert_eq!((accepted_seq, limit), (account.seq, account.limit));
        }
    }
}

/// The random histories are worth something only if they get far.
#[test]
fn random_histories_reach_every_status_and_every_accepted_command() {
    use proptest::strategy::ValueTree;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let (mut statuses, mut kinds) = (std::collections::BTreeSet::new(), std::collections::BTreeSet::new());
    for _ in 0..200 {
        let drawn = steps().new_tree(&mut runner).expect("steps can be drawn").current();
        let mut history = History::new();
        for step in &drawn {
            if let Some((command, _, _)) = history.take(step) {
                kinds.insert(command.kind());
                statuses.extend(history.state.transfers.values().map(|found| found.status));
            }
        }
    }
    let missing = |kind: &&CommandKind| !kinds.contains(kind);
    assert_eq!(statuses.len(), 7, "{statuses:?}");
    assert_eq!(CommandKind::ALL.iter().filter(missing).collect::<Vec<_>>(), Vec::<&CommandKind>::new());
}
