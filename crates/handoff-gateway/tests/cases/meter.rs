//! The pure meter: given a state, when a command comes, then these records; and properties over any sequence.

use handoff_gateway::meter::{
    Meter, MeterRefusal, Mode, Moment, Record, Settlement, Terms, UsageKnown, report_digest,
};
use handoff_protocol::totals::Tokens;
use handoff_protocol::{CallId, IncarnationId, NanoUsd};
use proptest::prelude::*;

use crate::world::{tier, usd};

const UNTIL: u64 = u64::MAX;

fn at(boot_ms: u64) -> Moment<'static> {
    Moment { boot_id: "b", boot_ms }
}

fn terms(run: u64) -> Terms {
    Terms { tier: tier(run, run / 10), tick_ms: 1000, grace_ms: 5_000, wind_down_usd: usd("0.0004") }
}

fn incarnation(n: u64) -> IncarnationId {
    IncarnationId::from_u128(u128::from(n))
}

fn call(n: u64) -> CallId {
    CallId::from_u128(u128::from(n))
}

/// An admitted epoch 2.
fn given(run: u64, limit: &str) -> Meter {
    let (mut meter, _) = Meter::open(terms(run));
    meter.admit(2, incarnation(2), usd(limit), at(0)).expect("admitted");
    meter
}

fn used(cost_usd: NanoUsd) -> Settlement {
    Settlement { cost_usd, tokens: Tokens::default(), egress_bytes: 1, usage: UsageKnown::Reported }
}

/// H-78
#[test]
fn a_hold_is_settled_exactly_once() {
    let mut meter = given(0, "1");
    meter.hold(2, call(1), usd("0.4")).expect("it fits");
    meter.settle(2, call(1), used(usd("0.1"))).expect("open");
    assert_eq!(meter.settle(2, call(1), used(usd("0.1"))), Err(MeterRefusal::NotOpen));
    assert_eq!(meter.release(2, call(1)), Err(MeterRefusal::NotOpen));
    assert_eq!(meter.lose(2, call(1), 0), Err(MeterRefusal::NotOpen));
    assert_eq!(meter.epochs()[&2].model_usd, usd("0.1"));
}

#[test]
fn what_does_not_fit_is_refused_and_changes_nothing() {
    let mut meter = given(0, "1");
    meter.hold(2, call(1), usd("0.7")).expect("it fits");
    let before = meter.clone();
    let refused = MeterRefusal::Exceeded { required: usd("0.300000001"), available: usd("0.3") };
    assert_eq!(meter.hold(2, call(2), usd("0.300000001")), Err(refused));
    assert_eq!(meter, before);
    assert!(meter.hold(2, call(2), usd("0.3")).is_ok());
}

#[test]
fn an_older_epoch_closes_when_a_newer_one_is_admitted() {
    let mut meter = given(0, "1");
    meter.hold(2, call(1), usd("0.4")).expect("it fits");
    meter.admit(4, incarnation(4), usd("1"), at(10)).expect("admitted");
    assert_eq!(
        meter.hold(2, call(2), usd("0.1")),
        Err(MeterRefusal::StaleEpoch { asked: 2, present: Some(4) })
    );
    assert!(meter.admit(3, incarnation(3), usd("1"), at(10)).is_err(), "older than the newest");
    assert!(meter.admit(4, incarnation(5), usd("1"), at(10)).is_err(), "another incarnation");
    assert!(meter.seal().is_empty(), "its call is open");
    meter.settle(2, call(1), used(usd("0.4"))).expect("open");
    let sealed = meter.seal();
    let [Record::Sealed { usage }] = sealed.as_slice() else { panic!("{sealed:?}") };
    assert!(usage.closing && usage.epoch == 2 && usage.totals.model_usd == usd("0.4"));
    assert!(meter.seal().is_empty(), "nothing comes after a closing report");
}

#[test]
fn reports_form_a_chain_and_never_repeat_themselves() {
    let mut meter = given(0, "1");
    assert!(meter.seal().is_empty(), "nothing was used");
    meter.hold(2, call(1), usd("0.4")).expect("it fits");
    assert!(meter.seal().is_empty(), "a hold is no spend");
    meter.settle(2, call(1), used(usd("0.4"))).expect("open");
    let sealed = meter.seal();
    let [Record::Sealed { usage: first }] = sealed.as_slice() else { panic!("{sealed:?}") };
    assert!(meter.seal().is_empty());
    meter.acknowledge(2, 1).expect("there is one");
    assert!(meter.seal().is_empty(), "nothing new");
    meter.begin_close(2);
    let sealed = meter.seal();
    let [Record::Sealed { usage: last }] = sealed.as_slice() else { panic!("{sealed:?}") };
    assert_eq!((last.seq, last.prev_hash, last.closing), (2, Some(report_digest(first)), true));
}

