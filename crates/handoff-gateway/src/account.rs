//! One destination's meter with its journal and its lease, behind one lock: what is decided in an order is
//! written in that order.

mod guard;
mod lease;
mod reports;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use handoff_protocol::{CallId, NanoUsd};
use tokio::sync::watch;

use crate::bid::{Bid, Grant};
use crate::clock::Clock;
use crate::journal::{Journal, JournalError};
use crate::meter::{Meter, MeterRefusal, Mode, Moment, Record};

pub(crate) use guard::OpenHold;
pub(crate) use lease::AccountRefusal;

/// The account of one destination.
#[derive(Debug)]
pub(crate) struct Account {
    clock: Arc<dyn Clock>,
    inner: Mutex<Inner>,
    /// Rises with every change.
    revision: watch::Sender<u64>,
}

#[derive(Debug)]
struct Inner {
    meter: Meter,
    journal: Journal,
    /// Admitted since this process began, and until when the agent may run.
    lease: Option<Lease>,
    /// Reports that have a number, and how many of them are known to be durable.
    sealed: u64,
    durably_sealed: u64,
    /// How often the whole meter was put in the place of its records, open holds included.
    compactions: u64,
}

#[derive(Debug, Clone, Copy)]
struct Lease {
    epoch: u64,
    run_until_ms: u64,
}

/// Why no call may be made now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NotNow {
    /// The node has not admitted this destination.
    #[error("the session does not run here yet")]
    NotAdmitted,
    /// The agent stands still.
    #[error("the session is frozen")]
    Frozen,
    /// The lease has not been renewed.
    #[error("the lease has run out and was not renewed yet")]
    LeaseOver,
}

