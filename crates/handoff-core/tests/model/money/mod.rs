//! Money: what meters spend unheard, what the control plane believes, and that the budget holds.
//!
//! One meter for each epoch, with a journal that outlives it; reports that are late, repeated, overtaken or
//! unanswered; crashes with calls under way, which the provider bills at their worst; old incarnations that run
//! on; a raise, an increment, a carved successor, a write-off, an end.

mod asks;

use std::sync::Arc;

use handoff_core::{Reply, Rule};
use handoff_protocol::Status;
use handoff_protocol::node::UsageCommand;
use stateright::{Model, Property};

use crate::plane::Plane;
pub(crate) use asks::Ask;
use asks::{CALL, EPOCHS, Money, RESERVE, Report, TICK, View};

/// How much may happen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) budget: u8,
    pub(crate) epochs: u8,
    /// Which orders may come, each once.
    pub(crate) orders: &'static [Ask],
    /// How many messages may be under way at once.
    pub(crate) net: usize,
}

/// What a meter does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Nothing.
    None,
    /// It says that it is exhausted when a call was refused, though a tick would fit.
    RefusedCallIsExhaustion,
    /// After a crash it releases the holds that were open.
    ReleasesHolds,
    /// It closes while a hold is open.
    ClosesTooEarly,
}

/// The model.
pub(crate) struct MoneyModel {
    pub(crate) plane: Arc<Plane<Money>>,
    bounds: Bounds,
    fault: Fault,
}

/// What a meter does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Run {
    NotYet,
    /// It admits ticks and calls.
    Open,
    /// It stands still until it is told otherwise.
    Frozen,
    /// It admits nothing any more, and closes when no hold is open.
    Ending,
}

/// One epoch at its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Meter {
    run: Run,
    limit: u8,
    /// Settled, by its journal.
    spent: u8,
    /// Calls under way, each held at its most.
    open: u8,
    /// What it really costs.
    real: u8,
    /// The last report, and whether it was answered.
    sent: Option<Report>,
    answered: bool,
}

/// A message under way: a report, or its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Message {
    Reported(Report),
    Answered { epoch: u8, seq: u8, limit: u8, told: Told },
}

/// [`UsageCommand`], in an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Told {
    Continue,
    Wait,
    Insolvent,
    Terminate,
}

const NET: usize = 2;

/// Everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Books {
    core: u32,
    meters: [Meter; EPOCHS],
    net: [Option<Message>; NET],
    orders: Orders,
    /// The closing report of an epoch arrived.
    closed: [bool; EPOCHS],
    /// A transfer became insolvent while a tick still fitted.
    early: bool,
}

/// What was ordered already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Orders {
    /// By their place among those that may come.
    given: u8,
    /// It waited for its five minutes.
    waited: bool,
}

/// How a report and its answer travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Way {
    Through,
    Late,
    AnswerLate,
    AnswerLost,
    Twice,
}

/// A step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Step {
    Tick(u8),
    Call(u8),
    Settle(u8, u8),
    Crash(u8),
    /// A node learns that an epoch is over, or that it may go on.
    Stop(u8),
    Thaw(u8),
    Report(u8, Way),
    SendAgain(u8),
    Deliver(u8),
    Lose(u8),
    /// Another incarnation; the former one runs on unheard, or was ended.
    NextEpoch {
        ghost: bool,
    },
    Order(Ask),
}

impl MoneyModel {
    pub(crate) fn new(bounds: Bounds, without: Option<Rule>, fault: Fault) -> Self {
        Self { plane: Arc::new(Plane::new(Money, Money::policy(), without)), bounds, fault }
    }

    fn view(&self, books: &Books) -> View {
        self.plane.view(books.core)
    }

