//! The control channel, the registry, and a destination's start.

use std::os::fd::OwnedFd;

use handoff_agent::control::{Control, FromAgent, ToAgent};
use handoff_agent::{AgentError, Place, Register, registry};
use handoff_scripted_model::{AtEnd, Script, Step};
use tokio::net::UnixStream;

use crate::world::{Line, World, within};

fn forever(step: Step) -> Script {
    Script { at_end: AtEnd::LoopFrom { step: 0 }, ..Script::of("t", vec![step]) }
}

fn pair() -> (OwnedFd, Line) {
    let (theirs, ours) = std::os::unix::net::UnixStream::pair().expect("a pair");
    ours.set_nonblocking(true).expect("set");
    (theirs.into(), Line::over(UnixStream::from_std(ours).expect("a stream")))
}

/// H-56
#[tokio::test]
async fn a_destination_does_nothing_before_go_and_ends_with_its_runtime() {
    let world = World::playing(forever(Step::call("list_files", "{}"))).await;
    let (fd, mut line) = pair();
    let mut options = world.options();
    options.control = Control::Inherited(fd);
    options.place = Place::Destination;
    options.endpoint.say_epoch = true;
    let before = world.messages();
    let agent = world.start_with(options);
    let ready = line.hear().await.expect("a line");
    assert!(matches!(&ready, FromAgent::Ready { boundary } if *boundary == world.boundary()), "{ready:?}");
    line.tell(&ToAgent::Say { text: "x".into() }).await;
    assert!(matches!(line.hear().await, Some(FromAgent::Refused { .. })));
    line.tell(&ToAgent::Status).await;
    assert!(matches!(line.hear().await, Some(FromAgent::Status(_))));
    assert_eq!((world.requests().len(), world.messages()), (0, before));
    line.tell(&ToAgent::Go { epoch: 4 }).await;
    line.step(1).await;
    assert_eq!(world.requests()[0].epoch.as_deref(), Some("4"));
    drop(line);
    agent.ended().await.expect("it ends in order");
}

