//! A small world for the machine's own tests: one session, two nodes, and a clock that is moved by hand.

mod command;

use handoff_protocol::{
    Digest, ErrorCode, IncarnationId, NanoUsd, NodeId, SessionId, Status, Timestamp, TransferId,
};

use crate::fact::Record;
use crate::grid::CommandKind;
use crate::placement::Room;
use crate::{Command, Fact, Policy, Refusal, Reply, Session, State, Transfer, decide};

pub(crate) const SOURCE: &str = "laptop";
pub(crate) const MINUTE: u64 = 60_000;

pub(crate) const SESSION: SessionId = SessionId::from_u128(1);
pub(crate) const ONE: TransferId = TransferId::from_u128(1);
pub(crate) const TWO: TransferId = TransferId::from_u128(2);
pub(crate) const NODE: NodeId = NodeId::from_u128(1);
pub(crate) const OTHER_NODE: NodeId = NodeId::from_u128(2);

pub(crate) fn digest(word: &str) -> Digest {
    Digest::of(word.as_bytes())
}

pub(crate) fn incarnation(number: u128) -> IncarnationId {
    IncarnationId::from_u128(number)
}

pub(crate) fn node(number: u128) -> NodeId {
    NodeId::from_u128(number)
}

pub(crate) fn nano(nano: i64) -> NanoUsd {
    NanoUsd::from_nano(nano)
}

/// What a transfer of this world may spend: some thirty ticks of the small tier.
pub(crate) const BUDGET: NanoUsd = NanoUsd::from_nano(10_000_000);
/// One tick of the small tier.
pub(crate) const TICK: NanoUsd = NanoUsd::from_nano(280_000);
/// A minute of grace of the small tier.
pub(crate) const RESERVE: NanoUsd = NanoUsd::from_nano(168_000);

/// The world.
#[derive(Clone)]
pub(crate) struct World {
    pub(crate) policy: Policy,
    pub(crate) state: State,
    pub(crate) now: Timestamp,
    /// All that became true, in order.
    pub(crate) facts: Vec<Fact>,
    minted: u128,
}

impl World {
    pub(crate) fn new() -> Self {
        let room = |cores: u64| Room {
            cpu_millis: 1000 * cores,
            memory_bytes: cores << 30,
            seen_at: Timestamp::from_unix_ms(0),
        };
        let rooms = [(NODE, room(8)), (OTHER_NODE, room(4))];
        let state = State { rooms: rooms.into(), ..State::default() };
        Self {
            policy: Policy::default(),
            state,
            now: Timestamp::from_unix_ms(1_000_000),
            facts: Vec::new(),
            minted: 0,
        }
        .later(0)
    }

    /// A staged draft.
    pub(crate) fn staged() -> Self {
        let mut world = Self::new();
        world.give(world.stage(ONE, "draft", false));
        world
    }

    /// A provisioned transfer whose snapshot is final.
    pub(crate) fn provisioned() -> Self {
        let mut world = Self::new();
        world.give(world.stage(ONE, "final", true));
        world.give(world.command(CommandKind::Provision, ONE));
        world
    }

    pub(crate) fn pushed() -> Self {
        let mut world = Self::provisioned();
        world.give(world.command(CommandKind::Push, ONE));
        world.give(world.command(CommandKind::Receipt, ONE));
        world
    }

    pub(crate) fn authorized() -> Self {
        let mut world = Self::pushed();
        world.give(world.command(CommandKind::Activate, ONE));
        world
    }

    pub(crate) fn active() -> Self {
        let mut world = Self::authorized();
        world.give(world.claim(ONE, incarnation(1)));
        world
    }

    /// Active without a sandbox.
    pub(crate) fn resting() -> Self {
        let mut world = Self::active();
        world.give(world.report(|usage| usage.closing = true));
        world.give(world.command(CommandKind::Rest, ONE));
        world
    }

    pub(crate) fn insolvent() -> Self {
        let mut world = Self::active();
        world.give(world.exhausted());
        world
    }