/// Why a call gets no hold.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoHold {
    /// Not now; the call may be repeated.
    #[error(transparent)]
    NotNow(#[from] NotNow),
    /// It does not fit.
    #[error("{required} US dollars are needed and {available} are left")]
    Exceeded {
        /// What it takes at the least.
        required: NanoUsd,
        /// What is left.
        available: NanoUsd,
    },
    /// The hold cannot be made durable.
    #[error(transparent)]
    Journal(#[from] JournalError),
}

impl Account {
    pub(crate) fn new(clock: Arc<dyn Clock>, meter: Meter, journal: Journal) -> Self {
        let inner = Inner { meter, journal, lease: None, sealed: 1, durably_sealed: 0, compactions: 0 };
        Self { clock, inner: Mutex::new(inner), revision: watch::Sender::new(1) }
    }

    /// Holds as much of a call as fits, durably, and says for which epoch.
    pub(crate) async fn hold(
        self: &Arc<Self>,
        call_id: CallId,
        bid: &Bid,
    ) -> Result<(OpenHold, Grant), NoHold> {
        let (hold, grant, durable) = {
            let mut inner = self.lock();
            let epoch = inner.may_call(self.clock.boot_ms())?;
            let available = inner.available(epoch)?;
            let grant = bid.fit(available).map_err(|required| NoHold::Exceeded { required, available })?;
            let records = inner.meter.hold(epoch, call_id, grant.amount_usd).map_err(no_hold)?;
            let durable = inner.journal.append_hold(&records);
            let hold = OpenHold::new(Arc::clone(self), epoch, call_id, grant.amount_usd, inner.compactions);
            (hold, grant, durable)
        };
        self.changed();
        let durable = durable.await.unwrap_or_else(|_| Err(JournalError::ended()));
        if let Err(error) = durable {
            hold.never_written();
            return Err(error.into());
        }
        // The disk may have taken its time: what was true before the wait must be true after it.
        let still = self.lock().may_call(self.clock.boot_ms());
        match still {
            Ok(epoch) if epoch == hold.epoch() => Ok((hold, grant)),
            Ok(_) => Err(NotNow::NotAdmitted.into()),
            Err(not_now) => Err(not_now.into()),
        }
    }

    /// Sees every change from now on.
    pub(crate) fn subscribe(&self) -> watch::Receiver<u64> {
        self.revision.subscribe()
    }

    /// The clock that this account counts in.
    pub(crate) fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    fn changed(&self) {
        self.revision.send_modify(|revision| *revision += 1);
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // A panic inside would have left the meter between two records, never inside one.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Moment<'_> {
        Moment { boot_id: self.clock.boot_id(), boot_ms: self.clock.boot_ms() }
    }
}

fn no_hold(refusal: MeterRefusal) -> NoHold {
    match refusal {
        MeterRefusal::Exceeded { required, available } => NoHold::Exceeded { required, available },
        MeterRefusal::StaleEpoch { .. }
        | MeterRefusal::OtherIncarnation { .. }
        | MeterRefusal::OtherTerms
        | MeterRefusal::NotOpen
        | MeterRefusal::NoSuchReport { .. } => NotNow::NotAdmitted.into(),
    }
}

impl Inner {
    /// The epoch that may make a call now.
    fn may_call(&self, now_ms: u64) -> Result<u64, NotNow> {
        let lease = self.lease.ok_or(NotNow::NotAdmitted)?;
        let standing = self.meter.standing().ok_or(NotNow::NotAdmitted)?;
        match standing.mode {
            Mode::Frozen | Mode::WindingDown => Err(NotNow::Frozen),
            Mode::Running if now_ms >= lease.run_until_ms => Err(NotNow::LeaseOver),
            Mode::Running => Ok(lease.epoch),
        }
    }

    fn available(&self, epoch: u64) -> Result<NanoUsd, NotNow> {
        self.meter.available(epoch).map_err(|_| NotNow::NotAdmitted)
    }

    /// Writes what was decided.
    fn keep(&mut self, records: &[Record]) {
        self.journal.append(records);
        if self.journal.is_large() {
            self.compact();
        }
    }

    fn compact(&mut self) {
        self.compactions += 1;
        self.journal.compact(&Record::Compacted { meter: Box::new(self.meter.clone()) });
    }
}

#[cfg(test)]
mod tests {
    use handoff_protocol::money::PicoUsd;
    use handoff_protocol::{IncarnationId, Tier};

    use super::*;
    use crate::clock::HandClock;
    use crate::journal::tape::Tape;
    use crate::meter::{Settlement, Terms, UsageKnown};
    use crate::price::ModelPrice;
    use crate::wire::Demand;

    fn bid() -> Bid {
        let price = PicoUsd::from_pico(1_000_000);
        let price = ModelPrice {
            input: price,
            cache_read: price,
            cache_write_5m: price,
            cache_write_1h: price,
            output: price,
            attachment_tokens: None,
            max_output: None,
        };
        let demand = Demand {
            model: "m".to_owned(),
            stream: false,
            wants_usage: false,
            max_tokens: Some(100),
            choices: 1,
            extra_output: 0,
            attachments: 0,
        };
        Bid::new(&price, &demand, 100, 1, 1).expect("a bound")
    }

    async fn account(tape: &Tape) -> Arc<Account> {
        let free = PicoUsd::default();
        let tier = Tier { run_price: free, frozen_price: free, ..Tier::defaults().remove(0) };
        let terms = Terms { tier, tick_ms: 1000, grace_ms: 0, wind_down_usd: NanoUsd::ZERO };
        let (meter, opened) = Meter::open(terms);
        let journal = Journal::start(Box::new(tape.clone()));
        journal.append(&[opened]);
        let clock = Arc::new(HandClock::new("b", 0));
        let account = Arc::new(Account::new(clock, meter, journal));
        let limit = NanoUsd::from_nano(1_000_000);
        account.admit(2, IncarnationId::from_u128(2), limit, 1000, "b").await.expect("admitted");
        account
    }

    fn replayed(tape: &Tape) -> Meter {
        Meter::replay(&tape.records()).expect("our own journal").expect("opened")
    }

    /// H-77
    #[tokio::test]
    async fn no_call_leaves_while_the_disk_is_full_and_nothing_is_lost() {
        let tape = Tape::default();
        let account = account(&tape).await;
        let (first, _) = account.hold(CallId::from_u128(1), &bid()).await.expect("held");
        tape.fill(true);
        let refused = account.hold(CallId::from_u128(2), &bid()).await.map(|(_, grant)| grant);
        assert_eq!(refused, Err(NoHold::Journal(JournalError::Full)));
        assert_eq!(account.lock().meter.epochs()[&2].open.len(), 1, "the refused hold is gone");
        let cost_usd = NanoUsd::from_nano(5);
        let usage = UsageKnown::Reported;
        first.settle(Settlement { cost_usd, tokens: Default::default(), egress_bytes: 1, usage });
        tape.fill(false);
        account.flush().await;
        assert_eq!(replayed(&tape), account.lock().meter, "what was settled meanwhile is written after all");
        assert_eq!(replayed(&tape).epochs()[&2].model_usd, cost_usd);
        assert!(account.hold(CallId::from_u128(3), &bid()).await.is_ok());
    }

    /// Lets a future begin.
    async fn begin<F: Future>(future: &mut std::pin::Pin<&mut F>) -> bool {
        std::future::poll_fn(|cx| std::task::Poll::Ready(future.as_mut().poll(cx).is_ready())).await
    }

    /// H-78: its request never left, so it is released, whatever was written of it meanwhile.
    #[tokio::test]
    async fn a_refused_hold_that_a_compaction_has_seen_is_released_in_the_journal_too() {
        let tape = Tape::default();
        let account = account(&tape).await;
        tape.fill(true);
        let bid = bid();
        let mut held = std::pin::pin!(account.hold(CallId::from_u128(1), &bid));
        assert!(!begin(&mut held).await);
        // The disk has refused, and whoever waits has not heard it yet.
        while account.lock().journal.refusal().is_none() {
            tokio::task::yield_now().await;
        }
        account.lock().compact();
        tape.fill(false);
        let refused = held.await.map(|(_, grant)| grant);
        assert_eq!(refused, Err(NoHold::Journal(JournalError::Full)));
        account.flush().await;
        let mut meter = replayed(&tape);
        assert_eq!(meter, account.lock().meter);
        assert_eq!(meter.recover(), [], "a restart charges nothing");
    }

    /// H-77: who gets a hold may send, so nobody gets one before the disk has it.
    #[tokio::test]
    async fn nobody_has_a_hold_before_it_is_durable() {
        let tape = Tape::default();
        let account = account(&tape).await;
        let bid = bid();
        let mut held = std::pin::pin!(account.hold(CallId::from_u128(1), &bid));
        let holds = |tape: &Tape| {
            tape.records().into_iter().filter(|record| matches!(record, Record::Held { .. })).count()
        };
        tape.hold_up(true);
        assert!(!begin(&mut held).await);
        // The disk is at it, for as long as it likes.
        while !tape.is_held_up() {
            tokio::task::yield_now().await;
        }
        assert!(!begin(&mut held).await);
        assert_eq!(holds(&tape), 0);
        tape.hold_up(false);
        let (hold, _) = held.await.expect("held");
        assert_eq!(holds(&tape), 1);
        hold.release();
    }

    #[tokio::test]
    async fn a_hold_ends_with_its_owner() {
        let tape = Tape::default();
        let account = account(&tape).await;
        let (unsent, _) = account.hold(CallId::from_u128(1), &bid()).await.expect("held");
        let (mut sent, grant) = account.hold(CallId::from_u128(2), &bid()).await.expect("held");
        sent.sent(9);
        drop((unsent, sent));
        let meter = account.lock().meter.clone();
        let epoch = &meter.epochs()[&2];
        assert!(epoch.open.is_empty());
        assert_eq!(epoch.model_usd, grant.amount_usd, "only the one that may have arrived is charged");
        account.flush().await;
        assert_eq!(replayed(&tape), meter);
    }

    #[tokio::test]
    async fn a_lease_that_ends_while_the_hold_is_written_gives_it_back() {
        let tape = Tape::default();
        let account = account(&tape).await;
        account.stand(Mode::Frozen).await.expect("it stands");
        let refused = account.hold(CallId::from_u128(1), &bid()).await.map(|(_, grant)| grant);
        assert_eq!(refused, Err(NotNow::Frozen.into()));
        account.stand(Mode::Running).await.expect("it runs");
        // Frozen between the decision and the answer of the disk.
        let bid = bid();
        let held = account.hold(CallId::from_u128(2), &bid);
        let frozen = async { account.stand(Mode::Frozen).await };
        let (held, frozen) = tokio::join!(held, frozen);
        frozen.expect("it stands");
        assert_eq!(held.map(|(_, grant)| grant), Err(NotNow::Frozen.into()));
        assert!(account.lock().meter.epochs()[&2].open.is_empty());
    }
}
