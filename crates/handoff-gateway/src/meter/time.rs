//! Compute: ticks are reserved in advance, and charged by the millisecond to the last proof of life.

use serde::{Deserialize, Serialize};

use super::{Meter, Moment, Record};

/// What the live epoch's time counts as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// The agent runs: charged.
    Running,
    /// It stands still: recorded, not charged.
    Frozen,
    /// It stands still within grace: charged to the wind-down as far as the reserve reaches.
    WindingDown,
}

/// Until when time has been counted, and what it counts as from there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Standing {
    /// The boot that `boot_ms` counts from.
    pub boot_id: String,
    /// Time before this has been counted.
    pub boot_ms: u64,
    /// Time after it counts as this.
    pub mode: Mode,
}

impl Standing {
    pub(super) fn new(boot_id: &str, boot_ms: u64, mode: Mode) -> Self {
        Self { boot_id: boot_id.to_owned(), boot_ms, mode }
    }
}

impl Meter {
    /// Counts the time until `boot_ms`. Running counts only until `run_until_ms`: there the agent's own init
    /// freezes it. Then reserves the next tick where one is due.
    pub fn elapse(&mut self, boot_ms: u64, run_until_ms: u64) -> Vec<Record> {
        let mut records = Vec::new();
        self.count(&mut records, boot_ms, run_until_ms);
        self.reserve(&mut records);
        records
    }

    /// From `at` on time counts as `mode`. A moment that has been counted already is not counted again, and
    /// another boot proves nothing about the time between.
    pub fn stand(&mut self, mode: Mode, at: Moment<'_>, run_until_ms: u64) -> Vec<Record> {
        let mut records = Vec::new();
        let Some(before) = self.standing.clone() else { return records };
        let same_boot = before.boot_id == at.boot_id;
        if same_boot {
            self.count(&mut records, at.boot_ms, run_until_ms);
        }
        if before.mode != mode || !same_boot {
            let boot_ms = if same_boot { before.boot_ms.max(at.boot_ms) } else { at.boot_ms };
            self.put(&mut records, Record::Stood { boot_id: at.boot_id.to_owned(), boot_ms, mode });
        }
        self.reserve(&mut records);
        records
    }

    /// When [`Meter::elapse`] has to be called next, as long as nothing else happens.
    pub fn next_tick_ms(&self) -> Option<u64> {
        let standing = self.standing.as_ref()?;
        let epoch = self.epochs.get(&self.live()?)?;
        match standing.mode {
            Mode::Running if epoch.exhausted => None,
            Mode::Running => {
                let left = epoch.reserved_ms.saturating_sub(epoch.run_ms + self.terms.lead_ms());
                Some(standing.boot_ms.saturating_add(left))
            }
            Mode::Frozen => None,
            Mode::WindingDown if epoch.wind_down_ms >= self.terms.grace_ms => None,
            Mode::WindingDown => Some(standing.boot_ms.saturating_add(self.terms.tick_ms)),
        }
    }

    /// The same incarnation is alive, perhaps after the gateway was not: within one boot the time between
    /// counts as what it stood for.
    pub(super) fn stand_again(&mut self, records: &mut Vec<Record>, now: Moment<'_>) {
        if let Some(mode) = self.standing.as_ref().map(|standing| standing.mode) {
            records.append(&mut self.stand(mode, now, now.boot_ms));
        }
    }

    fn count(&mut self, records: &mut Vec<Record>, boot_ms: u64, run_until_ms: u64) {
        let Some(standing) = &self.standing else { return };
        let Some(epoch) = self.live().and_then(|live| self.epochs.get(&live)) else { return };
        let passed = boot_ms.saturating_sub(standing.boot_ms);
        if passed == 0 {
            return;
        }
        let (run_ms, frozen_ms, wind_down_ms) = match standing.mode {
            Mode::Running => {
                let run = run_until_ms.saturating_sub(standing.boot_ms).min(passed);
                (run, passed - run, 0)
            }
            Mode::Frozen => (0, passed, 0),
            Mode::WindingDown => {
                (0, passed, passed.min(self.terms.grace_ms.saturating_sub(epoch.wind_down_ms)))
            }
        };
        self.put(records, Record::Elapsed { boot_ms, run_ms, frozen_ms, wind_down_ms });
    }

    /// Reserves whole ticks until the time that has run and the lead are covered. Where that does not fit,
    /// time that has already run is paid as far as the limit reaches, and the epoch is exhausted.
    pub(super) fn reserve(&mut self, records: &mut Vec<Record>) {
        let Some(epoch) = self.live().and_then(|live| self.epochs.get(&live)) else { return };
        let (tick, lead) = (self.terms.tick_ms.max(1), self.terms.lead_ms());
        let short = (epoch.run_ms + lead + 1).saturating_sub(epoch.reserved_ms);
        let wanted = short.div_ceil(tick) * tick;
        let affordable = epoch.affordable_ms(&self.terms.tier);
        let ran = epoch.run_ms.saturating_sub(epoch.reserved_ms);
        let granted =
            if affordable >= wanted { wanted } else { (affordable / tick * tick).max(ran.min(affordable)) };
        let exhausted = granted < wanted;
        let changed = exhausted != epoch.exhausted;
        if granted > 0 {
            self.put(records, Record::Reserved { ms: granted });
        }
        match (changed, exhausted) {
            (true, true) => self.put(records, Record::Exhausted),
            (true, false) => self.put(records, Record::Replenished),
            (false, _) => {}
        }
    }
}