#[test]
fn an_epoch_that_never_ran_here_closes_with_nothing_used() {
    let mut meter = given(1_000_000, "1");
    meter.begin_close(5);
    assert_eq!(meter.live(), Some(2), "the one that runs goes on");
    let sealed = meter.seal();
    let [Record::Sealed { usage }] = sealed.as_slice() else { panic!("{sealed:?}") };
    assert_eq!((usage.epoch, usage.seq, usage.closing), (5, 1, true));
    assert_eq!(usage.totals, Default::default());
    assert!(meter.begin_close(5).is_empty());
    assert!(meter.admit(5, incarnation(5), usd("1"), at(0)).is_err(), "it is over");
}

#[test]
fn a_closing_report_does_not_wait_for_the_one_before_it() {
    let mut meter = given(0, "1");
    meter.hold(2, call(1), usd("0.4")).expect("it fits");
    meter.settle(2, call(1), used(usd("0.4"))).expect("open");
    meter.seal();
    meter.begin_close(2);
    meter.seal();
    let waiting: Vec<u64> = meter.epochs()[&2].unacknowledged.iter().map(|report| report.seq).collect();
    assert_eq!(waiting, [1, 2]);
}

#[test]
fn a_long_absence_is_paid_as_far_as_the_limit_reaches() {
    // One micro-dollar per millisecond, $0.0025 in all.
    let mut meter = given(1_000_000, "0.0025");
    meter.elapse(10_000, UNTIL);
    let epoch = &meter.epochs()[&2];
    assert_eq!((epoch.run_ms, epoch.charged_ms()), (10_000, 2_500));
    assert!(epoch.exhausted);
    assert_eq!(epoch.spent(&meter.terms().tier), usd("0.0025"));
    // A higher limit pays the rest, and the next tick.
    meter.raise_limit(2, usd("1")).expect("known");
    let epoch = &meter.epochs()[&2];
    assert_eq!(epoch.charged_ms(), 10_000);
    assert!(!epoch.exhausted);
}

#[test]
fn another_boot_proves_nothing_about_the_time_between() {
    let mut meter = given(1_000_000, "1");
    meter.elapse(100, UNTIL);
    let later = Moment { boot_id: "c", boot_ms: 50_000 };
    meter.admit(2, incarnation(2), usd("1"), later).expect("adopted");
    assert_eq!(meter.epochs()[&2].run_ms, 100);
    meter.elapse(50_200, UNTIL);
    assert_eq!(meter.epochs()[&2].run_ms, 300);
}

#[test]
fn the_wind_down_never_costs_more_than_its_reserve_over_all_epochs() {
    // $0.0001 per frozen second, 5 s of grace per epoch, $0.0004 in all.
    let mut meter = given(1_000_000, "1");
    meter.stand(Mode::WindingDown, at(0), UNTIL);
    meter.elapse(3_000, UNTIL);
    assert_eq!(meter.epochs()[&2].wind_down_usd, usd("0.0003"));
    meter.admit(3, incarnation(3), usd("1"), at(3_000)).expect("admitted");
    meter.stand(Mode::WindingDown, at(3_000), UNTIL);
    meter.elapse(9_000, UNTIL);
    assert_eq!(meter.epochs()[&3].wind_down_usd, usd("0.0001"));
    assert_eq!(meter.epochs()[&3].wind_down_ms, 5_000);
}

#[test]
fn that_a_raised_limit_does_not_fit_a_tick_either_is_news() {
    let mut meter = given(1_000_000, "0");
    let sealed = meter.seal();
    assert!(matches!(sealed.as_slice(), [Record::Sealed { usage }] if usage.limit_usd == Some(usd("0"))));
    meter.acknowledge(2, 1).expect("there is one");
    assert!(meter.seal().is_empty());
    meter.raise_limit(2, usd("0.0009")).expect("known");
    let sealed = meter.seal();
    let [Record::Sealed { usage }] = sealed.as_slice() else { panic!("{sealed:?}") };
    assert_eq!((usage.seq, usage.exhausted, usage.limit_usd), (2, true, Some(usd("0.0009"))));
}

#[test]
fn free_compute_is_never_exhausted() {
    let mut meter = given(0, "0");
    meter.elapse(1_000_000, UNTIL);
    assert!(!meter.epochs()[&2].exhausted);
}

