//! What the meter writes down: one record per change, in order. The journal holds these and nothing else.

use handoff_protocol::node::Usage;
use handoff_protocol::totals::Tokens;
use handoff_protocol::{CallId, IncarnationId, NanoUsd};
use serde::{Deserialize, Serialize};

use super::{Meter, Mode, Terms, UsageKnown};

/// One change of a meter's state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Record {
    /// The destination was opened, or its grace and wind-down were changed.
    Opened {
        /// What was agreed.
        terms: Terms,
    },
    /// All that came before, in one record.
    Compacted {
        /// The state.
        meter: Box<Meter>,
    },
    /// An epoch may run; its limit follows.
    Admitted {
        /// Which epoch.
        epoch: u64,
        /// Who holds it.
        incarnation: IncarnationId,
        /// The boot that `boot_ms` counts from.
        boot_id: String,
        /// When it began to run.
        boot_ms: u64,
    },
    /// An epoch has a higher limit.
    Limited {
        /// Which epoch.
        epoch: u64,
        /// Spend plus holds never pass it.
        limit_usd: NanoUsd,
    },
    /// From here on time counts as running, frozen or winding down.
    Stood {
        /// The boot that `boot_ms` counts from.
        boot_id: String,
        /// Since when.
        boot_ms: u64,
        /// As what.
        mode: Mode,
    },
    /// Time went by in the live epoch.
    Elapsed {
        /// Until when it has been counted.
        boot_ms: u64,
        /// Milliseconds of it running.
        run_ms: u64,
        /// Milliseconds of it frozen.
        frozen_ms: u64,
        /// The part of `frozen_ms` that is charged to the wind-down.
        wind_down_ms: u64,
    },
    /// Compute of the live epoch was paid in advance.
    Reserved {
        /// So many more milliseconds.
        ms: u64,
    },
    /// The next tick does not fit the live epoch's limit.
    Exhausted,
    /// It does again.
    Replenished,
    /// A call may leave: its maximum is set aside.
    Held {
        /// Who pays.
        epoch: u64,
        /// For which call.
        call_id: CallId,
        /// The most it can cost.
        amount_usd: NanoUsd,
    },
    /// Nothing left for the upstream: the hold comes back whole.
    Released {
        /// Who would have paid.
        epoch: u64,
        /// For which call.
        call_id: CallId,
    },
    /// The call is over and its cost is known or estimated.
    Settled {
        /// Who pays.
        epoch: u64,
        /// For which call.
        call_id: CallId,
        /// What is charged.
        cost_usd: NanoUsd,
        /// What the upstream counted beyond that and the limit has no room for.
        overrun_usd: NanoUsd,
        /// What was used.
        tokens: Tokens,
        /// Bytes that were sent to the upstream.
        egress_bytes: u64,
        /// Whether the upstream said what was used.
        usage: UsageKnown,
    },
    /// The call's outcome is unknown: its hold is charged at its maximum.
    Indeterminate {
        /// Who pays.
        epoch: u64,
        /// For which call.
        call_id: CallId,
        /// Bytes that were sent to the upstream.
        egress_bytes: u64,
    },
    /// An epoch was closed that never ran here: its ledger is empty, and can be closed like any other.
    Unused {
        /// Which epoch.
        epoch: u64,
    },
    /// The epoch makes no more calls and runs no more.
    Closing {
        /// Which epoch.
        epoch: u64,
    },
    /// A report has its number and its body, for good.
    Sealed {
        /// The report.
        usage: Usage,
    },
    /// The control plane has accepted all reports of an epoch up to this one.
    Acknowledged {
        /// Which epoch.
        epoch: u64,
        /// Up to which report.
        seq: u64,
    },
}
