//! One epoch's account: its limit, its holds, its totals, and the reports that were made of them.

use std::collections::{BTreeMap, VecDeque};

use handoff_protocol::node::Usage;
use handoff_protocol::totals::Tokens;
use handoff_protocol::{CallId, Digest, IncarnationId, NanoUsd, Tier, Totals};
use serde::{Deserialize, Serialize};

/// Whether an epoch may still spend.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// It runs or stands frozen.
    Live,
    /// No new calls; open ones settle.
    Closing,
    /// Its last report is sealed.
    Closed,
}

/// The account of one epoch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Epoch {
    /// Who holds it.
    pub incarnation: IncarnationId,
    /// Whether it may spend.
    pub phase: Phase,
    /// Spend plus holds never pass it.
    pub limit_usd: NanoUsd,
    /// Calls that are settled, and indeterminate ones at their maximum.
    pub model_usd: NanoUsd,
    /// What settled calls used.
    pub tokens: Tokens,
    /// Bytes that were sent to upstreams.
    pub egress_bytes: u64,
    /// Milliseconds running.
    pub run_ms: u64,
    /// Milliseconds of running that are paid, a part of them in advance.
    pub reserved_ms: u64,
    /// Milliseconds frozen.
    pub frozen_ms: u64,
    /// The part of them that is charged to the wind-down.
    pub wind_down_ms: u64,
    /// What the wind-down has cost.
    pub wind_down_usd: NanoUsd,
    /// Open holds.
    pub open: BTreeMap<CallId, NanoUsd>,
    /// Calls whose outcome is unknown.
    pub indeterminate_calls: u64,
    /// What they are charged, a part of `model_usd`.
    pub indeterminate_usd: NanoUsd,
    /// Settled calls whose usage the upstream did not say (`usage=unknown`).
    pub estimated_calls: u64,
    /// What upstreams counted beyond holds and limit: evidence, never charged.
    pub overrun_usd: NanoUsd,
    /// The next tick does not fit.
    pub exhausted: bool,
    /// The number of the last report, 0 before the first.
    pub last_seq: u64,
    /// The last report as it was sealed.
    pub last_report: Option<Usage>,
    /// Its digest.
    pub last_digest: Option<Digest>,
    /// Reports that the control plane has not accepted yet, oldest first.
    pub unacknowledged: VecDeque<Usage>,
}

impl Epoch {
    pub(super) fn new(incarnation: IncarnationId, phase: Phase) -> Self {
        Self {
            incarnation,
            phase,
            limit_usd: NanoUsd::ZERO,
            model_usd: NanoUsd::ZERO,
            tokens: Tokens::default(),
            egress_bytes: 0,
            run_ms: 0,
            reserved_ms: 0,
            frozen_ms: 0,
            wind_down_ms: 0,
            wind_down_usd: NanoUsd::ZERO,
            open: BTreeMap::new(),
            indeterminate_calls: 0,
            indeterminate_usd: NanoUsd::ZERO,
            estimated_calls: 0,
            overrun_usd: NanoUsd::ZERO,
            exhausted: false,
            last_seq: 0,
            last_report: None,
            last_digest: None,
            unacknowledged: VecDeque::new(),
        }
    }

    /// Milliseconds of running that are charged. Time that no reserve covers is recorded, and charged only
    /// once a higher limit pays for it.
    pub fn charged_ms(&self) -> u64 {
        self.run_ms.min(self.reserved_ms)
    }

    /// All that was used so far.
    pub fn totals(&self, tier: &Tier) -> Totals {
        Totals {
            model_usd: self.model_usd,
            compute_usd: tier.run_cost(self.charged_ms()),
            egress_usd: NanoUsd::ZERO,
            tokens: self.tokens,
            wind_down_usd: self.wind_down_usd,
            run_ms: self.run_ms,
            frozen_ms: self.frozen_ms,
            egress_bytes: self.egress_bytes,
        }
    }

    /// What counts against the limit.
    pub fn spent(&self, tier: &Tier) -> NanoUsd {
        self.totals(tier).spendable()
    }

    /// Open holds, and the part of the reserved tick that has not run.
    pub fn held(&self, tier: &Tier) -> NanoUsd {
        let tick = tier.run_cost(self.reserved_ms).minus(tier.run_cost(self.charged_ms()));
        self.open.values().copied().sum::<NanoUsd>().plus(tick)
    }

    /// What the limit leaves for another hold.
    pub fn available(&self, tier: &Tier) -> NanoUsd {
        self.limit_usd.minus(self.spent(tier).plus(self.held(tier)))
    }

    /// How many more milliseconds of running `available` pays for.
    pub(super) fn affordable_ms(&self, tier: &Tier) -> u64 {
        let price = u128::from(tier.run_price.pico());
        if price == 0 {
            return u64::MAX;
        }
        let paid = tier.run_cost(self.reserved_ms).plus(self.available(tier));
        let pico = u128::from(paid.nano().unsigned_abs()) * 1000;
        u64::try_from(pico / price).unwrap_or(u64::MAX).saturating_sub(self.reserved_ms)
    }
}
