//! The machine by given, when and then.

use handoff_protocol::session_dir::Standing;
use handoff_protocol::{SessionId, TransferId};

use super::*;
use crate::control::Holder;

const SESSION: SessionId = SessionId::from_u128(1);
const TRANSFER: TransferId = TransferId::from_u128(2);
const FREEZE: Freeze = Freeze { session_id: SESSION, transfer_id: TRANSFER, epoch: 1 };

fn boundary(step: u64, messages: u64, bytes: u64, turn: TurnState) -> Boundary {
    Boundary { step, messages_bytes: bytes, messages, turn }
}

fn call(id: &str) -> ToolCall {
    ToolCall { id: format!("\"{id}\""), name: "read_file".into(), arguments: "{}".into() }
}

fn snapshot(id: &str, is_final: bool) -> ToolCall {
    let arguments = format!(r#"{{"final":{is_final}}}"#);
    ToolCall { id: format!("\"{id}\""), name: self_snapshot::NAME.into(), arguments }
}

/// A loop with one user message, and what its start leads to.
fn given(recovered: Recovered, wait_for_go: bool) -> (Machine, Vec<Effect>) {
    let turn = if recovered.model_next { TurnState::ModelNext } else { TurnState::Idle };
    let at = boundary(0, 1, 10, turn);
    let mut machine = Machine::at(at.clone(), at);
    let effects = machine.handle(Event::Started { recovered, wait_for_go, epoch: Some(1) });
    (machine, effects)
}

fn calling() -> (Machine, u64) {
    let (machine, effects) = given(Recovered { model_next: true, ..Recovered::default() }, false);
    let [Effect::CallModel { ticket }] = effects[..] else { panic!("not one model call: {effects:?}") };
    (machine, ticket)
}

fn answer(machine: &mut Machine, ticket: u64, calls: Vec<ToolCall>) -> Vec<Effect> {
    machine.handle(Event::ModelAnswered { ticket, message: "{answer}".into(), calls })
}

/// A loop that runs the first of these calls.
fn in_tool(calls: Vec<ToolCall>) -> (Machine, u64) {
    let (mut machine, ticket) = calling();
    let effects = answer(&mut machine, ticket, calls);
    let Some(Effect::RunTool { ticket, .. }) = effects.last() else { panic!("no tool: {effects:?}") };
    (machine, *ticket)
}

fn quiesce(within_ms: u64, freeze: Option<Freeze>) -> Event {
    Event::Told(ToAgent::Quiesce { within_ms, freeze })
}

fn resume(holder: Option<Holder>) -> Event {
    Event::Told(ToAgent::Resume { holder })
}

fn appended(effects: &[Effect]) -> Vec<&str> {
    let mut messages = Vec::new();
    for effect in effects {
        if let Effect::Append(message) = effect {
            messages.push(message.as_str());
        }
    }
    messages
}

fn quiesced(effects: &[Effect]) -> Option<(&Boundary, bool)> {
    match effects.last() {
        Some(Effect::Tell(FromAgent::Quiesced { boundary, frozen })) => Some((boundary, *frozen)),
        _ => None,
    }
}

#[test]
fn a_step_is_call_append_boundary_tool_result_boundary() {
    let (mut machine, ticket) = calling();
    let effects = answer(&mut machine, ticket, vec![call("a")]);
    let open = TurnState::ToolsOpen { calls: vec!["a".into()] };
    let [Effect::Append(_), Effect::WriteBoundary(asked), Effect::RunTool { ticket, .. }] = &effects[..]
    else {
        panic!("{effects:?}");
    };
    assert_eq!(*asked, boundary(1, 2, 19, open));
    let ticket = *ticket;
    let effects = machine.handle(Event::ToolFinished { ticket, result: "done".into() });
    let result = r#"{"role":"tool","tool_call_id":"a","content":"done"}"#;
    let bytes = 19 + result.len() as u64 + 1;
    assert_eq!(
        effects,
        [
            Effect::Append(result.to_owned()),
            Effect::WriteBoundary(boundary(1, 3, bytes, TurnState::ModelNext)),
            Effect::Tell(FromAgent::Step { step: 1 }),
            Effect::CallModel { ticket: ticket + 1 },
        ]
    );
}

#[test]
fn an_answer_without_calls_ends_the_turn() {
    let (mut machine, ticket) = calling();
    let effects = answer(&mut machine, ticket, Vec::new());
    assert_eq!(
        effects[1..],
        [
            Effect::WriteBoundary(boundary(1, 2, 19, TurnState::Idle)),
            Effect::Tell(FromAgent::Step { step: 1 }),
            Effect::Tell(FromAgent::Idle { step: 1 }),
        ]
    );
    let effects = machine.handle(Event::Told(ToAgent::Say { text: "more".into() }));
    assert_eq!(appended(&effects), [r#"{"role":"user","content":"more"}"#]);
    assert!(matches!(effects.last(), Some(Effect::CallModel { .. })));
}

#[test]
fn each_call_of_an_answer_has_its_own_durable_boundary_before_it_runs() {
    let (mut machine, ticket) = in_tool(vec![call("a"), call("b")]);
    let effects = machine.handle(Event::ToolFinished { ticket, result: "1".into() });
    let open = TurnState::ToolsOpen { calls: vec!["b".into()] };
    let [Effect::Append(_), Effect::WriteBoundary(before), Effect::RunTool { call, .. }] = &effects[..]
    else {
        panic!("{effects:?}");
    };
    assert_eq!((&before.turn, call.id.as_str()), (&open, "\"b\""));
}

#[test]
fn what_is_said_meanwhile_waits_for_the_boundary() {
    let (mut machine, ticket) = in_tool(vec![call("a")]);
    assert_eq!(machine.handle(Event::Told(ToAgent::Say { text: "x".into() })), []);
    let effects = machine.handle(Event::ToolFinished { ticket, result: "1".into() });
    assert_eq!(appended(&effects).len(), 2);
    assert!(appended(&effects)[1].contains("\"user\""));
    assert!(effects.contains(&Effect::Tell(FromAgent::Heard { messages: 4 })));
}

#[test]
fn reports_of_what_was_broken_off_come_too_late() {
    let (mut machine, ticket) = calling();
    let effects = machine.handle(quiesce(0, None));
    assert_eq!(effects[0], Effect::CancelModel);
    assert!(quiesced(&effects).is_some());
    assert_eq!(answer(&mut machine, ticket, Vec::new()), []);
    let failure = Failure::Permanent { why: "x".into() };
    assert_eq!(machine.handle(Event::ModelFailed { ticket, failure }), []);
}

/// H-56
#[test]
fn nothing_is_done_before_go() {
    let open = Recovered { model_next: true, open: vec![call("a")], may_have_run: true };
    let (mut machine, effects) = given(open, true);
    assert!(matches!(effects[..], [Effect::Tell(FromAgent::Ready { .. })]));
    for event in [
        Event::Told(ToAgent::Say { text: "x".into() }),
        resume(None),
        quiesce(0, None),
        Event::Told(ToAgent::Status),
    ] {
        let effects = machine.handle(event);
        assert!(effects.iter().all(|effect| matches!(effect, Effect::Tell(_))), "{effects:?}");
    }
    let effects = machine.handle(Event::Told(ToAgent::Go { epoch: 5 }));
    assert_eq!(effects[0], Effect::Epoch(5));
    assert_eq!(appended(&effects), [tool_result(&call("a"), INTERRUPTED)]);
    assert!(matches!(effects.last(), Some(Effect::CallModel { .. })));
    assert_eq!(machine.handle(Event::Told(ToAgent::Go { epoch: 6 })), [Effect::Epoch(6)]);
}

#[test]
fn case_s03_calls_that_may_have_run_are_closed_and_others_run() {
    let left = |may_have_run| Recovered { model_next: false, open: vec![call("a"), call("b")], may_have_run };
    let (_, effects) = given(left(true), false);
    let closed = [tool_result(&call("a"), INTERRUPTED), tool_result(&call("b"), INTERRUPTED)];
    assert_eq!(appended(&effects), closed);
    assert!(matches!(effects.last(), Some(Effect::CallModel { .. })));
    let (_, effects) = given(left(false), false);
    assert!(matches!(effects[..], [Effect::WriteBoundary(_), Effect::RunTool { .. }]), "{effects:?}");
}

/// H-40
#[test]
fn a_quiesce_lets_the_step_end_within_its_time() {
    let (mut machine, ticket) = calling();
    let effects = machine.handle(quiesce(500, None));
    let [Effect::Deadline { ticket: deadline, within_ms: 500 }] = effects[..] else { panic!("{effects:?}") };
    let effects = answer(&mut machine, ticket, vec![call("a")]);
    let Some(Effect::RunTool { ticket, .. }) = effects.last() else { panic!("{effects:?}") };
    let effects = machine.handle(Event::ToolFinished { ticket: *ticket, result: "1".into() });
    let (at, frozen) = quiesced(&effects).expect("quiesced");
    assert_eq!((at.step, &at.turn, frozen), (1, &TurnState::ModelNext, false));
    assert_eq!(machine.handle(Event::DeadlineOver { ticket: deadline }), []);
    assert!(matches!(machine.handle(resume(None))[..], [Effect::CallModel { .. }]));
}

#[test]
fn a_quiesce_interrupts_what_takes_too_long_even_in_a_later_call() {
    let (mut machine, ticket) = in_tool(vec![call("a"), call("b"), call("c")]);
    let effects = machine.handle(quiesce(500, None));
    let [Effect::Deadline { ticket: deadline, .. }] = effects[..] else { panic!("{effects:?}") };
    machine.handle(Event::ToolFinished { ticket, result: "1".into() });
    let effects = machine.handle(Event::DeadlineOver { ticket: deadline });
    assert_eq!(effects[0], Effect::CancelTool);
    let closed = [tool_result(&call("b"), INTERRUPTED), tool_result(&call("c"), INTERRUPTED)];
    assert_eq!(appended(&effects), closed);
    let (at, _) = quiesced(&effects).expect("quiesced");
    assert_eq!(at.turn, TurnState::ModelNext);
}

/// H-41
#[test]
fn frozen_is_durable_before_it_is_told_and_only_a_holder_thaws_it() {
    let (mut machine, _) = calling();
    let effects = machine.handle(quiesce(0, Some(FREEZE)));
    let frozen = Standing::Frozen { session_id: SESSION, transfer_id: TRANSFER, epoch: 1 };
    assert_eq!(effects[effects.len() - 2], Effect::WriteStanding(frozen));
    assert_eq!(quiesced(&effects).map(|(_, frozen)| frozen), Some(true));
    // Asked again, it is not written again.
    let again = machine.handle(quiesce(0, Some(FREEZE)));
    assert!(matches!(again[..], [Effect::Tell(FromAgent::Quiesced { frozen: true, .. })]), "{again:?}");
    assert!(matches!(machine.handle(resume(None))[..], [Effect::Tell(FromAgent::Refused { .. })]));
    assert_eq!(machine.status().activity, Activity::Frozen);
    let holder = Holder { session_id: SESSION, epoch: 2 };
    let effects = machine.handle(resume(Some(holder)));
    let standing = Standing::Holder { session_id: SESSION, epoch: 2 };
    assert_eq!(effects[..2], [Effect::Epoch(2), Effect::WriteStanding(standing)]);
    assert!(matches!(effects[2], Effect::CallModel { .. }));
}

/// Two movers of one source: only the first has it stop.
#[test]
fn it_is_frozen_for_one_transfer_at_a_time() {
    let other = Freeze { transfer_id: TransferId::from_u128(77), ..FREEZE };
    let (mut machine, _) = calling();
    machine.handle(quiesce(500, Some(FREEZE)));
    let effects = machine.handle(quiesce(500, Some(other)));
    assert!(matches!(effects[..], [Effect::Tell(FromAgent::Refused { .. })]), "{effects:?}");
    let effects = machine.handle(quiesce(0, Some(FREEZE)));
    let frozen = Standing::Frozen { session_id: SESSION, transfer_id: TRANSFER, epoch: 1 };
    assert!(effects.contains(&Effect::WriteStanding(frozen)), "{effects:?}");
    let effects = machine.handle(quiesce(0, Some(other)));
    assert!(matches!(effects[..], [Effect::Tell(FromAgent::Refused { .. })]), "{effects:?}");
}

#[test]
fn a_holder_of_another_session_or_an_older_epoch_thaws_nothing() {
    let (mut machine, _) = calling();
    let freeze = Freeze { epoch: 4, ..FREEZE };
    machine.handle(quiesce(0, Some(freeze)));
    let other = SessionId::from_u128(9);
    for holder in [Holder { session_id: other, epoch: 5 }, Holder { session_id: SESSION, epoch: 3 }] {
        let effects = machine.handle(resume(Some(holder)));
        assert!(matches!(effects[..], [Effect::Tell(FromAgent::Refused { .. })]), "{effects:?}");
        assert_eq!(machine.status().activity, Activity::Frozen);
    }
    // A confirmed draft refresh leaves the epoch as it is.
    let effects = machine.handle(resume(Some(Holder { session_id: SESSION, epoch: 4 })));
    assert!(matches!(effects.last(), Some(Effect::CallModel { .. })), "{effects:?}");
    // A grant of long ago changes nothing of a loop that goes on, either.
    let effects = machine.handle(resume(Some(Holder { session_id: SESSION, epoch: 3 })));
    assert!(matches!(effects[..], [Effect::Tell(FromAgent::Refused { .. })]), "{effects:?}");
}

#[test]
fn a_draft_stop_can_become_a_final_one() {
    let (mut machine, _) = calling();
    machine.handle(quiesce(0, None));
    let effects = machine.handle(quiesce(0, Some(FREEZE)));
    assert!(matches!(effects[0], Effect::WriteStanding(Standing::Frozen { .. })));
    assert_eq!(quiesced(&effects).map(|(_, frozen)| frozen), Some(true));
}

#[test]
fn nothing_changes_while_it_is_quiesced() {
    let (mut machine, _) = calling();
    machine.handle(quiesce(0, None));
    let said = machine.handle(Event::Told(ToAgent::Say { text: "x".into() }));
    assert!(matches!(said[..], [Effect::Tell(FromAgent::Refused { .. })]));
    assert_eq!(machine.handle(Event::Unattended), []);
    assert_eq!(machine.handle(Event::Stop), [Effect::Stop(ExitReason::Stopped)]);
}

#[test]
fn a_retired_loop_never_does_anything_again() {
    let (mut machine, ticket) = in_tool(vec![call("a")]);
    let retire = ToAgent::Retire { session_id: SESSION, transfer_id: TRANSFER };
    let effects = machine.handle(Event::Told(retire));
    let standing = Standing::Retired { session_id: SESSION, transfer_id: TRANSFER };
    assert_eq!(
        effects,
        [
            Effect::CancelTool,
            Effect::WriteStanding(standing),
            Effect::Tell(FromAgent::Retired),
            Effect::Stop(ExitReason::Retired),
        ]
    );
    assert_eq!(machine.handle(Event::ToolFinished { ticket, result: "x".into() }), []);
    assert_eq!(machine.handle(resume(None)), []);
}

#[test]
fn a_stop_in_a_tool_records_that_its_outcome_is_unknown() {
    let (mut machine, _) = in_tool(vec![call("a")]);
    let effects = machine.handle(Event::Stop);
    assert_eq!(effects[0], Effect::CancelTool);
    assert_eq!(appended(&effects), [tool_result(&call("a"), INTERRUPTED)]);
    assert_eq!(effects.last(), Some(&Effect::Stop(ExitReason::Stopped)));
}

#[test]
fn failures_wait_longer_and_longer_and_change_no_history() {
    let (mut machine, mut ticket) = calling();
    for expected in [250, 500, 1000] {
        let failure = Failure::Transient { why: "503".into(), retry_after_ms: None };
        let effects = machine.handle(Event::ModelFailed { ticket, failure });
        let [Effect::Wait { ticket: wait, wait_ms }, Effect::Tell(FromAgent::Status(status))] = &effects[..]
        else {
            panic!("{effects:?}");
        };
        assert_eq!((*wait_ms, status.activity), (expected, Activity::Retrying));
        let effects = machine.handle(Event::WaitOver { ticket: *wait });
        let [Effect::CallModel { ticket: next }] = effects[..] else { panic!("{effects:?}") };
        ticket = next;
    }
}

#[test]
fn an_empty_budget_is_said_and_waited_for() {
    let (mut machine, ticket) = calling();
    let failure = Failure::OutOfBudget { why: "required 3, available 1".into() };
    let effects = machine.handle(Event::ModelFailed { ticket, failure });
    let [Effect::Wait { wait_ms: 1000, .. }, Effect::Tell(FromAgent::Status(status))] = &effects[..] else {
        panic!("{effects:?}");
    };
    assert_eq!(status.activity, Activity::OutOfBudget);
    assert_eq!(status.reason.as_deref(), Some("required 3, available 1"));
    assert_eq!(status.boundary, boundary(0, 1, 10, TurnState::ModelNext));
    // A quiesce does not wait for the wait.
    assert!(quiesced(&machine.handle(quiesce(1000, None))).is_some());
}

#[test]
fn what_will_fail_again_waits_for_somebody() {
    let (mut machine, ticket) = calling();
    let failure = Failure::Permanent { why: "no such model".into() };
    let effects = machine.handle(Event::ModelFailed { ticket, failure });
    assert_eq!(effects, [Effect::Tell(FromAgent::Failed { reason: "no such model".into() })]);
    assert_eq!(machine.status().activity, Activity::Stuck);
    assert!(matches!(machine.handle(resume(None))[..], [Effect::CallModel { .. }]));
}

/// H-43
#[test]
fn a_draft_of_itself_is_answered_at_once() {
    let (mut machine, ticket) = calling();
    let effects = answer(&mut machine, ticket, vec![snapshot("s", false)]);
    assert_eq!(appended(&effects)[1], tool_result(&snapshot("s", false), self_snapshot::DRAFT));
    let told = FromAgent::SnapshotRequested { call_id: "s".into(), is_final: false };
    let at = effects.iter().position(|effect| *effect == Effect::Tell(told.clone())).expect("told");
    assert!(matches!(effects[at - 1], Effect::WriteBoundary(_)), "the reply is durable before");
    assert!(matches!(effects.last(), Some(Effect::CallModel { .. })));
}

fn awaiting() -> Machine {
    let (mut machine, ticket) = calling();
    let effects = answer(&mut machine, ticket, vec![snapshot("s", true)]);
    let told = FromAgent::SnapshotRequested { call_id: "s".into(), is_final: true };
    assert_eq!(effects.last(), Some(&Effect::Tell(told)));
    assert!(machine.awaits_snapshot());
    machine
}

fn done(call_id: &str) -> Event {
    Event::Told(ToAgent::SnapshotDone { call_id: call_id.into(), outcome: "unclaimed".into() })
}

/// H-43
#[test]
fn a_final_of_itself_is_answered_only_when_it_ended_unclaimed() {
    let mut machine = awaiting();
    let effects = machine.handle(quiesce(1000, Some(FREEZE)));
    let (at, frozen) = quiesced(&effects).expect("at once");
    assert_eq!((&at.turn, frozen), (&TurnState::ToolsOpen { calls: vec!["s".into()] }, true));
    assert_eq!(machine.handle(done("s")), [], "a frozen conversation does not change");
    let effects = machine.handle(resume(Some(Holder { session_id: SESSION, epoch: 2 })));
    assert_eq!(appended(&effects), [tool_result(&snapshot("s", true), "unclaimed")]);
    assert!(matches!(effects.last(), Some(Effect::CallModel { .. })));
}

#[test]
fn a_final_of_itself_that_a_stop_overtook_is_asked_for_again() {
    let (mut machine, ticket) = calling();
    machine.handle(quiesce(1000, None));
    let effects = answer(&mut machine, ticket, vec![snapshot("s", true)]);
    let told = FromAgent::SnapshotRequested { call_id: "s".into(), is_final: true };
    assert!(quiesced(&effects).is_some() && effects.contains(&Effect::Tell(told.clone())));
    assert_eq!(machine.handle(resume(None)), [Effect::Tell(told)]);
    assert_eq!(appended(&machine.handle(done("s"))), [tool_result(&snapshot("s", true), "unclaimed")]);
    // With an answer in hand nothing is asked again.
    let mut machine = awaiting();
    machine.handle(quiesce(1000, None));
    machine.handle(done("s"));
    let effects = machine.handle(resume(None));
    assert!(
        !effects.iter().any(|effect| matches!(effect, Effect::Tell(FromAgent::SnapshotRequested { .. })))
    );
}

#[test]
fn a_final_of_itself_can_be_answered_without_a_stop() {
    let mut machine = awaiting();
    assert!(matches!(machine.handle(done("other"))[..], [Effect::Tell(FromAgent::Refused { .. })]));
    assert_eq!(appended(&machine.handle(done("s"))).len(), 1);
    let mut machine = awaiting();
    let effects = machine.handle(Event::Unattended);
    assert_eq!(appended(&effects), [tool_result(&snapshot("s", true), self_snapshot::NOBODY)]);
}

/// H-43
#[test]
fn the_copy_learns_that_it_is_the_copy() {
    let left =
        || Recovered { model_next: false, open: vec![snapshot("s", true), call("b")], may_have_run: true };
    let (mut machine, _) = given(left(), true);
    let effects = machine.handle(Event::Told(ToAgent::Go { epoch: 2 }));
    let expected =
        [tool_result(&snapshot("s", true), self_snapshot::IN_THE_COPY), tool_result(&call("b"), INTERRUPTED)];
    assert_eq!(appended(&effects), expected);
    let (_, effects) = given(left(), false);
    assert_eq!(appended(&effects)[0], tool_result(&snapshot("s", true), INTERRUPTED));
}

#[test]
fn broken_arguments_of_a_self_snapshot_are_answered_as_such() {
    let (mut machine, ticket) = calling();
    let broken = ToolCall { arguments: r#"{"final":"#.into(), ..snapshot("s", true) };
    let effects = answer(&mut machine, ticket, vec![broken]);
    assert!(appended(&effects)[1].contains("error: the arguments are not valid"));
    assert!(matches!(effects.last(), Some(Effect::CallModel { .. })));
}
