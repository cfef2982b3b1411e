//! Loops that are quiesced, frozen, retired and resumed.

use handoff_agent::control::{Activity, Freeze, FromAgent, Holder, ToAgent};
use handoff_agent::machine::ExitReason;
use handoff_agent::{AgentError, INTERRUPTED, standing};
use handoff_protocol::document::TurnState;
use handoff_protocol::session_dir::{MESSAGES, Standing};
use handoff_protocol::{SessionId, TransferId};
use handoff_scripted_model::{AtEnd, Failure, Script, Step};

use crate::world::{World, assert_one_conversation, until};

const SESSION: SessionId = SessionId::from_u128(1);
const TRANSFER: TransferId = TransferId::from_u128(2);
const FREEZE: Freeze = Freeze { session_id: SESSION, transfer_id: TRANSFER, epoch: 1 };

fn forever(step: Step) -> Script {
    Script { at_end: AtEnd::LoopFrom { step: 0 }, ..Script::of("t", vec![step]) }
}

#[tokio::test]
async fn between_steps_nothing_is_lost_and_nothing_happens() {
    let world = World::playing(forever(Step::call("append_file", r#"{"path":"log","content":"x"}"#))).await;
    let agent = world.start();
    let mut line = agent.connect().await;
    line.step(5).await;
    let boundary = line.quiesce(10_000).await;
    assert_eq!(boundary, world.boundary());
    assert_eq!((boundary.messages as usize, boundary.turn), (world.messages().len(), TurnState::ModelNext));
    assert_eq!(world.file("log").len() as u64, boundary.step);
    let requests = world.requests().len();
    // Asked again it says the same, and nothing has moved meanwhile.
    assert_eq!(line.quiesce(0).await.step, boundary.step);
    assert_eq!(world.requests().len(), requests);
    line.tell(&ToAgent::Resume { holder: None }).await;
    line.step(boundary.step + 2).await;
    assert_one_conversation(&world.requests());
    agent.stop().await;
}

#[tokio::test]
async fn a_model_call_that_takes_too_long_is_broken_off_without_a_trace() {
    let step = Step::say("never mind").failing(Failure::Hang { after_chunks: 1, times: 1 });
    let world = World::playing(Script::of("t", vec![step])).await;
    let before = world.messages();
    let agent = world.start();
    let mut line = agent.connect().await;
    until(|| world.requests().len() == 1).await;
    let boundary = line.quiesce(50).await;
    assert_eq!((boundary.step, boundary.turn), (0, TurnState::ModelNext));
    assert_eq!(world.messages(), before);
    line.tell(&ToAgent::Resume { holder: None }).await;
    line.step(1).await;
    assert_eq!(world.requests().len(), 2);
    agent.stop().await;
}

/// H-40
#[tokio::test]
async fn a_tool_that_takes_too_long_is_ended_and_its_outcome_recorded_as_unknown() {
    let command = r#"{"command":"touch begun; while :; do echo x >> log; done"}"#;
    let steps =
        vec![Step::call("run_shell", command).and_call("read_file", r#"{"path":"log"}"#), Step::say("ok")];
    let world = World::playing(Script::of("t", steps)).await;
    let agent = world.start();
    let mut line = agent.connect().await;
    until(|| world.workspace().join("begun").exists()).await;
    let boundary = line.quiesce(50).await;
    assert_eq!((boundary.step, boundary.messages, &boundary.turn), (1, 4, &TurnState::ModelNext));
    let messages = world.messages();
    assert!(messages[2].contains(INTERRUPTED) && messages[3].contains(INTERRUPTED), "{messages:?}");
    let written = world.file("log").len();
    assert_eq!(line.quiesce(0).await, boundary);
    assert_eq!(world.file("log").len(), written, "nothing writes after the boundary");
    line.tell(&ToAgent::Resume { holder: None }).await;
    line.step(2).await;
    assert_one_conversation(&world.requests());
    agent.stop().await;
}

/// H-41
#[tokio::test]
async fn frozen_is_on_disk_and_outlives_the_process() {
    let world = World::playing(forever(Step::call("list_files", "{}"))).await;
    let agent = world.start();
    let mut line = agent.connect().await;
    line.step(2).await;
    line.tell(&ToAgent::Quiesce { within_ms: 10_000, freeze: Some(FREEZE) }).await;
    let boundary = line.quiesced().await;
    let frozen = Standing::Frozen { session_id: SESSION, transfer_id: TRANSFER, epoch: 1 };
    assert_eq!(standing::read(&world.session()).expect("readable"), Some(frozen));
    line.tell(&ToAgent::Resume { holder: None }).await;
    let refused = |told: &FromAgent| matches!(told, FromAgent::Refused { .. }).then_some(());
    line.hear_until(refused).await;
    line.tell(&ToAgent::Say { text: "x".into() }).await;
    line.hear_until(refused).await;
    agent.stop().await;
    assert_eq!(world.boundary(), boundary);
    let again = world.start().ended().await;
    assert!(matches!(again, Err(AgentError::Frozen { epoch: 1, .. })), "{again:?}");
    let holder = Standing::Holder { session_id: SESSION, epoch: 2 };
    standing::write(&world.session(), &holder).expect("written");
    world.run_once_more().await;
    assert_one_conversation(&world.requests());
}

#[tokio::test]
async fn a_frozen_source_goes_on_for_its_holder() {
    let world = World::playing(forever(Step::call("list_files", "{}"))).await;
    let mut options = world.options();
    options.endpoint.say_epoch = true;
    let agent = world.start_with(options);
    let mut line = agent.connect().await;
    line.step(1).await;
    line.tell(&ToAgent::Quiesce { within_ms: 10_000, freeze: Some(FREEZE) }).await;
    let boundary = line.quiesced().await;
    line.tell(&ToAgent::Resume { holder: Some(Holder { session_id: SESSION, epoch: 3 }) }).await;
    line.step(boundary.step + 1).await;
    let standing = standing::read(&world.session()).expect("readable");
    assert_eq!(standing, Some(Standing::Holder { session_id: SESSION, epoch: 3 }));
    let epochs: Vec<_> = world.requests().into_iter().filter_map(|record| record.epoch).collect();
    assert_eq!(
        (epochs.first().map(String::as_str), epochs.last().map(String::as_str)),
        (Some("1"), Some("3"))
    );
    agent.stop().await;
}

/// H-58
#[tokio::test]
async fn a_retired_source_ends_and_never_starts_again() {
    let world = World::playing(forever(Step::call("list_files", "{}"))).await;
    let agent = world.start();
    let mut line = agent.connect().await;
    line.step(1).await;
    line.quiesce(10_000).await;
    let messages = world.messages();
    line.tell(&ToAgent::Retire { session_id: SESSION, transfer_id: TRANSFER }).await;
    line.hear_until(|told| matches!(told, FromAgent::Retired).then_some(())).await;
    assert_eq!(line.hear().await, None);
    assert_eq!(agent.ended().await.expect("in order"), ExitReason::Retired);
    assert_eq!(world.messages(), messages, "its files stay");
    let again = world.start().ended().await;
    assert!(matches!(again, Err(AgentError::Retired { .. })), "{again:?}");
}

/// Judged before the lock, a standing may be of before another process froze or retired the session.
#[tokio::test]
async fn a_standing_is_judged_under_the_lock_and_a_refused_start_changes_nothing() {
    let world = World::playing(forever(Step::call("list_files", "{}"))).await;
    let frozen = Standing::Frozen { session_id: SESSION, transfer_id: TRANSFER, epoch: 1 };
    standing::write(&world.session(), &frozen).expect("written");
    let path = world.session().join(MESSAGES);
    let mut running = std::fs::OpenOptions::new().append(true).open(&path).expect("there");
    rustix::fs::flock(&running, rustix::fs::FlockOperation::NonBlockingLockExclusive).expect("free");
    let meanwhile = world.start().ended().await;
    assert!(matches!(meanwhile, Err(AgentError::InUse(_))), "{meanwhile:?}");
    std::io::Write::write_all(&mut running, b"{\"role\":").expect("torn");
    drop(running);
    let before = std::fs::read(&path).expect("there");
    let after = world.start().ended().await;
    assert!(matches!(after, Err(AgentError::Frozen { .. })), "{after:?}");
    assert_eq!(std::fs::read(&path).expect("there"), before);
    assert_eq!(world.requests().len(), 0);
}

#[tokio::test]
async fn a_status_can_be_had_at_any_time() {
    let step = Step::say("x").failing(Failure::Hang { after_chunks: 0, times: 1 });
    let world = World::playing(Script::of("t", vec![step])).await;
    let agent = world.start();
    until(|| world.requests().len() == 1).await;
    let mut line = agent.connect().await;
    let activity = |told: &FromAgent| match told {
        FromAgent::Status(status) => Some(status.activity),
        _ => None,
    };
    line.tell(&ToAgent::Status).await;
    assert_eq!(line.hear_until(activity).await, Activity::CallingModel);
    line.quiesce(0).await;
    line.tell(&ToAgent::Status).await;
    assert_eq!(line.hear_until(activity).await, Activity::Quiesced);
    agent.stop().await;
}