    /// Terminated after it was active; its epoch is not closed.
    pub(crate) fn terminated() -> Self {
        let mut world = Self::active();
        world.give(world.command(CommandKind::Terminate, ONE));
        world
    }

    pub(crate) fn expired() -> Self {
        let world = Self::pushed();
        let mut world = world.later(30 * MINUTE);
        world.give(world.command(CommandKind::Expire, ONE));
        world
    }

    /// A world in this status.
    pub(crate) fn in_status(status: Status) -> Self {
        match status {
            Status::Staged => Self::staged(),
            Status::Provisioned => Self::provisioned(),
            Status::Pushed => Self::pushed(),
            Status::Active => Self::active(),
            Status::Insolvent => Self::insolvent(),
            Status::Terminated => Self::terminated(),
            Status::Expired => Self::expired(),
        }
    }

    /// A live transfer and a successor that is still a draft, provisioned on the other node.
    pub(crate) fn hopping() -> Self {
        let mut world = Self::active();
        world.give(world.resume(TWO));
        world.give(world.command(CommandKind::Provision, TWO));
        world
    }

    /// The live holder has stopped for its successor.
    pub(crate) fn hop_final() -> Self {
        let mut world = Self::hopping();
        world.give(world.final_of_holder("hop"));
        world
    }

    /// The successor is pushed.
    pub(crate) fn hop_pushed() -> Self {
        let mut world = Self::hop_final();
        world.give(world.command(CommandKind::Push, TWO));
        world.give(world.command(CommandKind::Receipt, TWO));
        world
    }

    /// The same world so many milliseconds later; its nodes are heard of all the time.
    #[must_use]
    pub(crate) fn later(mut self, ms: u64) -> Self {
        self.now = self.now.plus_ms(ms);
        self.state.rooms.values_mut().for_each(|room| room.seen_at = self.now);
        self
    }

    /// The same world so many milliseconds later, in which the first node was silent.
    #[must_use]
    pub(crate) fn silent(self, ms: u64) -> Self {
        let seen_at = self.now;
        let mut world = self.later(ms);
        world.state.rooms.entry(NODE).and_modify(|room| room.seen_at = seen_at);
        world
    }

    /// Gives a command that must be accepted.
    pub(crate) fn give(&mut self, command: Command) -> Reply {
        self.make(command).1
    }

    /// Gives a command that must be accepted, and what it made true with its reply.
    pub(crate) fn make(&mut self, command: Command) -> (Vec<Fact>, Reply) {
        let decision = decide(&self.policy, &self.state, &command, self.now)
            .unwrap_or_else(|refusal| panic!("{command:?} was refused: {refusal}"));
        for fact in &decision.facts {
            self.state.apply(fact);
        }
        self.minted += 1;
        self.facts.extend(decision.facts.iter().cloned());
        (decision.facts, decision.reply)
    }

    /// Gives a command that must be refused.
    pub(crate) fn refuse(&self, command: &Command) -> Refusal {
        match decide(&self.policy, &self.state, command, self.now) {
            Ok(decision) => panic!("{command:?} was accepted: {decision:?}"),
            Err(refusal) => refusal,
        }
    }

    pub(crate) fn code(&self, command: &Command) -> ErrorCode {
        self.refuse(command).code()
    }

    pub(crate) fn session(&self) -> &Session {
        self.state.session.as_ref().expect("this world has a session")
    }

    pub(crate) fn of(&self, transfer: TransferId) -> &Transfer {
        &self.state.transfers[&transfer]
    }

    pub(crate) fn status(&self, transfer: TransferId) -> Status {
        self.of(transfer).status
    }

    /// The types of the usage events written so far for a transfer.
    pub(crate) fn events(&self, transfer: TransferId) -> Vec<&'static str> {
        let of_transfer = self.facts.iter().filter(|fact| fact.transfer() == Some(transfer));
        let events = of_transfer.filter_map(|fact| match fact.record() {
            Record::Event(event) => Some(event.as_str()),
            Record::Audit(_) | Record::Bookkeeping => None,
        });
        events.collect()
    }
}