#[test]
fn a_budget_of_zero_is_exhausted_at_once() {
    let mut meter = given(1_000_000, "0");
    assert!(meter.epochs()[&2].exhausted);
    let sealed = meter.seal();
    assert!(matches!(sealed.as_slice(), [Record::Sealed { usage }] if usage.exhausted));
}

#[derive(Debug, Clone)]
enum Step {
    Hold(i64),
    Settle(usize, i64),
    Release(usize),
    Lose(usize),
    Pass(u64),
    Stand(Mode),
    Limit(i64),
    Admit,
    Close,
    CloseUnused,
    Seal,
    Acknowledge(u64),
    Recover,
}

fn step() -> impl Strategy<Value = Step> {
    let mode = prop::sample::select(vec![Mode::Running, Mode::Frozen, Mode::WindingDown]);
    prop_oneof![
        4 => (0..800_000i64).prop_map(Step::Hold),
        4 => (0..8usize, 0..900_000i64).prop_map(|(which, cost)| Step::Settle(which, cost)),
        1 => (0..8usize).prop_map(Step::Release),
        1 => (0..8usize).prop_map(Step::Lose),
        4 => (1..3_000u64).prop_map(Step::Pass),
        2 => mode.prop_map(Step::Stand),
        2 => (0..20_000_000i64).prop_map(Step::Limit),
        1 => Just(Step::Admit),
        1 => Just(Step::Close),
        1 => Just(Step::CloseUnused),
        3 => Just(Step::Seal),
        2 => (0..5u64).prop_map(Step::Acknowledge),
        1 => Just(Step::Recover),
    ]
}

/// The meter, its journal, and what it must add up to.
struct Ledger {
    meter: Meter,
    journal: Vec<Record>,
    now: u64,
    epoch: u64,
    calls: u64,
    open: Vec<(u64, CallId, NanoUsd)>,
}

impl Ledger {
    fn new() -> Self {
        let (meter, opened) = Meter::open(terms(1_001));
        let mut ledger = Self { meter, journal: vec![opened], now: 0, epoch: 2, calls: 0, open: Vec::new() };
        ledger.keep(|meter, _| meter.admit(2, incarnation(2), NanoUsd::from_nano(5_000_000), at(0)));
        ledger
    }

    fn keep(&mut self, act: impl FnOnce(&mut Meter, u64) -> Result<Vec<Record>, MeterRefusal>) -> bool {
        match act(&mut self.meter, self.now) {
            Ok(records) => {
                self.journal.extend(records);
                true
            }
            Err(_) => false,
        }
    }

    fn take(&mut self, which: usize) -> Option<(u64, CallId, NanoUsd)> {
        (!self.open.is_empty()).then(|| self.open.remove(which % self.open.len()))
    }

    fn step(&mut self, step: &Step) {
        let epoch = self.epoch;
        match step {
            Step::Hold(nano) => {
                self.calls += 1;
                let (id, amount) = (call(self.calls), NanoUsd::from_nano(*nano));
                if self.keep(|meter, _| meter.hold(epoch, id, amount)) {
                    self.open.push((epoch, id, amount));
                }
            }
            Step::Settle(which, nano) => {
                if let Some((epoch, id, _)) = self.take(*which) {
                    assert!(self.keep(|meter, _| meter.settle(epoch, id, used(NanoUsd::from_nano(*nano)))));
                }
            }
            Step::Release(which) => {
                if let Some((epoch, id, _)) = self.take(*which) {
                    assert!(self.keep(|meter, _| meter.release(epoch, id)));
                }
            }
            Step::Lose(which) => {
                if let Some((epoch, id, _)) = self.take(*which) {
                    assert!(self.keep(|meter, _| meter.lose(epoch, id, 3)));
                }
            }
            other => self.step_in_time(other),
        }
    }

    fn step_in_time(&mut self, step: &Step) {
        let epoch = self.epoch;
        match step {
            Step::Hold(_) | Step::Settle(..) | Step::Release(_) | Step::Lose(_) => {}
            Step::Pass(ms) => {
                self.now += ms;
                self.keep(|meter, now| Ok(meter.elapse(now, UNTIL)));
            }
            Step::Stand(mode) => {
                self.keep(|meter, now| Ok(meter.stand(*mode, at(now), UNTIL)));
            }
            Step::Limit(nano) => {
                self.keep(|meter, _| meter.raise_limit(epoch, NanoUsd::from_nano(*nano)));
            }
            Step::Admit => self.admit_next(),
            Step::Close => {
                self.keep(|meter, _| Ok(meter.begin_close(epoch)));
            }
            Step::CloseUnused => {
                // A claim whose answer was lost: the next one has a higher number.
                self.epoch += 1;
                let unused = self.epoch;
                self.keep(|meter, _| Ok(meter.begin_close(unused)));
                self.admit_next();
            }
            Step::Seal => {
                self.keep(|meter, _| Ok(meter.seal()));
            }
            Step::Acknowledge(seq) => {
                self.keep(|meter, _| meter.acknowledge(epoch, *seq));
            }
            Step::Recover => {
                self.open.clear();
                self.keep(|meter, _| Ok(meter.recover()));
            }
        }
    }

