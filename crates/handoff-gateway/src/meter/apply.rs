//! The fold: the one place where a meter's state changes.

use handoff_protocol::node::Usage;
use handoff_protocol::totals::Tokens;
use handoff_protocol::{CallId, IncarnationId, NanoUsd};

use super::record::Record;
use super::time::{Mode, Standing};
use super::{Epoch, Meter, Phase, UsageKnown, report_digest};

/// A record does not fit the state before it. Journals are checksummed, so this is never damage on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a record does not fit the state before it")]
pub struct Unfitting;

impl Meter {
    /// Changes the state by one record.
    ///
    /// # Errors
    /// When the record names an epoch or a hold that is not there, or comes twice.
    pub fn apply(&mut self, record: &Record) -> Result<(), Unfitting> {
        match record {
            Record::Opened { terms } => self.terms = terms.clone(),
            Record::Compacted { meter } => *self = meter.as_ref().clone(),
            Record::Admitted { epoch, incarnation, boot_id, boot_ms } => {
                if self.epochs.insert(*epoch, Epoch::new(*incarnation, Phase::Live)).is_some() {
                    return Err(Unfitting);
                }
                self.standing = Some(Standing::new(boot_id, *boot_ms, Mode::Running));
            }
            Record::Limited { epoch, limit_usd } => self.known(*epoch)?.limit_usd = *limit_usd,
            Record::Stood { boot_id, boot_ms, mode } => {
                self.standing = Some(Standing::new(boot_id, *boot_ms, *mode));
            }
            Record::Elapsed { boot_ms, run_ms, frozen_ms, wind_down_ms } => {
                self.elapsed(*boot_ms, *run_ms, *frozen_ms, *wind_down_ms)?;
            }
            Record::Reserved { ms } => self.present()?.reserved_ms += ms,
            Record::Exhausted => self.present()?.exhausted = true,
            Record::Replenished => self.present()?.exhausted = false,
            Record::Held { epoch, call_id, amount_usd } => {
                if self.known(*epoch)?.open.insert(*call_id, *amount_usd).is_some() {
                    return Err(Unfitting);
                }
            }
            Record::Released { epoch, call_id } => {
                self.take(*epoch, *call_id)?;
            }
            Record::Settled { epoch, call_id, cost_usd, overrun_usd, tokens, egress_bytes, usage } => {
                self.take(*epoch, *call_id)?;
                let epoch = self.known(*epoch)?;
                epoch.settled(*cost_usd, *overrun_usd, tokens, *egress_bytes, *usage);
            }
            Record::Indeterminate { epoch, call_id, egress_bytes } => {
                let amount = self.take(*epoch, *call_id)?;
                self.known(*epoch)?.lost(amount, *egress_bytes);
            }
            Record::Unused { epoch } => {
                let nobody = IncarnationId::from_u128(0);
                if self.epochs.insert(*epoch, Epoch::new(nobody, Phase::Closing)).is_some() {
                    return Err(Unfitting);
                }
            }
            Record::Closing { epoch } => self.closing(*epoch)?,
            Record::Sealed { usage } => self.known(usage.epoch)?.sealed(usage),
            Record::Acknowledged { epoch, seq } => {
                self.known(*epoch)?.unacknowledged.retain(|report| report.seq > *seq);
            }
        }
        Ok(())
    }

    fn known(&mut self, epoch: u64) -> Result<&mut Epoch, Unfitting> {
        self.epochs.get_mut(&epoch).ok_or(Unfitting)
    }

    fn present(&mut self) -> Result<&mut Epoch, Unfitting> {
        let live = self.live().ok_or(Unfitting)?;
        self.known(live)
    }

    fn take(&mut self, epoch: u64, call: CallId) -> Result<NanoUsd, Unfitting> {
        self.known(epoch)?.open.remove(&call).ok_or(Unfitting)
    }

    fn elapsed(&mut self, boot_ms: u64, run: u64, frozen: u64, wind_down: u64) -> Result<(), Unfitting> {
        self.standing.as_mut().ok_or(Unfitting)?.boot_ms = boot_ms;
        let live = self.live().ok_or(Unfitting)?;
        let others: NanoUsd =
            self.epochs.iter().filter(|(number, _)| **number != live).map(|(_, e)| e.wind_down_usd).sum();
        let room = self.terms.wind_down_usd.minus(others);
        let tier = self.terms.tier.clone();
        let epoch = self.known(live)?;
        epoch.run_ms += run;
        epoch.frozen_ms += frozen;
        epoch.wind_down_ms += wind_down;
        // A reserve that was made smaller meanwhile takes nothing back: totals never fall.
        epoch.wind_down_usd = tier.frozen_cost(epoch.wind_down_ms).min(room).max(epoch.wind_down_usd);
        Ok(())
    }

    fn closing(&mut self, number: u64) -> Result<(), Unfitting> {
        let live = self.live();
        let epoch = self.known(number)?;
        epoch.phase = Phase::Closing;
        epoch.reserved_ms = epoch.charged_ms();
        if live == Some(number) {
            self.standing = None;
        }
        Ok(())
    }
}

impl Epoch {
    fn settled(
        &mut self,
        cost: NanoUsd,
        overrun: NanoUsd,
        tokens: &Tokens,
        egress_bytes: u64,
        usage: UsageKnown,
    ) {
        self.model_usd = self.model_usd.plus(cost);
        self.overrun_usd = self.overrun_usd.plus(overrun);
        self.egress_bytes = self.egress_bytes.saturating_add(egress_bytes);
        self.estimated_calls += u64::from(usage == UsageKnown::Unknown);
        let own = &mut self.tokens;
        for (sum, more) in [
            (&mut own.input, tokens.input),
            (&mut own.cache_read, tokens.cache_read),
            (&mut own.cache_write_5m, tokens.cache_write_5m),
            (&mut own.cache_write_1h, tokens.cache_write_1h),
            (&mut own.output, tokens.output),
            (&mut own.reasoning, tokens.reasoning),
        ] {
            *sum = sum.saturating_add(more);
        }
    }

    fn lost(&mut self, amount: NanoUsd, egress_bytes: u64) {
        self.model_usd = self.model_usd.plus(amount);
        self.indeterminate_usd = self.indeterminate_usd.plus(amount);
        self.indeterminate_calls += 1;
        self.egress_bytes = self.egress_bytes.saturating_add(egress_bytes);
    }

    fn sealed(&mut self, usage: &Usage) {
        self.last_seq = usage.seq;
        self.last_report = Some(*usage);
        self.last_digest = Some(report_digest(usage));
        self.unacknowledged.push_back(*usage);
        if usage.closing {
            self.phase = Phase::Closed;
        }
    }
}