    fn meter_steps(&self, books: &Books, number: u8, steps: &mut Vec<Step>) {
        let meter = books.meters[usize::from(number)];
        let view = self.view(books);
        let running = meter.run == Run::Open;
        let held = meter.spent + meter.open * CALL;
        if running && held + TICK <= meter.limit {
            steps.push(Step::Tick(number));
        }
        if running && held + CALL <= meter.limit {
            steps.push(Step::Call(number));
        }
        if meter.run == Run::NotYet {
            return;
        }
        if meter.open > 0 {
            steps.extend((1..=CALL).map(|cost| Step::Settle(number, cost)));
        }
        if meter.run != Run::Ending || meter.open > 0 {
            steps.push(Step::Crash(number));
        }
        let over = !matches!(view.status, Status::Active | Status::Insolvent) || view.epoch != number;
        if over && meter.run != Run::Ending {
            steps.push(Step::Stop(number));
        }
        if meter.run == Run::Frozen && view.status == Status::Active && view.epoch == number && !view.waiting
        {
            steps.push(Step::Thaw(number));
        }
        if meter.sent.is_none_or(|_| meter.answered) && self.report(books, number).is_some() {
            steps.extend(self.ways(books).map(|way| Step::Report(number, way)));
        }
        let under_way =
            |message: &Message| matches!(message, Message::Reported(report) if report.epoch == number);
        if meter.sent.is_some() && !meter.answered && !books.net.iter().flatten().any(under_way) {
            steps.push(Step::SendAgain(number));
        }
    }

    fn ways(&self, books: &Books) -> impl Iterator<Item = Way> + use<> {
        let room = books.net.iter().flatten().count() < self.bounds.net.min(NET);
        let all = [Way::Through, Way::AnswerLost, Way::Late, Way::AnswerLate, Way::Twice];
        let count = if room { all.len() } else { 2 };
        all.into_iter().take(count)
    }

    /// The next report of an epoch, if there is news.
    fn report(&self, books: &Books, number: u8) -> Option<Report> {
        let meter = books.meters[usize::from(number)];
        let last = meter.sent;
        let seq = last.map_or(0, |last| last.seq) + 1;
        if last.is_some_and(|last| last.closing) {
            return None;
        }
        let idle = meter.open == 0 || self.fault == Fault::ClosesTooEarly;
        let closing = meter.run == Run::Ending && idle;
        let stands = matches!(meter.run, Run::Open | Run::Frozen);
        let no_tick = meter.spent + TICK > meter.limit && meter.open == 0;
        let no_call = meter.spent + (meter.open + 1) * CALL > meter.limit;
        let refused = self.fault == Fault::RefusedCallIsExhaustion && no_call;
        let exhausted = stands && (no_tick || refused);
        let (spent, limit) = (meter.spent, meter.limit);
        let next = Report { epoch: number, seq, spent, closing, exhausted, limit };
        let says = |report: Report| (report.spent, report.closing, report.exhausted, report.limit);
        // While it waits it asks again.
        let asks = exhausted && meter.run == Run::Frozen;
        let news = last.is_none_or(|last| says(last) != says(next));
        (news || asks).then_some(next)
    }

    fn order_steps(&self, books: &Books, steps: &mut Vec<Step>) {
        let (view, orders) = (self.view(books), books.orders);
        if !matches!(view.status, Status::Active | Status::Insolvent) {
            return;
        }
        steps.push(Step::Order(Ask::Terminate));
        if view.epoch + 1 < self.bounds.epochs && view.status == Status::Active {
            steps.extend([Step::NextEpoch { ghost: false }, Step::NextEpoch { ghost: true }]);
        }
        if view.waiting && !orders.waited {
            steps.push(Step::Order(Ask::WaitEnds));
        }
        if view.successor {
            steps.push(Step::Order(Ask::GiveBack));
        }
        for (place, ask) in self.bounds.orders.iter().enumerate() {
            if orders.given & (1 << place) == 0 {
                steps.push(Step::Order(*ask));
            }
        }
    }

