//! Version 1: one tree per controller. Each holds our directory with the payload in it and nothing else; the
//! init stays where it was.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use handoff_protocol::Tier;

use super::hierarchy::Hierarchy;
use super::{Cgroups, FreezerPlace, Room, Usage, number_after, number_in, set};
use crate::isolation::Facet;

const PERIOD_US: u64 = 100_000;

/// What is still missing after version 2, and the controller that gives it.
const WAYS: [(Facet, &str); 4] =
    [(Facet::Memory, "memory"), (Facet::Pids, "pids"), (Facet::Cpu, "cpu"), (Facet::Freeze, "freezer")];

pub(super) fn create(
    hierarchies: &BTreeMap<String, Hierarchy>,
    directory: &str,
    tier: &Tier,
    made: &mut Cgroups,
) {
    for (facet, controller) in WAYS {
        if made.facts.holds(facet) {
            continue;
        }
        let Some(hierarchy) = hierarchies.get(controller) else { continue };
        match room(hierarchy, directory, made).and_then(|dir| limit(&dir, facet, tier).map(|()| dir)) {
            Ok(dir) => {
                made.facts.enforced(facet, "cgroup v1");
                let entered = made.rooms.iter_mut().find(|room| room.dir == dir).expect("just made");
                entered.gives.push(facet);
                if facet == Facet::Freeze {
                    made.freezer = Some(FreezerPlace::V1(dir));
                }
            }
            Err(why) => made.lose(facet, &format!("cgroup v1: {why}")),
        }
    }
    // Evidence only: without version 2 nothing else counts processor time.
    if made.init.is_none()
        && let Some(hierarchy) = hierarchies.get("cpuacct")
    {
        let _ = room(hierarchy, directory, made);
    }
}

/// Our directory in a hierarchy. Controllers that share one share it.
fn room(hierarchy: &Hierarchy, directory: &str, made: &mut Cgroups) -> Result<std::path::PathBuf, String> {
    let known = made.rooms.iter().find(|room| room.dir.starts_with(&hierarchy.mount));
    if let Some(room) = known {
        return Ok(room.dir.clone());
    }
    let dir = hierarchy.make(directory)?;
    made.rooms.push(Room { dir: dir.clone(), gives: Vec::new() });
    Ok(dir)
}

fn limit(dir: &Path, facet: Facet, tier: &Tier) -> Result<(), String> {
    match facet {
        Facet::Memory => {
            let bytes = tier.memory_bytes.to_string();
            set(&dir.join("memory.limit_in_bytes"), &bytes)?;
            let with_swap = dir.join("memory.memsw.limit_in_bytes");
            if with_swap.exists() {
                set(&with_swap, &bytes)
            } else {
                set(&dir.join("memory.swappiness"), "0")
            }
        }
        Facet::Pids => set(&dir.join("pids.max"), &tier.pids.to_string()),
        Facet::Cpu => {
            let quota = u64::from(tier.cpu_millis) * PERIOD_US / 1_000;
            set(&dir.join("cpu.cfs_period_us"), &PERIOD_US.to_string())?;
            set(&dir.join("cpu.cfs_quota_us"), &quota.to_string())
        }
        Facet::Freeze => {
            // An empty cgroup freezes at once, so that both states read back here.
            set(&dir.join("freezer.state"), "FROZEN")?;
            set(&dir.join("freezer.state"), "THAWED")
        }
        other => Err(format!("{other} is no limit")),
    }
}

pub(super) fn usage(dir: &Path) -> Usage {
    let killed = number_after(&dir.join("memory.oom_control"), "oom_kill");
    let refused = fs::read_to_string(dir.join("pids.events")).ok();
    Usage {
        cpu_ns: number_in(&dir.join("cpuacct.usage")),
        memory_peak_bytes: number_in(&dir.join("memory.max_usage_in_bytes")),
        oom_kills: killed,
        pids_refused: refused.and_then(|text| text.strip_prefix("max ")?.trim_end().parse().ok()),
    }
}
