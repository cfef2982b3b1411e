//! Moves: who runs, who may take the session, and what is never lost.
//!
//! The source, the copies that nodes start, an init-kept lease for each of them, two orchestrators and the
//! reaper (their commands have no memory, so any number of them is covered by giving each command at any time),
//! and a network that loses, repeats and reorders. Lease time is abstract and keeps one order: what a holder
//! counts from its first sending ends before what the control plane counts from acceptance.

pub(crate) mod asks;
mod inert;
mod recovery;
mod steps;
mod taken;
mod world;

use std::sync::Arc;

use handoff_core::{Policy, Rule, State};
use handoff_protocol::{NodeId, Status};
use stateright::{Model, Property};

use crate::plane::{NOW, Plane};
use asks::{Ask, Moves, View, Who};
use world::{Broken, COPIES, Call, Calling, Copied, NET, Run, Source, Told, World};

/// Any number of them.
pub(crate) const ANY: u8 = u8::MAX;

/// How much may happen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) transfers: u8,
    pub(crate) epochs: u8,
    pub(crate) work: u8,
    pub(crate) crashes: u8,
    pub(crate) losses: u8,
    pub(crate) duplicates: u8,
    /// How many messages may be under way at once.
    pub(crate) net: usize,
    /// Pending transfers are assigned anew as well.
    pub(crate) reassigns_pending: bool,
    /// Copies go to rest, and are woken.
    pub(crate) rests: bool,
    /// How many messages may be overtaken by others.
    pub(crate) delays: u8,
}

/// What the parties around the control plane do wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Nothing.
    None,
    /// A holder counts its lease from when the grant arrives.
    LeaseFromGrant,
    /// A source goes on after an activation that came to nothing, without returning.
    GoesOnUnasked,
    /// A node honours a `run` that was asked for before its last final.
    HonorsLateRun,
    /// A node does not say which snapshot its checkpoint follows.
    ForgetsWhatItFollows,
    /// No orchestrator gives up a source that is lost.
    NobodyAbandons,
}

/// The model.
pub(crate) struct MoveModel {
    pub(crate) plane: Arc<Plane<Moves>>,
    pub(crate) bounds: Bounds,
    pub(crate) fault: Fault,
    /// Every rule is in force and nobody does anything wrong.
    sound: bool,
}

impl MoveModel {
    pub(crate) fn new(bounds: Bounds, without: Option<Rule>, fault: Fault) -> Self {
        let sound = without.is_none() && fault == Fault::None;
        Self { plane: Arc::new(Plane::new(Moves, Policy::default(), without)), bounds, fault, sound }
    }

    /// The same, but nothing is forgotten because it is inert.
    pub(crate) fn remembering(bounds: Bounds) -> Self {
        Self { sound: false, ..Self::new(bounds, None, Fault::None) }
    }

    fn view(&self, world: &World) -> View {
        self.plane.view(world.core)
    }

    /// A new session whose source goes on working; its first transfer is a draft with a destination.
    fn beginning(&self) -> World {
        let room = handoff_core::placement::Room { cpu_millis: 64_000, memory_bytes: 64 << 30, seen_at: NOW };
        let rooms = [1u128, 2].map(|number| (NodeId::from_u128(number), room));
        let state = State { rooms: rooms.into(), ..State::default() };
        let staged = self.plane.begin(&state, Ask::Stage { transfer: 1, epoch: 1, work: 0, is_final: false });
        let core = self.plane.ask(staged, Ask::Provision { transfer: 1 }).core;
        World {
            core,
            source: Source { run: Run::Runs, work: 0, epoch: 1, calling: None },
            copies: [None; COPIES],
            net: [None; NET],
            transfers: 1,
            crashes: 0,
            losses: 0,
            duplicates: 0,
            delays: 0,
            accepted: 0,
            broken: Broken::default(),
        }
    }
}

/// How a message and its answer travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Way {
    /// Both arrive at once.
    Through,
    /// It is overtaken by others.
    Late,
    /// Its answer is overtaken by others.
    AnswerLate,
    /// It arrives and its answer never does.
    AnswerLost,
    /// Both arrive, and it will arrive again.
    Twice,
}

/// A step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Step {
    SourceWorks,
    SourceCalls(Call, Way),
    SourceCrashes,
    SourceGoesOnUnasked,
    /// An orchestrator, the reaper or the control plane itself.
    Command(Ask),
    /// Staged from the last accepted snapshot, and provisioned.
    Resume,
    /// A node loads a copy, which claims or re-claims.
    Start {
        again: bool,
        way: Way,
    },
    Renew(u8, Way),
    CopyWorks(u8),
    CopyCalls(u8, Call, Way),
    CopyCrashes(u8),
    CopyRests {
        copy: u8,
        answered: bool,
    },
    CopyProvedAbsent(u8),
    /// The lease as the copy counts it.
    CopyLeaseEnds(u8),
    /// The lease as the control plane counts it.
    LeaseEnds,
    /// What is under way arrives.
    Deliver(u8, Way),
    Lose(u8),
    /// Sent again, since no answer came.
    SourceAsksAgain,
    CopyAsksAgain(u8),
}

impl Model for MoveModel {
    type State = World;
    type Action = Step;

    fn init_states(&self) -> Vec<World> {
        vec![self.beginning()]
    }

    fn actions(&self, world: &World, steps: &mut Vec<Step>) {
        self.source_steps(world, steps);
        self.command_steps(world, steps);
        self.copy_steps(world, steps);
        self.network_steps(world, steps);
    }

