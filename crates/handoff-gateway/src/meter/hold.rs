//! Reserve, call, settle: a call is admitted only if its maximum fits, and every hold ends exactly once.

use handoff_protocol::totals::Tokens;
use handoff_protocol::{CallId, NanoUsd};
use serde::{Deserialize, Serialize};

use super::{Meter, MeterRefusal, Phase, Record};

/// Whether the upstream said what a call used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UsageKnown {
    /// It did.
    Reported,
    /// It did not; an estimate is charged.
    Unknown,
}

/// How a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settlement {
    /// What it cost, rounded up once.
    pub cost_usd: NanoUsd,
    /// What it used.
    pub tokens: Tokens,
    /// Bytes that were sent to the upstream.
    pub egress_bytes: u64,
    /// Whether the upstream said so.
    pub usage: UsageKnown,
}

impl Meter {
    /// What calls of the live epoch can still hold: the rest less one tick, because a call that took the next
    /// tick's money would freeze the very agent that waits for it. Nothing while no tick fits.
    ///
    /// # Errors
    /// [`MeterRefusal::StaleEpoch`] when `number` is not the live epoch.
    pub fn available(&self, number: u64) -> Result<NanoUsd, MeterRefusal> {
        let epoch = self.epoch(number)?;
        if epoch.phase != Phase::Live {
            return Err(MeterRefusal::StaleEpoch { asked: number, present: self.live() });
        }
        let tier = &self.terms.tier;
        let next = tier.run_cost(epoch.reserved_ms.saturating_add(self.terms.tick_ms));
        let next_tick = next.minus(tier.run_cost(epoch.reserved_ms));
        Ok(if epoch.exhausted { NanoUsd::ZERO } else { epoch.available(tier).minus(next_tick) })
    }

    /// Sets the maximum of a call aside.
    ///
    /// # Errors
    /// [`MeterRefusal::Exceeded`] when it does not fit; [`MeterRefusal::StaleEpoch`] when the epoch is not
    /// live. Neither changes anything.
    pub fn hold(
        &mut self,
        number: u64,
        call_id: CallId,
        amount_usd: NanoUsd,
    ) -> Result<Vec<Record>, MeterRefusal> {
        let available = self.available(number)?;
        // A budget of zero, or one that is used up, buys nothing, not even what is free.
        if amount_usd > available || available == NanoUsd::ZERO {
            return Err(MeterRefusal::Exceeded { required: amount_usd, available });
        }
        let mut records = Vec::new();
        self.put(&mut records, Record::Held { epoch: number, call_id, amount_usd });
        Ok(records)
    }

    /// Nothing was sent: the hold comes back whole.
    ///
    /// # Errors
    /// [`MeterRefusal::NotOpen`] when the call has no open hold.
    pub fn release(&mut self, epoch: u64, call_id: CallId) -> Result<Vec<Record>, MeterRefusal> {
        self.open_hold(epoch, call_id)?;
        let mut records = Vec::new();
        self.put(&mut records, Record::Released { epoch, call_id });
        self.reserve(&mut records);
        Ok(records)
    }

    /// The call is over. An upstream that counts more than the hold is charged as far as the limit reaches;
    /// the rest is kept as evidence.
    ///
    /// # Errors
    /// [`MeterRefusal::NotOpen`] when the call has no open hold.
    pub fn settle(
        &mut self,
        epoch: u64,
        call_id: CallId,
        settlement: Settlement,
    ) -> Result<Vec<Record>, MeterRefusal> {
        let hold = self.open_hold(epoch, call_id)?;
        let room = hold.plus(self.epoch(epoch)?.available(&self.terms.tier));
        let Settlement { cost_usd: full, tokens, egress_bytes, usage } = settlement;
        let (cost_usd, overrun_usd) = (full.min(room), full.minus(room));
        let mut records = Vec::new();
        let settled = Record::Settled { epoch, call_id, cost_usd, overrun_usd, tokens, egress_bytes, usage };
        self.put(&mut records, settled);
        self.reserve(&mut records);
        Ok(records)
    }

    /// The call's outcome is unknown: it stays charged at its maximum.
    ///
    /// # Errors
    /// [`MeterRefusal::NotOpen`] when the call has no open hold.
    pub fn lose(
        &mut self,
        epoch: u64,
        call_id: CallId,
        egress_bytes: u64,
    ) -> Result<Vec<Record>, MeterRefusal> {
        self.open_hold(epoch, call_id)?;
        let mut records = Vec::new();
        self.put(&mut records, Record::Indeterminate { epoch, call_id, egress_bytes });
        Ok(records)
    }

    fn open_hold(&self, epoch: u64, call: CallId) -> Result<NanoUsd, MeterRefusal> {
        self.epoch(epoch)?.open.get(&call).copied().ok_or(MeterRefusal::NotOpen)
    }
}
