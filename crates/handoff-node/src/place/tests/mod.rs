//! What a destination does when answers are lost, connections break, and the control plane is away or another one.

mod world;

use handoff_protocol::ErrorCode;
use handoff_protocol::node::{LeaseCommand, Want};
use tokio::net::UnixListener;

use self::world::{Fault, HOLDING, NEWS, SUCCESSOR, World};
use crate::place::Place;
use crate::plan::Sandbox;

/// Longer than anything that is waited for here; on a clock that runs ahead when nothing else happens.
const LONG: std::time::Duration = std::time::Duration::from_secs(600);

/// Lets a holder hold until something is so. Time passes by itself when nothing else happens.
async fn hold_until(place: &mut Place, world: &World, so: impl Fn(&world::Facts) -> bool) {
    let reached = async {
        loop {
            let news = NEWS.notified();
            if so(&world.facts()) {
                return;
            }
            news.await;
        }
    };
    tokio::select! {
        held = place.hold() => panic!("it holds no longer: {held:?}"),
        reached = tokio::time::timeout(LONG, reached) => reached.expect("it comes to pass"),
    }
}

#[tokio::test]
async fn a_checkpoint_whose_answer_was_lost_is_followed_by_the_next_one() {
    let world = World::new().await;
    let mut place = world.holder().await;
    world.work("first");
    world.fault("checkpoint", [Fault::AnswerLost]);
    assert!(place.store_now().await.expect_err("the answer was lost").may_pass());
    let first = world.facts().last.clone();
    world.work("second");
    place.store_now().await.expect("it follows what was accepted");
    assert_ne!(world.facts().last, first);
}

#[tokio::test]
async fn a_node_killed_between_the_commit_and_its_record_goes_on_with_checkpoints() {
    let world = World::new().await;
    let mut place = world.holder().await;
    world.work("first");
    world.fault("checkpoint", [Fault::AnswerLost]);
    place.store_now().await.expect_err("the answer was lost");
    drop(place);
    let mut next = world.open();
    world.work("second");
    next.store_now().await.expect("it follows what was accepted");
    assert_eq!(world.record().checkpoint.map(|digest| digest.to_string()), world.facts().last);
}

/// The snapshot that is restored is the one that everything after it follows.
#[tokio::test]
async fn a_restore_forgets_the_checkpoints_of_the_epoch_before() {
    let world = World::new().await;
    let mut place = world.holder().await;
    world.work("first");
    place.store_now().await.expect("stored");
    let wanted = world.wanted.borrow().clone();
    place.restore(&wanted).await.expect("restored");
    assert_eq!((place.record.checkpoint, place.record.restored), (None, Some(wanted.snapshot)));
}

#[tokio::test]
async fn what_a_dead_holder_left_stands_until_an_outage_is_over() {
    let world = World::new().await;
    let mut place = world.holder().await;
    world.work("its last steps");
    place.sandbox = Sandbox::Dead;
    let wanted = world.wanted.borrow().clone();
    for code in [ErrorCode::StoreUnavailable, ErrorCode::StorageFull] {
        world.fault("PUT blob", [Fault::Refused(code)]);
        place.recover(&wanted).await.expect_err("not now");
        assert!(place.record.sandbox.is_some() && place.record.holding.is_some(), "{code}");
    }
    world.fault("checkpoint", [Fault::Refused(ErrorCode::NotFound)]);
    place.recover(&wanted).await.expect_err("another control plane answers");
    let before = world.facts().last.clone();
    place.recover(&wanted).await.expect("it is back");
    let facts = world.facts();
    assert_ne!(facts.last, before);
    assert!(facts.at("checkpoint") < facts.at("observed"), "stored before its lease ends");
    assert!(place.record.holding.is_none());
}

/// An init that runs and does not answer is not taken for dead at once, and when it is, its agent is ended before
/// anything is captured.
#[tokio::test(start_paused = true)]
async fn a_sandbox_whose_init_does_not_answer_is_ended_before_it_is_captured() {
    let world = World::new().await;
    drop(world.holder().await);
    let _mute = UnixListener::bind(world.dir().join("init.sock")).expect("bound");
    let mut place = world.open();
    place.adopt().await;
    assert_eq!(place.sandbox, Sandbox::Dead);
    assert_eq!(world.facts().at("teardown"), None);
    world.work("until the end");
    let wanted = world.wanted.borrow().clone();
    place.recover(&wanted).await.expect("recovered");
    let facts = world.facts();
    assert!(facts.at("teardown").expect("ended") < facts.at("put").expect("captured"));
    assert!(facts.at("checkpoint").is_some());
}