    fn admit_next(&mut self) {
        self.epoch += 1;
        let next = self.epoch;
        let limit = NanoUsd::from_nano(3_000_000);
        self.keep(|meter, now| meter.admit(next, incarnation(next), limit, at(now)));
    }
}

/// What the journal's settlements and losses add up to.
fn charged(journal: &[Record], number: u64) -> NanoUsd {
    let mut holds = std::collections::BTreeMap::new();
    let mut sum = NanoUsd::ZERO;
    for record in journal {
        match record {
            Record::Held { epoch, call_id, amount_usd } if *epoch == number => {
                holds.insert(*call_id, *amount_usd);
            }
            Record::Settled { epoch, cost_usd, .. } if *epoch == number => sum = sum.plus(*cost_usd),
            Record::Indeterminate { epoch, call_id, .. } if *epoch == number => {
                sum = sum.plus(holds[call_id])
            }
            _ => {}
        }
    }
    sum
}

proptest! {
    #[test]
    fn money_is_conserved_whatever_happens(steps in prop::collection::vec(step(), 0..120)) {
        let mut ledger = Ledger::new();
        let mut before = ledger.meter.clone();
        for step in &steps {
            ledger.step(step);
            let tier = &ledger.meter.terms().tier;
            for (number, epoch) in ledger.meter.epochs() {
                prop_assert!(
                    epoch.spent(tier).plus(epoch.held(tier)) <= epoch.limit_usd,
                    "{number} after {step:?}: {epoch:?}"
                );
                if let Some(earlier) = before.epochs().get(number) {
                    prop_assert!(epoch.totals(tier).covers(&earlier.totals(tier)), "totals never fall");
                    prop_assert!(epoch.last_seq - earlier.last_seq <= 1, "numbers rise by one");
                }
                prop_assert_eq!(epoch.model_usd, charged(&ledger.journal, *number));
            }
            before = ledger.meter.clone();
        }
        let wind_down: NanoUsd = ledger.meter.epochs().values().map(|epoch| epoch.wind_down_usd).sum();
        prop_assert!(wind_down <= ledger.meter.terms().wind_down_usd);
    }

    #[test]
    fn replaying_the_journal_gives_the_live_state(steps in prop::collection::vec(step(), 0..80), cut in 0..80usize) {
        let mut ledger = Ledger::new();
        for step in &steps {
            ledger.step(step);
        }
        let replayed = Meter::replay(&ledger.journal).expect("our own journal");
        prop_assert_eq!(replayed.as_ref(), Some(&ledger.meter));
        // The same through JSON, and with the beginning compacted.
        let cut = 1 + cut % ledger.journal.len();
        let begun = Meter::replay(&ledger.journal[..cut]).expect("a beginning").expect("opened");
        let mut shorter = vec![Record::Compacted { meter: Box::new(begun) }];
        shorter.extend_from_slice(&ledger.journal[cut..]);
        let text = serde_json::to_string(&shorter).expect("plain data");
        let shorter: Vec<Record> = serde_json::from_str(&text).expect("the same");
        prop_assert_eq!(Meter::replay(&shorter).expect("our own journal"), Some(ledger.meter));
    }

    #[test]
    fn a_number_has_one_body_and_names_the_one_before(steps in prop::collection::vec(step(), 0..120)) {
        let mut ledger = Ledger::new();
        for step in &steps {
            ledger.step(step);
        }
        let mut last = std::collections::BTreeMap::new();
        for record in &ledger.journal {
            let Record::Sealed { usage } = record else { continue };
            let before: Option<handoff_protocol::node::Usage> = last.insert(usage.epoch, *usage);
            prop_assert_eq!(usage.seq, before.map_or(1, |before| before.seq + 1));
            prop_assert_eq!(usage.prev_hash, before.as_ref().map(report_digest));
            if let Some(before) = before {
                prop_assert!(usage.totals.covers(&before.totals));
                prop_assert!(!before.closing, "nothing comes after a closing report");
                let said = |usage: &handoff_protocol::node::Usage| {
                    (usage.totals, usage.closing, usage.exhausted, usage.limit_usd)
                };
                prop_assert_ne!(said(usage), said(&before), "a number rises only when something changed");
            }
        }
    }
}
