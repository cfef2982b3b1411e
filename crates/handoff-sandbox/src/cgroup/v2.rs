//! Version 2: one tree. Below our directory stand two leaves, because a cgroup that hands on controllers may
//! hold no process: `init`, unlimited, and `payload` with the tier's limits.

use std::fs;
use std::path::Path;
use std::time::Duration;

use handoff_protocol::Tier;

use super::hierarchy::Hierarchy;
use super::{Cgroups, FreezerPlace, Room, Usage, number_after, number_in, set};
use crate::clock::Deadline;
use crate::isolation::Facet;

const PERIOD_US: u64 = 100_000;

pub(super) fn create(hierarchy: &Hierarchy, directory: &str, tier: &Tier, made: &mut Cgroups) {
    let top = match hierarchy.make(directory) {
        Ok(top) => top,
        Err(why) => {
            for facet in [Facet::Memory, Facet::Pids, Facet::Cpu, Facet::Freeze] {
                made.lose(facet, &format!("cgroup v2: {why}"));
            }
            return;
        }
    };
    let mut gives = Vec::new();
    let handed_on = hand_on(&top);
    let (init, payload) = (top.join("init"), top.join("payload"));
    if let Err(error) = fs::create_dir(&init).and_then(|()| fs::create_dir(&payload)) {
        made.lose(Facet::Freeze, &format!("cgroup v2: {error}"));
        return;
    }
    for facet in [Facet::Memory, Facet::Pids, Facet::Cpu] {
        let limited = handed_on(facet).and_then(|()| limit(&payload, facet, tier));
        match limited {
            Ok(()) => {
                made.facts.enforced(facet, "cgroup v2");
                gives.push(facet);
            }
            Err(why) => made.lose(facet, &format!("cgroup v2: {why}")),
        }
    }
    match freezes(&payload) {
        Ok(()) => {
            made.facts.enforced(Facet::Freeze, "cgroup v2 freezer");
            made.freezer = Some(FreezerPlace::V2(payload.clone()));
            gives.push(Facet::Freeze);
        }
        Err(why) => made.lose(Facet::Freeze, &format!("cgroup v2: {why}")),
    }
    made.rooms.push(Room { dir: payload, gives });
    made.init = Some(init);
}

/// Tries to hand the needed controllers on to the leaves, one by one: they fail apart.
fn hand_on(top: &Path) -> impl Fn(Facet) -> Result<(), String> + use<> {
    let parent = top.parent().unwrap_or(top).to_owned();
    let top = top.to_owned();
    move |facet| {
        let controller = facet.as_str();
        let listed = |dir: &Path, file: &str| {
            let text = fs::read_to_string(dir.join(file)).unwrap_or_default();
            text.split_ascii_whitespace().any(|word| word == controller)
        };
        if !listed(&parent, "cgroup.controllers") {
            return Err(format!("the controller {controller} is not listed"));
        }
        for dir in [&parent, &top] {
            let enable = || fs::write(dir.join("cgroup.subtree_control"), format!("+{controller}"));
            if !listed(dir, "cgroup.subtree_control")
                && let Err(error) = enable()
            {
                return Err(format!("the controller {controller} is not handed on: {error}"));
            }
        }
        Ok(())
    }
}

fn limit(payload: &Path, facet: Facet, tier: &Tier) -> Result<(), String> {
    match facet {
        Facet::Memory => {
            set(&payload.join("memory.max"), &tier.memory_bytes.to_string())?;
            let swap = payload.join("memory.swap.max");
            if swap.exists() { set(&swap, "0") } else { Ok(()) }
        }
        Facet::Pids => set(&payload.join("pids.max"), &tier.pids.to_string()),
        Facet::Cpu => {
            let quota = u64::from(tier.cpu_millis) * PERIOD_US / 1_000;
            set(&payload.join("cpu.max"), &format!("{quota} {PERIOD_US}"))
        }
        other => Err(format!("{other} is no limit")),
    }
}

/// Freezes the still empty cgroup and thaws it again.
fn freezes(payload: &Path) -> Result<(), String> {
    let (freeze, events) = (payload.join("cgroup.freeze"), payload.join("cgroup.events"));
    for wanted in [1, 0] {
        fs::write(&freeze, wanted.to_string()).map_err(|error| format!("cgroup.freeze: {error}"))?;
        let reached = || number_after(&events, "frozen") == Some(wanted);
        if !Deadline::within(Duration::from_secs(1)).until(reached) {
            return Err(format!("cgroup.events does not say frozen {wanted}"));
        }
    }
    Ok(())
}

pub(super) fn usage(top: &Path) -> Usage {
    let payload = top.join("payload");
    let microseconds = number_after(&payload.join("cpu.stat"), "usage_usec");
    Usage {
        cpu_ns: microseconds.map(|us| us.saturating_mul(1_000)),
        memory_peak_bytes: number_in(&payload.join("memory.peak")),
        oom_kills: number_after(&payload.join("memory.events"), "oom_kill"),
        pids_refused: number_after(&payload.join("pids.events"), "max"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory that stands in for a hierarchy: files hold what is written, and nothing acts on it.
    fn made_in(controllers: &str) -> (tempfile::TempDir, Cgroups) {
        let place = tempfile::tempdir().expect("a directory");
        fs::write(place.path().join("cgroup.controllers"), controllers).expect("it is ours");
        let hierarchy = Hierarchy::at(place.path());
        let tier =
            Tier { cpu_millis: 1_500, pids: 7, memory_bytes: 9 << 20, ..Tier::defaults().swap_remove(0) };
        let mut made = Cgroups::default();
        create(&hierarchy, "handoff.a.01234567", &tier, &mut made);
        (place, made)
    }

    #[test]
    fn limits_stand_in_the_payload_s_leaf_and_nowhere_else() {
        let (place, made) = made_in("cpuset cpu io memory pids");
        let top = place.path().join("handoff.a.01234567");
        let read = |file: &str| fs::read_to_string(top.join("payload").join(file)).expect("written");
        assert_eq!(read("memory.max"), (9 << 20).to_string());
        assert_eq!((read("pids.max"), read("cpu.max")), ("7".to_owned(), "150000 100000".to_owned()));
        assert!(!top.join("init/memory.max").exists() && !top.join("memory.max").exists());
        assert_eq!(made.init, Some(top.join("init")));
        for facet in [Facet::Memory, Facet::Pids, Facet::Cpu] {
            assert!(made.facts.holds(facet) && made.rooms[0].gives.contains(&facet), "{facet}");
        }
    }

    #[test]
    fn a_controller_that_is_not_listed_is_not_used_and_a_freezer_that_does_not_answer_is_none() {
        let (_place, made) = made_in("hugetlb pids");
        let why = made.facts.get(Facet::Memory).to_string();
        assert_eq!(why, "lost: cgroup v2: the controller memory is not listed");
        assert!(made.facts.holds(Facet::Pids) && !made.facts.holds(Facet::Cpu));
        assert!(!made.facts.holds(Facet::Freeze) && made.freezer.is_none());
        assert_eq!(made.rooms[0].gives, [Facet::Pids]);
    }
}