#[tokio::test]
async fn a_lost_connection_is_made_anew_and_ends_nothing() {
    let world = World::new().await;
    let mut place = world.holder().await;
    let _init = world.init();
    place.connect().await.expect("it answers");
    place.note_end(&crate::init_link::Inbound::Lost).await.expect("it answers again");
    assert_eq!(place.sandbox, Sandbox::Alive);
    assert!(place.link.is_some());
}

/// H-50: only a list of the known control plane ends anything.
/// H-67
#[tokio::test]
async fn another_control_plane_s_refusal_ends_no_holder() {
    let world = World::new().await;
    let mut place = world.holder().await;
    let _init = world.init();
    for code in [ErrorCode::NotFound, ErrorCode::Forbidden, ErrorCode::WrongStatus] {
        world.fault("renew", [Fault::Refused(code)]);
        place.renew().await.expect("tried again");
        assert_eq!((place.record.holding, place.sandbox), (Some(HOLDING), Sandbox::Alive), "{code}");
    }
    world.fault("renew", [Fault::Refused(ErrorCode::StaleEpoch)]);
    place.renew().await.expect("yielded");
    assert_eq!((place.record.holding, place.sandbox), (None, Sandbox::None));
}

/// A store that takes long costs neither the lease nor the final of a successor.
#[tokio::test(start_paused = true)]
async fn the_lease_is_renewed_while_a_checkpoint_is_on_its_way() {
    let world = World::new().await;
    let mut place = world.holder().await;
    let _init = world.init();
    world.work("much");
    world.fault("PUT blob", [Fault::Hangs]);
    place.renewing.checkpoint_at = tokio::time::Instant::now();
    hold_until(&mut place, &world, |facts| facts.count("renew") > 3).await;
    assert!(place.storing.is_some());
}

/// H-43, H-71: what is frozen for money stops for its successor all the same, and buys nothing meanwhile.
#[tokio::test(start_paused = true)]
async fn a_frozen_holder_gives_its_final_and_is_frozen_again() {
    let world = World::new().await;
    let mut place = world.holder().await;
    let _init = world.init();
    place.freeze().await.expect("frozen");
    place.checkpointed = true;
    world.facts().renewal = Some((LeaseCommand::Quiesce, Some(SUCCESSOR)));
    world.facts().happened.clear();
    world.fault("snapshot", [Fault::AnswerLost]);
    hold_until(&mut place, &world, |facts| !facts.finals.is_empty()).await;
    place.renewing.at = tokio::time::Instant::now();
    hold_until(&mut place, &world, |facts| facts.finals.len() > 1).await;
    let facts = world.facts();
    assert_eq!(facts.finals[0], facts.finals[1], "the same request, not another one");
    assert_eq!(facts.count("agent quiesce"), 1);
    let told = ["gateway stand", "init runs", "agent quiesce", "init freezes", "put", "snapshot"];
    let mut found = facts.happened.iter();
    assert!(told.iter().all(|told| found.any(|found| found == told)), "{:?}", facts.happened);
    assert_eq!(place.asked_final.as_deref(), Some("c"), "what the agent asked meanwhile is not lost");
}

/// H-68: the answer to a final is waited for, and where it was refused the next renewal lets the agent go on.
#[tokio::test(start_paused = true)]
async fn a_holder_whose_final_was_refused_goes_on_when_it_is_told() {
    let world = World::new().await;
    let mut place = world.holder().await;
    let _init = world.init();
    world.facts().renewal = Some((LeaseCommand::Quiesce, Some(SUCCESSOR)));
    world.fault(
        "snapshot",
        [Fault::Refused(ErrorCode::StoreUnavailable), Fault::Refused(ErrorCode::WrongStatus)],
    );
    hold_until(&mut place, &world, |facts| facts.faults["snapshot"].len() == 1).await;
    world.facts().renewal = None;
    place.renewing.at = tokio::time::Instant::now();
    hold_until(&mut place, &world, |facts| facts.faults["snapshot"].is_empty()).await;
    assert_eq!(world.facts().count("agent resume"), 0, "it may have been accepted");
    place.renewing.at = tokio::time::Instant::now();
    hold_until(&mut place, &world, |facts| facts.count("agent resume") > 0).await;
    assert_eq!(world.record().given, None);
}

/// H-68, for a node that found the agent standing at its boundary.
#[tokio::test]
async fn an_adopted_agent_that_stands_for_nobody_goes_on() {
    let world = World::new().await;
    drop(world.holder().await);
    let _init = world.init();
    let mut place = world.open();
    place.adopt().await;
    place.renewing.go_due = false;
    place.renew().await.expect("renewed");
    assert_eq!(world.facts().count("agent resume"), 1);
    place.renew().await.expect("renewed");
    assert_eq!(world.facts().count("agent resume"), 1);
}

