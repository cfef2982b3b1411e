//! Tiers: the sizes that an operator offers, and what a second of each costs.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::NanoUsd;
use crate::money::PicoUsd;

/// An operator's name for a size, such as `sandbox-small`.
#[derive(
    Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(transparent)]
pub struct TierName(pub String);

impl TierName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for TierName {
    fn from(name: &str) -> Self {
        Self(name.to_owned())
    }
}

impl fmt::Display for TierName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// A size of destination: what the kernel enforces, and what the meter charges.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tier {
    /// The operator's name for it.
    pub name: TierName,
    /// Thousandths of a core.
    pub cpu_millis: u32,
    /// Bytes of memory, without swap.
    pub memory_bytes: u64,
    /// Processes and threads.
    pub pids: u32,
    /// Bits per second that may leave through the gateway.
    pub egress_bits_per_second: u64,
    /// Pico-USD per millisecond while running.
    pub run_price: PicoUsd,
    /// Pico-USD per millisecond while frozen.
    pub frozen_price: PicoUsd,
}

impl Tier {
    /// What running for so long costs, rounded up.
    pub fn run_cost(&self, ms: u64) -> NanoUsd {
        self.run_price.times(ms).round_up()
    }

    /// What standing frozen for so long costs, rounded up.
    pub fn frozen_cost(&self, ms: u64) -> NanoUsd {
        self.frozen_price.times(ms).round_up()
    }

    /// The three tiers that exist where an operator has defined none. Prices are per second: small 28 µ$,
    /// medium 56 µ$, large 112 µ$, frozen a tenth of it; an operator's own table replaces them.
    pub fn defaults() -> Vec<Self> {
        let tier = |name: &str, cores: u32, mebibytes: u64, megabits: u64| Self {
            name: name.into(),
            cpu_millis: cores * 1000,
            memory_bytes: mebibytes << 20,
            pids: 256 * cores,
            egress_bits_per_second: megabits * 1_000_000,
            run_price: PicoUsd::from_pico(28_000 * u64::from(cores)),
            frozen_price: PicoUsd::from_pico(2_800 * u64::from(cores)),
        };
        vec![
            tier("sandbox-small", 1, 512, 10),
            tier("sandbox-medium", 2, 2048, 50),
            tier("sandbox-large", 4, 8192, 100),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_hour_of_the_small_tier_costs_ten_cents() {
        let small = &Tier::defaults()[0];
        assert_eq!(small.run_cost(3_600_000), "0.1008".parse().expect("an amount"));
        assert_eq!(small.frozen_cost(1), NanoUsd::from_nano(3), "rounded up from 2.8");
    }
}
