//! The lease inside a real sandbox: it freezes by itself, a late renewal thaws, and no `go` passes unleased.

use std::time::Duration;

use handoff_sandbox::control::{Cause, FromInit, Refused, ToInit};
use handoff_sandbox::lease::{Declined, Grant, Reasons};
use handoff_sandbox::{EXE_INSIDE, boot_id, boot_ms};

use crate::world::{HEART, SOON, as_root_and_as_user, assert_beats, assert_still, client, eventually, size};

fn grant(lease_ms: u64) -> ToInit {
    ToInit::Lease(Grant { first_sent_ms: boot_ms(), boot_id: boot_id(), lease_ms })
}

as_root_and_as_user! {
    /// Nobody is connected when the lease runs out, and it freezes all the same; a late renewal thaws it.
    /// H-64
    fn it_freezes_by_itself_and_a_late_renewal_thaws(world) {
        let spec = world.script(HEART);
        world.start(&spec);
        let mut node = client(&spec);
        let status = node.ask(&grant(900), SOON).expect("answered");
        assert_eq!(status.refused, None);
        let deadline = status.frozen_at_ms.expect("leased");
        drop(node);
        assert_beats(&spec);
        eventually("the deadline passes", || boot_ms() > deadline + 100);
        assert_still(&spec);
        let mut node = client(&spec);
        let status = node.ask(&ToInit::Status, SOON).expect("answered");
        assert!(status.frozen, "{status:?}");
        assert_eq!(status.reasons, Reasons { lease: true, command: false });
        let status = node.ask(&grant(60_000), SOON).expect("answered");
        assert!(!status.frozen && status.refused.is_none(), "{status:?}");
        assert_beats(&spec);
    }

    /// A connected node hears of it.
    fn a_connected_node_is_told(world) {
        let spec = world.script(HEART);
        world.start(&spec);
        let mut node = client(&spec);
        node.ask(&grant(300), SOON).expect("answered");
        let Some(FromInit::Status(status)) = node.next(SOON).expect("the init lives") else { panic!("no word") };
        assert_eq!(status.cause, Cause::Lease);
        assert!(status.frozen && status.reasons.lease, "{status:?}");
        assert!(status.now_ms >= status.frozen_at_ms.expect("leased"));
        assert!(status.now_ms < status.frozen_at_ms.expect("leased") + 5_000);
    }

    /// The node's freeze and the lease's are lifted apart.
    fn a_renewal_does_not_lift_a_commanded_freeze(world) {
        let spec = world.script(HEART);
        world.start(&spec);
        let mut node = client(&spec);
        node.ask(&grant(60_000), SOON).expect("answered");
        assert_beats(&spec);
        let status = node.ask(&ToInit::Freeze, SOON).expect("answered");
        assert!(status.frozen && status.refused.is_none(), "{status:?}");
        assert_still(&spec);
        let status = node.ask(&grant(60_000), SOON).expect("answered");
        assert!(status.frozen && status.reasons.command, "{status:?}");
        assert_still(&spec);
        let status = node.ask(&ToInit::Thaw, SOON).expect("answered");
        assert!(!status.frozen, "{status:?}");
        assert_beats(&spec);
    }

    /// Processes that are made while it is being frozen are held too.
    fn a_payload_that_forks_is_held_as_well(world) {
        let spec = world.script("while :; do (printf x >> /workspace/beats) & (printf x >> /workspace/beats); wait; done");
        world.start(&spec);
        let mut node = client(&spec);
        for _ in 0..5 {
            assert_beats(&spec);
            let status = node.ask(&ToInit::Freeze, SOON).expect("answered");
            assert!(status.frozen, "{status:?}");
            assert_still(&spec);
            node.ask(&ToInit::Thaw, SOON).expect("answered");
        }
    }

    /// A parent that waits for its new-born child to become another program takes no signal, and is held by
    /// its child's standing still. (Shells are in that state for a moment with every command.)
    fn a_parent_in_vfork_counts_as_held(world) {
        let spec = world.spec(&[EXE_INSIDE, "vfork"]);
        world.start(&spec);
        let mut node = client(&spec);
        eventually("the child is there", || spec.workspace().join("here").exists());
        let status = node.ask(&ToInit::Freeze, SOON).expect("answered");
        assert!(status.frozen && status.refused.is_none(), "{status:?}");
        let status = node.ask(&ToInit::Thaw, SOON).expect("answered");
        assert!(!status.frozen && status.refused.is_none(), "{status:?}");
    }

    /// `go` needs a lease; other lines do not. A lease of another boot is none.
    /// H-64
    fn no_go_without_a_lease(world) {
        let spec = world.script("cat <&3 >> /workspace/lines");
        world.start(&spec);
        let mut node = client(&spec);
        let go = ToInit::Agent { line: r#"{"type":"go","epoch":2}"#.to_owned() };
        let other = ToInit::Agent { line: r#"{"type":"status"}"#.to_owned() };
        assert_eq!(node.ask(&go, SOON).expect("answered").refused, Some(Refused::NoLease));
        assert_eq!(node.ask(&other, SOON).expect("answered").refused, None);
        let foreign = ToInit::Lease(Grant { first_sent_ms: 0, boot_id: "another".to_owned(), lease_ms: 60_000 });
        let refused = Some(Refused::Lease { declined: Declined::OtherBoot });
        assert_eq!(node.ask(&foreign, SOON).expect("answered").refused, refused);
        assert_eq!(node.ask(&go, SOON).expect("answered").refused, Some(Refused::NoLease));
        node.ask(&grant(60_000), SOON).expect("answered");
        assert_eq!(node.ask(&go, SOON).expect("answered").refused, None);
        let expected = "{\"type\":\"status\"}\n{\"type\":\"go\",\"epoch\":2}\n";
        eventually("both lines arrive", || size(&spec, "lines") == expected.len() as u64);
        let lines = std::fs::read_to_string(spec.workspace().join("lines")).expect("written");
        assert_eq!(lines, expected);
    }

    /// A lease that is over when it arrives freezes at once, and `go` is refused under it.
    fn a_lease_that_arrives_late_is_over(world) {
        let spec = world.script(HEART);
        world.start(&spec);
        let mut node = client(&spec);
        let start = boot_ms();
        eventually("a moment passes", || boot_ms() > start + 30);
        let late = ToInit::Lease(Grant { first_sent_ms: start, boot_id: boot_id(), lease_ms: 30 });
        let status = node.ask(&late, SOON).expect("answered");
        assert!(status.frozen && status.refused.is_none(), "{status:?}");
        let go = ToInit::Agent { line: r#"{"type":"go","epoch":2}"#.to_owned() };
        assert_eq!(node.ask(&go, SOON).expect("answered").refused, Some(Refused::NoLease));
        assert_eq!(node.next(Duration::from_millis(50)).expect("the init lives"), None, "said once is enough");
    }
}