    fn next_state(&self, world: &World, step: Step) -> Option<World> {
        let mut next = *world;
        self.take(&mut next, step)?;
        let view = self.view(&next);
        next.tidy(&view);
        if self.sound {
            next.forget_the_inert(&view);
        }
        (next != *world).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = promises();
        properties.extend(reached());
        properties
    }
}

/// What is promised.
fn promises() -> Vec<Property<MoveModel>> {
    vec![
        Property::always("at most one copy runs", |_, world: &World| world.running() <= 1),
        Property::always("only the holder's state changes are accepted", |_, world: &World| {
            !world.broken.stray
        }),
        Property::always("accepted work is never lost", |_, world: &World| !world.broken.lost),
        Property::always("a move carries all that its holder did", |_, world: &World| !world.broken.cut),
        Property::always(
            "what is final stays final until it is claimed or ends",
            |model: &MoveModel, world: &World| {
                let view = model.view(world);
                view.pending.is_none_or(|pending| pending.mark.is_none_or(|epoch| epoch == view.epoch))
            },
        ),
        Property::always("somebody can always run again", |model: &MoveModel, world: &World| {
            model.can_run_again(world)
        }),
    ]
}

/// Whether the holder is a copy that runs and is as wanted.
fn runs(model: &MoveModel, world: &World, wanted: fn(&View, &Copied) -> bool) -> bool {
    let view = model.view(world);
    let holder = match view.holder {
        Who::Copy(number) => world.copy(number),
        Who::Source | Who::Nobody => None,
    };
    holder.is_some_and(|copy| copy.run == Run::Runs && wanted(&view, copy))
}

/// What must be possible, or the model shows nothing.
fn reached() -> Vec<Property<MoveModel>> {
    vec![
        Property::sometimes("two hops, and work after them", |model: &MoveModel, world: &World| {
            runs(model, world, |view, copy| {
                let hopped = view.live.is_some_and(|live| live.transfer > 1 && !live.resumed);
                hopped && view.epoch == 3 && copy.work > 1
            })
        }),
        Property::sometimes("three hops", |model: &MoveModel, world: &World| {
            runs(model, world, |view, copy| {
                copy.transfer == 3 && view.epoch == 4 && view.live.is_some_and(|live| !live.resumed)
            })
        }),
        Property::sometimes("a source returned", |_, world: &World| {
            world.source.run == Run::Runs && world.source.epoch > 1
        }),
        Property::sometimes("a re-claim", |model: &MoveModel, world: &World| {
            runs(model, world, |_, copy| copy.again)
        }),
        Property::sometimes(
            "a resume of a session whose transfer ended",
            |model: &MoveModel, world: &World| {
                runs(model, world, |view, _| view.live.is_some_and(|live| live.resumed && live.transfer > 1))
            },
        ),
        Property::sometimes("assigned anew with the old copy alive", |model: &MoveModel, world: &World| {
            let frozen = |(_, copy): (u8, &Copied)| copy.run == Run::Frozen && copy.generation == 1;
            let again =
                |(_, copy): (u8, &Copied)| copy.run == Run::Waits && copy.generation == 2 && copy.again;
            model.view(world).live.is_some() && world.numbered().any(frozen) && world.numbered().any(again)
        }),
        Property::sometimes(
            "a source was abandoned and its session runs",
            |model: &MoveModel, world: &World| {
                runs(model, world, |view, copy| {
                    copy.transfer == 2 && view.epoch == 3 && view.live.is_some_and(|live| live.resumed)
                })
            },
        ),
        Property::sometimes(
            "a holder that stopped for a successor goes on",
            |model: &MoveModel, world: &World| {
                runs(model, world, |view, _| view.pending.is_none() && view.live.is_some() && view.own_final)
            },
        ),
        Property::sometimes(
            "a resting session was moved without being woken",
            |model: &MoveModel, world: &World| {
                let view = model.view(world);
                view.live.is_some_and(|live| live.resting)
                    && view.pending.is_some_and(|found| found.authorized)
            },
        ),
        Property::sometimes("a session that rested runs again", |model: &MoveModel, world: &World| {
            runs(model, world, |view, copy| copy.again && copy.generation == 1 && view.epoch == 3)
        }),
    ]
}

/// Whether a pending transfer can still be given another snapshot.
fn refreshable(status: Status) -> bool {
    matches!(status, Status::Staged | Status::Provisioned)
}

/// A call that has not been answered yet.
fn fresh(call: Call) -> Calling {
    Calling { call, accepted: false }
}

/// A renewal's answer, as its command says.
fn told(reply: &handoff_core::Reply) -> Option<Told> {
    match reply {
        handoff_core::Reply::Renewed { for_transfer: Some(transfer), .. } => {
            Some(Told::Quiesce(u8::try_from(transfer.as_u128()).expect("transfers are few")))
        }
        handoff_core::Reply::Renewed { for_transfer: None, .. } => Some(Told::Run),
        _ => None,
    }
}

/// The epoch that a claim or a return was answered with.
fn epoch_of(reply: &handoff_core::Reply) -> Option<u8> {
    match reply {
        handoff_core::Reply::Claimed { epoch, .. } | handoff_core::Reply::Returned { epoch } => {
            Some(u8::try_from(epoch.0).expect("epochs are few"))
        }
        _ => None,
    }
}
