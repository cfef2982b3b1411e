//! Cumulative reports: a number belongs to one body for good, and rises only when the body changes.

use handoff_protocol::Digest;
use handoff_protocol::node::Usage;

use super::{Epoch, Meter, MeterRefusal, Phase, Record};

/// The digest that the next report of an epoch names as `prev_hash`: over the report as compact JSON, fields
/// in the order of the node wire.
pub fn report_digest(usage: &Usage) -> Digest {
    Digest::of(&serde_json::to_vec(usage).expect("a report is plain data"))
}

impl Meter {
    /// No more calls and no more running for this epoch; said again it changes nothing. An epoch that never ran
    /// here closes with nothing used: a claim can be accepted without its node hearing of it.
    pub fn begin_close(&mut self, number: u64) -> Vec<Record> {
        let mut records = Vec::new();
        match self.epochs.get(&number).map(|epoch| epoch.phase) {
            None => self.put(&mut records, Record::Unused { epoch: number }),
            Some(Phase::Live) => self.put(&mut records, Record::Closing { epoch: number }),
            Some(Phase::Closing | Phase::Closed) => {}
        }
        records
    }

    /// Seals the next report of every epoch that has news and no report under way, and the closing report of
    /// every epoch that is stopped and has no open hold.
    pub fn seal(&mut self) -> Vec<Record> {
        let mut records = Vec::new();
        for number in self.epochs.keys().copied().collect::<Vec<_>>() {
            if let Some(usage) = self.due(number) {
                self.put(&mut records, Record::Sealed { usage });
            }
        }
        records
    }

    /// The control plane has accepted the reports of an epoch up to `seq`.
    ///
    /// # Errors
    /// [`MeterRefusal::NoSuchReport`] for one that was never made.
    pub fn acknowledge(&mut self, number: u64, seq: u64) -> Result<Vec<Record>, MeterRefusal> {
        let epoch = self.epoch(number)?;
        if seq > epoch.last_seq {
            return Err(MeterRefusal::NoSuchReport { epoch: number, seq });
        }
        let mut records = Vec::new();
        if epoch.unacknowledged.front().is_some_and(|report| report.seq <= seq) {
            self.put(&mut records, Record::Acknowledged { epoch: number, seq });
        }
        Ok(records)
    }

    fn due(&self, number: u64) -> Option<Usage> {
        let epoch = self.epochs.get(&number)?;
        let closing = match epoch.phase {
            Phase::Live => false,
            Phase::Closing => epoch.open.is_empty(),
            Phase::Closed => return None,
        };
        if !closing && !epoch.unacknowledged.is_empty() {
            return None;
        }
        let usage = epoch.report(number, closing, self);
        epoch.says_more(&usage).then_some(usage)
    }
}

impl Epoch {
    fn report(&self, number: u64, closing: bool, meter: &Meter) -> Usage {
        Usage {
            epoch: number,
            seq: self.last_seq + 1,
            totals: self.totals(&meter.terms.tier),
            closing,
            // Open calls may still give money back: only without them is it certain that no tick fits.
            exhausted: self.exhausted && self.open.is_empty() && !closing,
            limit_usd: Some(self.limit_usd),
            prev_hash: self.last_digest,
        }
    }

    fn says_more(&self, next: &Usage) -> bool {
        match &self.last_report {
            Some(last) => {
                // Where a tick does not fit, that it does not fit a raised limit either is news.
                let still = next.exhausted && next.limit_usd != last.limit_usd;
                still
                    || (next.totals, next.closing, next.exhausted)
                        != (last.totals, last.closing, last.exhausted)
            }
            None => next.closing || next.exhausted || next.totals != Default::default(),
        }
    }
}
