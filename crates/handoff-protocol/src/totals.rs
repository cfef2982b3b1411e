//! What one epoch has used so far. Totals are cumulative: a report replaces the one before it, so a lost or
//! repeated report changes nothing.

use serde::{Deserialize, Serialize};

use crate::NanoUsd;

/// Cumulative totals of one (transfer, epoch).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Totals {
    /// Model calls, settled, plus indeterminate holds at their maximum.
    pub model_usd: NanoUsd,
    /// Running time at the tier's price.
    pub compute_usd: NanoUsd,
    /// Bytes that left through the gateway, where they have a price.
    pub egress_usd: NanoUsd,
    /// Tokens in five disjoint kinds, and reasoning as a part of output.
    pub tokens: Tokens,
    /// Paid out of the wind-down: frozen time within grace, and the last snapshot.
    pub wind_down_usd: NanoUsd,
    /// Milliseconds running.
    pub run_ms: u64,
    /// Milliseconds frozen, charged or not.
    pub frozen_ms: u64,
    /// Bytes that left through the gateway.
    pub egress_bytes: u64,
}

/// Tokens by how they are priced. The kinds are disjoint, except that `reasoning` is part of `output`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Tokens {
    /// Input that was in no cache.
    pub input: u64,
    /// Input read from a cache.
    pub cache_read: u64,
    /// Input written to a five-minute cache.
    pub cache_write_5m: u64,
    /// Input written to a one-hour cache.
    pub cache_write_1h: u64,
    /// Output, reasoning included.
    pub output: u64,
    /// The part of output that was reasoning.
    pub reasoning: u64,
}

impl Totals {
    /// What counts against the epoch's limit: everything but the wind-down.
    pub fn spendable(&self) -> NanoUsd {
        self.model_usd.plus(self.compute_usd).plus(self.egress_usd)
    }

    /// All money of this epoch.
    pub fn spent(&self) -> NanoUsd {
        self.spendable().plus(self.wind_down_usd)
    }

    /// Whether no figure is lower than in `earlier`: totals never fall.
    pub fn covers(&self, earlier: &Self) -> bool {
        let pairs = |totals: &Self| {
            let tokens = totals.tokens;
            [
                totals.model_usd.nano().unsigned_abs(),
                totals.compute_usd.nano().unsigned_abs(),
                totals.egress_usd.nano().unsigned_abs(),
                totals.wind_down_usd.nano().unsigned_abs(),
                totals.run_ms,
                totals.frozen_ms,
                totals.egress_bytes,
                tokens.input,
                tokens.cache_read,
                tokens.cache_write_5m,
                tokens.cache_write_1h,
                tokens.output,
                tokens.reasoning,
            ]
        };
        pairs(self).iter().zip(pairs(earlier)).all(|(now, before)| *now >= before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_cover_only_what_is_nowhere_higher() {
        let low = Totals { model_usd: NanoUsd::from_nano(5), run_ms: 10, ..Totals::default() };
        let high = Totals { model_usd: NanoUsd::from_nano(6), run_ms: 10, ..Totals::default() };
        let mixed = Totals { model_usd: NanoUsd::from_nano(9), run_ms: 9, ..Totals::default() };
        assert!(high.covers(&low) && low.covers(&low));
        assert!(!low.covers(&high) && !mixed.covers(&low));
    }
}