    fn take(&self, books: &mut Books, step: Step) -> Option<()> {
        match step {
            Step::Tick(number) => {
                let meter = books.meter(number);
                (meter.spent, meter.real) = (meter.spent + TICK, meter.real + TICK);
            }
            Step::Call(number) => books.meter(number).open += 1,
            Step::Settle(number, cost) => {
                let meter = books.meter(number);
                (meter.open, meter.spent, meter.real) =
                    (meter.open - 1, meter.spent + cost, meter.real + cost);
            }
            Step::Crash(number) => {
                let charged = if self.fault == Fault::ReleasesHolds { 0 } else { CALL };
                let meter = books.meter(number);
                // At worst the provider bills all that was asked for, and that is what the journal charges.
                meter.real += meter.open * CALL;
                meter.spent += meter.open * charged;
                (meter.open, meter.run) = (0, Run::Ending);
            }
            Step::Stop(number) => books.meter(number).run = Run::Ending,
            Step::Thaw(number) => books.meter(number).run = Run::Open,
            Step::Report(number, way) => {
                let report = self.report(books, number)?;
                let meter = books.meter(number);
                (meter.sent, meter.answered) = (Some(report), false);
                self.travel(books, report, way)?;
            }
            Step::SendAgain(number) => {
                let report = books.meters[usize::from(number)].sent?;
                self.travel(books, report, Way::Through)?;
            }
            Step::Deliver(place) => match books.pick(place)? {
                Message::Reported(report) => self.travel(books, report, Way::Through)?,
                answer @ Message::Answered { .. } => self.answered(books, answer),
            },
            Step::Lose(place) => {
                books.pick(place)?;
            }
            Step::NextEpoch { ghost } => self.next_epoch(books, ghost)?,
            Step::Order(ask) => self.order(books, ask)?,
        }
        Some(())
    }

    fn travel(&self, books: &mut Books, report: Report, way: Way) -> Option<()> {
        if way == Way::Late {
            return books.keep(Message::Reported(report));
        }
        let answer = self.arrive(books, report)?;
        match way {
            Way::Through => self.answered(books, answer),
            Way::AnswerLate => books.keep(answer)?,
            Way::AnswerLost => {}
            Way::Twice => {
                self.answered(books, answer);
                books.keep(Message::Reported(report))?;
            }
            Way::Late => unreachable!("it has not arrived"),
        }
        Some(())
    }

    /// A report arrives; none where it is refused, which changes nothing.
    fn arrive(&self, books: &mut Books, report: Report) -> Option<Message> {
        let before = self.view(books);
        let answer = self.plane.ask(books.core, Ask::Report(report));
        let Ok(Reply::Usage { accepted_seq, limit, command }) = answer.said else { return None };
        books.core = answer.core;
        books.closed[usize::from(report.epoch)] |= report.closing;
        self.note_insolvency(books, &before);
        let limit = u8::try_from(limit.nano()).expect("amounts are small");
        let seq = u8::try_from(accepted_seq).expect("reports are few");
        Some(Message::Answered { epoch: report.epoch, seq, limit, told: told(command) })
    }

    fn answered(&self, books: &mut Books, answer: Message) {
        let Message::Answered { epoch, seq, limit, told } = answer else { return };
        let meter = books.meter(epoch);
        meter.limit = meter.limit.max(limit);
        let of_last = meter.sent.is_some_and(|last| last.seq <= seq);
        meter.answered |= of_last;
        // An older answer's command is out of date; its limit is not.
        if !of_last {
            return;
        }
        meter.run = match (told, meter.run) {
            (Told::Continue, Run::Frozen) => Run::Open,
            (Told::Wait | Told::Insolvent, Run::Open) => Run::Frozen,
            (Told::Terminate, Run::Open | Run::Frozen) => Run::Ending,
            (_, run) => run,
        };
    }

    fn next_epoch(&self, books: &mut Books, ghost: bool) -> Option<()> {
        let former = self.view(books).epoch;
        let answer = self.plane.ask(books.core, Ask::NextEpoch);
        let Ok(Reply::Claimed { limit, .. }) = answer.said else { return None };
        books.core = answer.core;
        let meter = books.meter(former);
        if !ghost && matches!(meter.run, Run::Open | Run::Frozen) {
            meter.run = Run::Ending;
        }
        let limit = u8::try_from(limit.nano()).expect("amounts are small");
        let next = books.meter(former + 1);
        (next.run, next.limit) = (Run::Open, limit);
        Some(())
    }

