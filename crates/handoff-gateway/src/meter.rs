//! The meter of one destination: what each of its epochs may spend, holds and has spent. Pure: time is an
//! argument, nothing is read or written.
//!
//! Every change is a [`Record`]; [`Meter::apply`] is the only place where state changes, so replaying the
//! journal gives the state that was lost. A command looks at the state, applies the records that follow, and
//! returns them for the journal.
//!
//! What holds in every state, per epoch: `spent + held ≤ limit`, where `held` is the sum of the open holds and
//! of the tick that is reserved but has not run yet. Totals never fall.

mod apply;
mod epoch;
mod hold;
mod record;
mod report;
mod time;

use std::collections::BTreeMap;

use handoff_protocol::{IncarnationId, NanoUsd, Tier};
use serde::{Deserialize, Serialize};

pub use apply::Unfitting;
pub use epoch::{Epoch, Phase};
pub use hold::{Settlement, UsageKnown};
pub use record::Record;
pub use report::report_digest;
pub use time::{Mode, Standing};

/// What was agreed when the destination was opened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Terms {
    /// The size that is charged.
    pub tier: Tier,
    /// Milliseconds of compute that are reserved at a time; at least one.
    pub tick_ms: u64,
    /// Milliseconds of frozen time, per epoch, that may be charged to the wind-down.
    pub grace_ms: u64,
    /// What the wind-down may cost over all epochs.
    pub wind_down_usd: NanoUsd,
}

impl Terms {
    /// How long before a reserved tick ends the next one is reserved: whoever has to freeze the agent does it
    /// in time that is paid for.
    pub(crate) fn lead_ms(&self) -> u64 {
        (self.tick_ms / 4).min(500)
    }
}

/// A point in time: milliseconds of one boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment<'b> {
    /// Which boot.
    pub boot_id: &'b str,
    /// Milliseconds since it began.
    pub boot_ms: u64,
}

/// Why the meter does not do something.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MeterRefusal {
    /// The destination's present epoch is another one.
    #[error("epoch {asked} is not the present one{}", present.map(|epoch| format!(", {epoch} is")).unwrap_or_default())]
    StaleEpoch {
        /// The epoch that was named.
        asked: u64,
        /// The live epoch, if there is one.
        present: Option<u64>,
    },
    /// Another incarnation holds this epoch.
    #[error("epoch {epoch} belongs to {holder}")]
    OtherIncarnation {
        /// The epoch that was named.
        epoch: u64,
        /// Who holds it.
        holder: IncarnationId,
    },
    /// The terms of a destination are fixed once it is open.
    #[error("the destination is open with another tier or tick")]
    OtherTerms,
    /// The rest does not cover what was asked.
    #[error("{required} US dollars are needed and {available} are left")]
    Exceeded {
        /// What the call needs at the least.
        required: NanoUsd,
        /// What is left.
        available: NanoUsd,
    },
    /// This call has no open hold: it was settled, or never held.
    #[error("the call has no open hold")]
    NotOpen,
    /// A report that was never made.
    #[error("there is no report {seq} of epoch {epoch}")]
    NoSuchReport {
        /// The epoch that was named.
        epoch: u64,
        /// The sequence number that was named.
        seq: u64,
    },
}

/// All epochs of one transfer and generation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Meter {
    terms: Terms,
    epochs: BTreeMap<u64, Epoch>,
    standing: Option<Standing>,
}

impl Meter {
    /// A meter that has measured nothing, and the record that begins its journal.
    pub fn open(terms: Terms) -> (Self, Record) {
        let record = Record::Opened { terms: terms.clone() };
        (Self { terms, epochs: BTreeMap::new(), standing: None }, record)
    }

