//! The control plane of a model: the product's own `decide` and `State::apply`, asked again and again.
//!
//! A model's state holds the number of a core state instead of the core state itself, and what a question leads
//! to is worked out once: `decide` depends on nothing but its arguments. Time stands still in here. What time
//! would do is a question of its own, and every stored time is put back to *not yet* or *long ago*, so that
//! states which differ only in when they came about are one state.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{PoisonError, RwLock};

use handoff_core::{Command, Policy, Refusal, Reply, Rule, Rules, State, decide};
use handoff_protocol::{Digest, ErrorCode, Timestamp};

/// The moment at which everything is decided.
pub(crate) const NOW: Timestamp = Timestamp::from_unix_ms(10_000_000);
/// A moment that was long ago, whatever is waited for.
pub(crate) const LONG_AGO: Timestamp = Timestamp::from_unix_ms(1_000_000);

/// What a model asks of its control plane.
pub(crate) trait Questions: Sized {
    /// A question: small, and compared as a whole.
    type Ask: Copy + Ord + Debug + Send + Sync;
    /// What a model looks at in a core state.
    type View: Copy + Send + Sync;

    /// What the question does to a state: usually a command.
    fn perform(&self, plane: &Plane<Self>, state: &State, ask: Self::Ask) -> Result<(State, Reply), Refusal>;
    /// Puts times and counters back.
    fn normalize(&self, state: &mut State);
    /// What can be seen of it.
    fn view(&self, state: &State) -> Self::View;
}

/// An answer.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    /// The number of the core state after it.
    pub(crate) core: u32,
    /// What was said.
    pub(crate) said: Result<Reply, ErrorCode>,
}

/// The control plane.
pub(crate) struct Plane<Q: Questions> {
    pub(crate) policy: Policy,
    questions: Q,
    known: RwLock<Known<Q>>,
}

struct Known<Q: Questions> {
    states: Vec<(State, Q::View)>,
    numbers: BTreeMap<u64, Vec<u32>>,
    answers: Vec<BTreeMap<Q::Ask, Answer>>,
}

impl<Q: Questions> Plane<Q> {
    /// A control plane that keeps all rules but this one.
    pub(crate) fn new(questions: Q, policy: Policy, without: Option<Rule>) -> Self {
        let rules = without.map_or(Rules::all(), Rules::without);
        let policy = Policy { rules, ..policy };
        let known = Known { states: Vec::new(), numbers: BTreeMap::new(), answers: Vec::new() };
        Self { policy, questions, known: RwLock::new(known) }
    }

    /// What a command does to a state.
    pub(crate) fn command(&self, state: &State, command: &Command) -> Result<(State, Reply), Refusal> {
        let decision = decide(&self.policy, state, command, NOW)?;
        let mut after = state.clone();
        decision.facts.iter().for_each(|fact| after.apply(fact));
        Ok((after, decision.reply))
    }

    /// The number of the core state that a first question leads to.
    pub(crate) fn begin(&self, state: &State, ask: Q::Ask) -> u32 {
        let begun = self.questions.perform(self, state, ask);
        self.number(begun.unwrap_or_else(|refusal| panic!("a model can begin: {refusal}")).0)
    }

    /// The number of a core state.
    pub(crate) fn number(&self, mut state: State) -> u32 {
        self.questions.normalize(&mut state);
        let mut hasher = DefaultHasher::new();
        state.hash(&mut hasher);
        let hash = hasher.finish();
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        let same = known.numbers.get(&hash).into_iter().flatten();
        if let Some(number) = same.copied().find(|number| known.states[*number as usize].0 == state) {
            return number;
        }
        let number = u32::try_from(known.states.len()).expect("a model has fewer core states than that");
        let view = self.questions.view(&state);
        known.states.push((state, view));
        known.answers.push(BTreeMap::new());
        known.numbers.entry(hash).or_default().push(number);
        number
    }

    pub(crate) fn view(&self, core: u32) -> Q::View {
        self.known.read().unwrap_or_else(PoisonError::into_inner).states[core as usize].1
    }

    /// Asks; a refusal leaves the core state as it is.
    pub(crate) fn ask(&self, core: u32, ask: Q::Ask) -> Answer {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(answer) = known.answers[core as usize].get(&ask) {
            return answer.clone();
        }
        let state = known.states[core as usize].0.clone();
        drop(known);
        let answer = match self.questions.perform(self, &state, ask) {
            Ok((after, reply)) => Answer { core: self.number(after), said: Ok(reply) },
            Err(refusal) => Answer { core, said: Err(refusal.code()) },
        };
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        known.answers[core as usize].insert(ask, answer.clone());
        answer
    }
}

/// The name of a snapshot that holds so much work.
pub(crate) fn snapshot(work: u8) -> Digest {
    Digest::from_bytes([work; 32])
}

/// How much work a snapshot holds.
pub(crate) fn work_in(snapshot: Digest) -> u8 {
    snapshot.as_bytes()[0]
}