    fn order(&self, books: &mut Books, ask: Ask) -> Option<()> {
        let before = self.view(books);
        let answer = self.plane.ask(books.core, ask);
        answer.said.ok()?;
        books.core = answer.core;
        let place = self.bounds.orders.iter().position(|order| *order == ask);
        books.orders.given |= place.map_or(0, |place| 1 << place);
        books.orders.waited |= ask == Ask::WaitEnds;
        self.note_insolvency(books, &before);
        Some(())
    }

    /// A transfer became insolvent: did a tick still fit?
    fn note_insolvency(&self, books: &mut Books, before: &View) {
        let after = self.view(books);
        let entered = before.status == Status::Active && after.status == Status::Insolvent;
        let cost = |number: usize| {
            let (account, meter) = (after.accounts[number], books.meters[number]);
            let real = meter.real + meter.open;
            // What was written off is given up, spent or not.
            if account.closed == Some(false) { real.max(account.limit) } else { real }
        };
        let real: u8 = (0..EPOCHS).map(cost).sum();
        let fits = real + after.recorded + RESERVE + TICK <= after.allocated;
        // Five minutes were waited for an epoch that may still give money back.
        books.early |= entered && fits && !books.orders.waited;
    }
}

impl MoneyModel {
    /// Forgets what nothing depends on any more: messages that change nothing, and the numbers of reports.
    fn forget(&self, books: &mut Books) {
        let view = self.view(books);
        let is_inert = |message: &Message| match message {
            Message::Reported(report) => {
                let (account, meter) =
                    (view.accounts[usize::from(report.epoch)], books.meters[usize::from(report.epoch)]);
                report.seq < account.seq || (report.seq == account.seq && meter.answered)
            }
            Message::Answered { epoch, seq, limit, .. } => {
                let meter = books.meters[usize::from(*epoch)];
                let later = meter.sent.is_some_and(|last| last.seq > *seq);
                *limit <= meter.limit && (later || meter.answered)
            }
        };
        books.net = books.net.map(|place| place.filter(|message| !is_inert(message)));
        books.sort();
        for number in 0..self.bounds.epochs {
            let under_way = books.net.iter().flatten().any(|message| message.epoch() == number);
            let meter = &mut books.meters[usize::from(number)];
            let settled = |sent: &&mut Report| meter.answered && !under_way && sent.seq > 1;
            if let Some(sent) = meter.sent.as_mut().filter(settled) {
                sent.seq = 1;
                books.core = self.plane.ask(books.core, Ask::Forget { epoch: number }).core;
            }
        }
    }
}

impl Message {
    fn epoch(self) -> u8 {
        match self {
            Self::Reported(report) => report.epoch,
            Self::Answered { epoch, .. } => epoch,
        }
    }
}

impl Books {
    fn sort(&mut self) {
        self.net.sort_unstable_by_key(|place| (place.is_none(), *place));
    }

    fn meter(&mut self, number: u8) -> &mut Meter {
        &mut self.meters[usize::from(number)]
    }

    fn keep(&mut self, message: Message) -> Option<()> {
        let free = self.net.iter_mut().find(|place| place.is_none())?;
        *free = Some(message);
        self.sort();
        Some(())
    }

    fn pick(&mut self, place: u8) -> Option<Message> {
        let message = self.net.get_mut(usize::from(place))?.take();
        self.sort();
        message
    }

    /// What all epochs really cost, with calls under way at their most.
    fn real(&self) -> u8 {
        self.meters.iter().map(|meter| meter.real + meter.open * CALL).sum()
    }
}

fn told(command: UsageCommand) -> Told {
    match command {
        UsageCommand::Continue => Told::Continue,
        UsageCommand::Wait => Told::Wait,
        UsageCommand::Insolvent => Told::Insolvent,
        UsageCommand::Terminate => Told::Terminate,
    }
}

impl Model for MoneyModel {
    type State = Books;
    type Action = Step;

    fn init_states(&self) -> Vec<Books> {
        let core = Money::beginning(&self.plane, self.bounds.budget);
        let limit = self.plane.view(core).accounts[0].limit;
        let meter =
            Meter { run: Run::NotYet, limit: 0, spent: 0, open: 0, real: 0, sent: None, answered: true };
        let mut meters = [meter; EPOCHS];
        meters[0] = Meter { run: Run::Open, limit, ..meter };
        vec![Books {
            core,
            meters,
            net: [None; NET],
            orders: Orders::default(),
            closed: [false; EPOCHS],
            early: false,
        }]
    }