    /// The state after these records, or none if there are none.
    ///
    /// # Errors
    /// When a record does not fit the state before it: the journal is not one of ours.
    pub fn replay<'r>(records: impl IntoIterator<Item = &'r Record>) -> Result<Option<Self>, Unfitting> {
        let mut meter = None;
        for record in records {
            match (&mut meter, record) {
                (none @ None, Record::Opened { terms }) => *none = Some(Self::open(terms.clone()).0),
                (none @ None, Record::Compacted { meter }) => *none = Some(meter.as_ref().clone()),
                (None, _) => return Err(Unfitting),
                (Some(meter), record) => meter.apply(record)?,
            }
        }
        Ok(meter)
    }

    /// What was agreed.
    pub fn terms(&self) -> &Terms {
        &self.terms
    }

    /// Every epoch, in order.
    pub fn epochs(&self) -> &BTreeMap<u64, Epoch> {
        &self.epochs
    }

    /// Whether time is being counted, since when, and as what.
    pub fn standing(&self) -> Option<&Standing> {
        self.standing.as_ref()
    }

    /// The epoch that may make calls.
    pub fn live(&self) -> Option<u64> {
        self.epochs.iter().rev().find(|(_, epoch)| epoch.phase == Phase::Live).map(|(number, _)| *number)
    }

    /// Changes grace and wind-down of an open destination. Tier and tick stay.
    ///
    /// # Errors
    /// [`MeterRefusal::OtherTerms`] when tier or tick differ.
    pub fn revise(&mut self, terms: Terms) -> Result<Vec<Record>, MeterRefusal> {
        if terms.tier != self.terms.tier || terms.tick_ms != self.terms.tick_ms {
            return Err(MeterRefusal::OtherTerms);
        }
        let mut records = Vec::new();
        if terms != self.terms {
            self.put(&mut records, Record::Opened { terms });
        }
        Ok(records)
    }

    /// Lets an epoch run and spend up to an absolute limit. Said again by the same incarnation it changes
    /// nothing but a higher limit; an older epoch is closed by a newer one.
    ///
    /// # Errors
    /// [`MeterRefusal::StaleEpoch`] for an epoch that is over or older than the live one,
    /// [`MeterRefusal::OtherIncarnation`] for one that somebody else holds.
    pub fn admit(
        &mut self,
        number: u64,
        incarnation: IncarnationId,
        limit_usd: NanoUsd,
        now: Moment<'_>,
    ) -> Result<Vec<Record>, MeterRefusal> {
        let mut records = Vec::new();
        let stale = || MeterRefusal::StaleEpoch { asked: number, present: self.live() };
        if self.epochs.last_key_value().is_some_and(|(newest, _)| *newest > number) {
            return Err(stale());
        }
        match self.epochs.get(&number) {
            Some(epoch) if epoch.phase != Phase::Live => return Err(stale()),
            Some(epoch) if epoch.incarnation != incarnation => {
                return Err(MeterRefusal::OtherIncarnation { epoch: number, holder: epoch.incarnation });
            }
            Some(_) => self.stand_again(&mut records, now),
            None => {
                if let Some(older) = self.live() {
                    self.put(&mut records, Record::Closing { epoch: older });
                }
                let boot_id = now.boot_id.to_owned();
                let boot_ms = now.boot_ms;
                self.put(&mut records, Record::Admitted { epoch: number, incarnation, boot_id, boot_ms });
            }
        }
        records.append(&mut self.raise_limit(number, limit_usd)?);
        Ok(records)
    }

    /// Raises an epoch's limit; a lower one changes nothing.
    ///
    /// # Errors
    /// [`MeterRefusal::StaleEpoch`] for an epoch that is not known.
    pub fn raise_limit(&mut self, number: u64, limit_usd: NanoUsd) -> Result<Vec<Record>, MeterRefusal> {
        let epoch = self.epoch(number)?;
        let mut records = Vec::new();
        if limit_usd > epoch.limit_usd {
            self.put(&mut records, Record::Limited { epoch: number, limit_usd });
        }
        self.reserve(&mut records);
        Ok(records)
    }

    /// After a replay: whatever was on its way has an unknown outcome, and stays charged at its maximum.
    pub fn recover(&mut self) -> Vec<Record> {
        let open = |(number, epoch): (&u64, &Epoch)| {
            let number = *number;
            epoch.open.keys().map(move |call| (number, *call)).collect::<Vec<_>>()
        };
        let lost: Vec<_> = self.epochs.iter().flat_map(open).collect();
        let mut records = Vec::new();
        for (epoch, call_id) in lost {
            self.put(&mut records, Record::Indeterminate { epoch, call_id, egress_bytes: 0 });
        }
        records
    }

    fn epoch(&self, number: u64) -> Result<&Epoch, MeterRefusal> {
        let stale = MeterRefusal::StaleEpoch { asked: number, present: self.live() };
        self.epochs.get(&number).ok_or(stale)
    }

    fn put(&mut self, records: &mut Vec<Record>, record: Record) {
        self.apply(&record).expect("a record that was decided on this state fits it");
        records.push(record);
    }
}