#[tokio::test]
async fn what_tools_start_does_not_have_the_control_connection() {
    let count =
        Step::call("run_shell", r#"{"command":"ls -l /proc/self/fd | grep -c socket > sockets; true"}"#);
    let world = World::playing(Script::of("t", vec![count, Step::say("done")])).await;
    let (fd, mut line) = pair();
    rustix::io::fcntl_setfd(&fd, rustix::io::FdFlags::empty()).expect("as init leaves it");
    let mut options = world.options();
    options.control = Control::Inherited(fd);
    let agent = world.start_with(options);
    line.step(2).await;
    assert_eq!(world.file("sockets"), "0\n");
    agent.stop().await;
}

#[tokio::test]
async fn a_final_snapshot_of_itself_waits_for_the_runtime_and_the_copy_is_told() {
    let steps = vec![
        Step::call("snapshot_self", "{}"),
        Step::call("snapshot_self", r#"{"final":true}"#),
        Step::say("and now"),
    ];
    let world = World::playing(Script::of("t", steps)).await;
    let (fd, mut line) = pair();
    let mut options = world.options();
    options.control = Control::Inherited(fd);
    let agent = world.start_with(options);
    let requested = |told: &FromAgent| match told {
        FromAgent::SnapshotRequested { call_id, is_final } => Some((call_id.clone(), *is_final)),
        _ => None,
    };
    assert_eq!(line.hear_until(requested).await, ("call_0_0".to_owned(), false));
    let (call_id, is_final) = line.hear_until(requested).await;
    assert!(is_final);
    let at = line.quiesce(0).await;
    assert_eq!(at.messages as usize, world.messages().len());
    // What a capture takes now is the copy: there the same call has another answer.
    let copy =
        World::empty(Script::of("t", vec![Step::say(""), Step::say(""), Step::say("I am the copy")])).await;
    for entry in std::fs::read_dir(world.session()).expect("a directory") {
        let entry = entry.expect("an entry");
        std::fs::copy(entry.path(), copy.session().join(entry.file_name())).expect("copied");
    }
    let (fd, mut to_copy) = pair();
    let mut options = copy.options();
    options.control = Control::Inherited(fd);
    options.place = Place::Destination;
    let moved = copy.start_with(options);
    to_copy.tell(&ToAgent::Go { epoch: 2 }).await;
    to_copy.step(3).await;
    let messages = copy.messages();
    assert!(messages[4].contains(r#"{\"snapshot\":\"final\",\"resumed\":true}"#), "{messages:?}");
    moved.stop().await;
    // Here the transfer ended unclaimed.
    line.tell(&ToAgent::SnapshotDone { call_id, outcome: "not moved".into() }).await;
    line.tell(&ToAgent::Resume { holder: None }).await;
    line.step(3).await;
    assert!(world.messages()[4].contains("not moved"));
    agent.stop().await;
}

#[tokio::test]
async fn a_final_snapshot_that_nobody_hears_of_does_not_block() {
    let steps = vec![Step::call("snapshot_self", r#"{"final":true}"#), Step::say("well then")];
    let world = World::playing(Script::of("t", steps)).await;
    world.run_until_idle().await;
    assert!(world.messages()[2].contains("no runtime is attached"));
}

#[tokio::test]
async fn every_connection_hears_and_bad_lines_are_refused() {
    let world = World::playing(forever(Step::call("list_files", "{}"))).await;
    let agent = world.start();
    let (mut first, mut second) = (agent.connect().await, agent.connect().await);
    first.tell_raw("{\"type\":\"fly\"}\nnonsense\n").await;
    let refused = |told: &FromAgent| matches!(told, FromAgent::Refused { .. }).then_some(());
    first.hear_until(refused).await;
    first.hear_until(refused).await;
    first.tell(&ToAgent::Quiesce { within_ms: 10_000, freeze: None }).await;
    assert_eq!(first.quiesced().await, second.quiesced().await);
    drop(first);
    second.tell(&ToAgent::Resume { holder: None }).await;
    second.step(world.boundary().step + 1).await;
    let endless = "x".repeat(handoff_agent::control::LINE_BYTES + 1);
    second.tell_raw(&endless).await;
    second.hear_until(refused).await;
    agent.stop().await;
}

#[tokio::test]
async fn a_source_is_found_while_it_runs() {
    let world = World::playing(forever(Step::call("list_files", "{}"))).await;
    let home = world.dir.path().join("home");
    let with_register = || {
        let mut options = world.options();
        let socket = registry::control_socket(&home, "worker").expect("made");
        options.control = Control::Socket(socket);
        let register = Register { home: home.clone(), name: "worker".into() };
        options.place = Place::Source { register: Some(register) };
        options
    };
    let agent = world.start_with(with_register());
    let socket = home.join("agents/worker/agent.sock");
    let connected = async {
        loop {
            match UnixStream::connect(&socket).await {
                Ok(stream) => return Line::over(stream),
                Err(_) => tokio::task::yield_now().await,
            }
        }
    };
    let mut line = within(connected).await;
    line.step(1).await;
    let found = registry::find_sources(&home).expect("readable");
    let [source] = &found[..] else { panic!("one source, not {}", found.len()) };
    assert!(source.alive);
    assert_eq!(source.record.control_socket.as_deref(), Some(socket.as_path()));
    assert_eq!(source.record.session_dir, world.session().canonicalize().expect("there"));
    // The same session cannot run twice, under whatever name.
    let again = world.start_with(with_register()).ended().await;
    assert!(matches!(again, Err(AgentError::InUse(_))), "{again:?}");
    line.quiesce(0).await;
    agent.stop().await;
    assert_eq!(registry::find_sources(&home).expect("readable"), []);
    assert!(!socket.exists());
}