/// H-65
#[tokio::test(start_paused = true)]
async fn an_adopted_holder_is_told_to_go_after_a_confirmed_renewal_of_its_own() {
    let world = World::new().await;
    drop(world.holder().await);
    let _init = world.init();
    let mut place = world.open();
    place.adopt().await;
    world.fault("renew", [Fault::AnswerLost]);
    place.renew().await.expect("tried again");
    assert_eq!(world.facts().count("agent go"), 0);
    place.renew().await.expect("renewed");
    assert_eq!(world.facts().count("agent go"), 1);
}

/// The claim was committed, and the node died before its gateway heard of the epoch.
#[tokio::test]
async fn an_epoch_that_the_gateway_never_heard_of_is_closed_all_the_same() {
    let world = World::new().await;
    let mut place = world.holder().await;
    place.sandbox = Sandbox::Dead;
    world.facts().opened = false;
    world.wanted.send_modify(|wanted| wanted.want = Want::Gone);
    place.remove().await.expect("removed");
    let facts = world.facts();
    assert!(facts.at("gateway open") < facts.at("gateway remove"));
    assert_eq!(facts.closes.len(), 1);
    assert_eq!(facts.closes[0]["epoch"], HOLDING.epoch);
    assert!(!world.dir().exists());
}

/// H-80
#[tokio::test]
async fn compute_is_charged_to_the_last_proof_of_life() {
    let world = World::new().await;
    let mut place = world.holder().await;
    place.saw_alive();
    let seen = place.last_alive_ms().expect("just seen");
    drop(place);
    let mut next = world.open();
    let wanted = world.wanted.borrow().clone();
    next.recover(&wanted).await.expect("recovered");
    assert_eq!(world.facts().closes[0]["at_boot_ms"], seen);
}

/// A record that a power cut or a disk damaged, or that is of another version.
#[tokio::test(start_paused = true)]
async fn a_destination_with_a_damaged_record_is_ended_and_begins_anew() {
    for damaged in ["", "{\"transfer_id\":", "{}"] {
        let world = World::new().await;
        drop(world.holder().await);
        std::fs::write(world.dir().join("destination.json"), damaged).expect("written");
        world.facts().marked = world.names();
        let other = world.names().pop().expect("the last is another destination's");
        world.facts().epochs = vec![HOLDING.epoch];
        let mut place = world.open();
        world.fault("meter", [Fault::AnswerLost]);
        place.settle_damage().await;
        assert_eq!(world.facts().marked, [other], "all of this destination and nothing else");
        assert_eq!(world.facts().closes.len(), 1);
        assert!(world.facts().reasons.iter().any(|reason| reason.contains("cannot be read")));
        let aside = std::fs::read_to_string(world.dir().join("destination.json.damaged"));
        assert_eq!(aside.expect("kept"), damaged);
        assert!(world.facts().at("put").is_none(), "whose it is, nobody knows: it is not stored");
        assert!(world.dir().join("workspace").exists());
        let wanted = world.wanted.borrow().clone();
        assert_eq!(crate::plan::next(&wanted, &place.actual()), crate::plan::Step::Wait, "for the lease");
        let record = world.record();
        assert_eq!((record.holding, record.sandbox, record.restored), (None, None, None));
    }
}

/// H-91
#[tokio::test(start_paused = true)]
async fn a_terminated_destination_with_a_damaged_record_leaves_nothing() {
    let world = World::new().await;
    drop(world.holder().await);
    std::fs::write(world.dir().join("destination.json"), "").expect("written");
    world.facts().marked = world.names();
    world.facts().marked.pop();
    world.wanted.send_modify(|wanted| wanted.want = Want::Gone);
    let stop = tokio_util::sync::CancellationToken::new();
    let running = tokio::spawn(world.open().run(stop.clone()));
    let removed = async {
        loop {
            let news = NEWS.notified();
            let last = world.facts().happened.last().cloned();
            if world.facts().at("gateway remove").is_some() && last.as_deref() == Some("observed") {
                return;
            }
            news.await;
        }
    };
    tokio::time::timeout(LONG, removed).await.expect("it comes to pass");
    assert!(!world.dir().exists(), "before its absence is told");
    stop.cancel();
    running.await.expect("it ends");
    assert!(world.facts().marked.is_empty());
}

/// As long as something of it is left, the record stands, so that a node that starts then ends it too.
#[tokio::test(start_paused = true)]
async fn a_damaged_record_stands_until_what_it_spoke_of_has_ended() {
    let world = World::new().await;
    drop(world.holder().await);
    let path = world.dir().join("destination.json");
    std::fs::write(&path, "").expect("written");
    world.facts().marked = world.names();
    world.facts().stays = true;
    let mut place = world.open();
    let settled = tokio::time::timeout(LONG, place.settle_damage());
    settled.await.expect_err("it does not end");
    assert_eq!(std::fs::read(&path).expect("it stands"), b"");
    world.facts().stays = false;
    world.open().settle_damage().await;
    assert!(world.record().sandbox.is_none());
}