    fn actions(&self, books: &Books, steps: &mut Vec<Step>) {
        for number in 0..self.bounds.epochs {
            self.meter_steps(books, number, steps);
        }
        self.order_steps(books, steps);
        for (place, _) in (0u8..).zip(books.net.iter().flatten()) {
            steps.extend([Step::Deliver(place), Step::Lose(place)]);
        }
    }

    fn next_state(&self, books: &Books, step: Step) -> Option<Books> {
        let mut next = *books;
        self.take(&mut next, step)?;
        self.forget(&mut next);
        (next != *books).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = promises();
        properties.extend(reached());
        properties
    }
}

/// What is promised.
fn promises() -> Vec<Property<MoneyModel>> {
    vec![
        Property::always("what gateways buy stays within the budget", |model: &MoneyModel, books: &Books| {
            let view = model.view(books);
            books.real() + RESERVE <= view.allocated
        }),
        Property::always("the books stay within the budget", |model: &MoneyModel, books: &Books| {
            let view = model.view(books);
            view.charged <= view.allocated + view.recorded
        }),
        Property::always(
            "what an epoch cost is in the books once it closed",
            |model: &MoneyModel, books: &Books| {
                let view = model.view(books);
                (0..EPOCHS).all(|number| {
                    let (account, meter) = (view.accounts[number], books.meters[number]);
                    !books.closed[number]
                        || (account.closed.is_some() && account.spent >= meter.real + meter.open)
                })
            },
        ),
        Property::always("insolvent only when a tick does not fit", |_, books: &Books| !books.early),
        Property::always(
            "when all is closed, what was spent is what it cost",
            |model: &MoneyModel, books: &Books| {
                let view = model.view(books);
                let all =
                    (0..=usize::from(view.epoch)).all(|number| view.accounts[number].closed == Some(true));
                !all || view.spent == books.real() + view.recorded
            },
        ),
    ]
}

/// What must be possible, or the model shows nothing.
fn reached() -> Vec<Property<MoneyModel>> {
    vec![
        Property::sometimes(
            "an epoch spends while the one before it is unaccounted",
            |model: &MoneyModel, books: &Books| {
                books.meters[1].spent > 0 && model.view(books).accounts[0].closed.is_none()
            },
        ),
        Property::sometimes(
            "an epoch spends what the one before it gave back",
            |model: &MoneyModel, books: &Books| {
                let view = model.view(books);
                let (old, new) = (view.accounts[0], books.meters[1]);
                let others = view.allocated - RESERVE - view.accounts[0].limit.min(view.allocated - RESERVE);
                old.closed == Some(true) && new.spent > others && old.limit > old.spent
            },
        ),
        Property::sometimes("insolvent", |model: &MoneyModel, books: &Books| {
            model.view(books).status == Status::Insolvent
        }),
        Property::sometimes("active again after a raise", |model: &MoneyModel, books: &Books| {
            let view = model.view(books);
            view.status == Status::Active
                && view.allocated > model.bounds.budget
                && books.real() > model.bounds.budget - RESERVE
        }),
        Property::sometimes(
            "it waits for an epoch that may give money back",
            |model: &MoneyModel, books: &Books| model.view(books).waiting,
        ),
        Property::sometimes("holds of a crash are charged at their most", |_, books: &Books| {
            books.meters[0].run == Run::Ending && books.meters[0].spent >= 2 * CALL
        }),
        Property::sometimes("a late report counts after the end", |model: &MoneyModel, books: &Books| {
            let view = model.view(books);
            view.status == Status::Terminated && view.accounts[0].closed == Some(true)
        }),
        Property::sometimes("two copies spend at once", |model: &MoneyModel, books: &Books| {
            let open = books.meters.iter().filter(|meter| meter.run == Run::Open && meter.real > 0).count();
            open == 2 && model.view(books).status == Status::Active
        }),
    ]
}
