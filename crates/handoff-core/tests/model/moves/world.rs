//! The state of a move outside the control plane: the source, the copies on the nodes, and the network.

use super::asks::{View, Who};

/// How many copies may exist at once.
pub(crate) const COPIES: usize = 4;
/// How many messages may be under way at once.
pub(crate) const NET: usize = 2;

/// What a copy of the session does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Run {
    /// Loaded, without `go`.
    Waits,
    /// It may change things.
    Runs,
    /// Stopped at a step boundary for a final snapshot.
    Quiet,
    /// Stopped by its lease.
    Frozen,
    /// Dead.
    Off,
}

/// A call that is sent again until it is answered; the next one waits for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Call {
    /// The source stages, or refreshes its transfer.
    Stage {
        epoch: u8,
        work: u8,
        is_final: bool,
    },
    Refresh {
        transfer: u8,
        epoch: u8,
        work: u8,
        is_final: bool,
    },
    /// The source returns.
    Return {
        epoch: u8,
    },
    /// A copy gives its successor the final.
    Final {
        transfer: u8,
        work: u8,
    },
    /// A copy stores a checkpoint.
    Checkpoint {
        work: u8,
        follows: u8,
    },
}

/// A call with what its caller cannot know: whether it was accepted already.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Calling {
    pub(crate) call: Call,
    pub(crate) accepted: bool,
}

/// The loop that the session was staged from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Source {
    pub(crate) run: Run,
    pub(crate) work: u8,
    /// The epoch as it knows it.
    pub(crate) epoch: u8,
    /// Not answered yet.
    pub(crate) calling: Option<Calling>,
}

/// One start of the agent on a node: an incarnation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Copied {
    pub(crate) transfer: u8,
    pub(crate) node: u8,
    pub(crate) generation: u8,
    /// 0 until its claim was answered.
    pub(crate) epoch: u8,
    pub(crate) run: Run,
    pub(crate) work: u8,
    /// The last accepted snapshot as it knows it: at first the one it loaded.
    pub(crate) known: u8,
    /// The time counted from the first sending of its last confirmed request is not over.
    pub(crate) leased: bool,
    /// It takes the session again, without an authorisation.
    pub(crate) again: bool,
    /// The authorisation it claims by is still open.
    pub(crate) open: bool,
    /// The successor that it is to stop for, and the one that it gave its final to.
    pub(crate) quiesce_for: u8,
    pub(crate) gave_to: u8,
    /// Not answered yet.
    pub(crate) calling: Option<Calling>,
}

/// What a renewal is answered with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Told {
    Run,
    Quiesce(u8),
}

/// A renewal on its way, or its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Renewal {
    pub(crate) copy: u8,
    /// No final was given since it was first sent.
    pub(crate) latest: bool,
    /// It arrived once already.
    pub(crate) spent: bool,
    /// The lease counted from its first sending is over.
    pub(crate) late: bool,
}

/// A message. `copy` is the number of a copy, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Message {
    Claim { copy: u8 },
    Claimed { copy: u8, epoch: u8 },
    ClaimRefused { copy: u8 },
    Renew(Renewal),
    Renewed(Renewal, Told),
    RenewalRefused { copy: u8 },
    OfSource(Calling),
    SourceAnswered(Calling),
    OfCopy { copy: u8, calling: Calling },
    CopyAnswered { copy: u8, calling: Calling },
}

impl Message {
    pub(crate) fn copy(self) -> Option<u8> {
        match self {
            Self::Claim { copy }
            | Self::Claimed { copy, .. }
            | Self::ClaimRefused { copy }
            | Self::Renew(Renewal { copy, .. })
            | Self::Renewed(Renewal { copy, .. }, _)
            | Self::RenewalRefused { copy }
            | Self::OfCopy { copy, .. }
            | Self::CopyAnswered { copy, .. } => Some(copy),
            Self::OfSource(_) | Self::SourceAnswered(_) => None,
        }
    }
}

/// Everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct World {
    /// The number of the control plane's state.
    pub(crate) core: u32,
    pub(crate) source: Source,
    pub(crate) copies: [Option<Copied>; COPIES],
    /// In order of their values: a network does not keep the order of sending.
    pub(crate) net: [Option<Message>; NET],
    pub(crate) transfers: u8,
    pub(crate) crashes: u8,
    pub(crate) losses: u8,
    pub(crate) duplicates: u8,
    pub(crate) delays: u8,
    /// The most work that the control plane accepted.
    pub(crate) accepted: u8,
    pub(crate) broken: Broken,
}

/// Promises that were broken on the way here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Broken {
    /// A state change of somebody who does not hold the session was accepted.
    pub(crate) stray: bool,
    /// Somebody goes on from less than was accepted.
    pub(crate) lost: bool,
    /// A holder stopped for a move, and the move left out what it had done.
    pub(crate) cut: bool,
}

impl World {
    pub(crate) fn copy(&self, number: u8) -> Option<&Copied> {
        self.copies.get(usize::from(number).checked_sub(1)?)?.as_ref()
    }

    pub(crate) fn copy_mut(&mut self, number: u8) -> Option<&mut Copied> {
        self.copies.get_mut(usize::from(number).checked_sub(1)?)?.as_mut()
    }

    /// The copies with their numbers.
    pub(crate) fn numbered(&self) -> impl Iterator<Item = (u8, &Copied)> {
        (1u8..).zip(&self.copies).filter_map(|(number, copy)| Some((number, copy.as_ref()?)))
    }

    /// How many run.
    pub(crate) fn running(&self) -> usize {
        let copies = self.numbered().filter(|(_, copy)| copy.run == Run::Runs).count();
        copies + usize::from(self.source.run == Run::Runs)
    }

    /// Whether fewer messages than this are under way.
    pub(crate) fn has_room(&self, most: usize) -> bool {
        self.net.iter().flatten().count() < most.min(NET)
    }

    pub(crate) fn under_way(&self, wanted: impl Fn(Message) -> bool) -> bool {
        self.net.iter().flatten().any(|message| wanted(*message))
    }

    /// Keeps a message for later; none where as much as may be is under way.
    pub(crate) fn keep(&mut self, message: Message) -> Option<()> {
        let free = self.net.iter_mut().find(|place| place.is_none())?;
        *free = Some(message);
        self.sort();
        Some(())
    }

    pub(crate) fn pick(&mut self, place: u8) -> Option<Message> {
        let message = self.net.get_mut(usize::from(place))?.take();
        self.sort();
        message
    }

    /// What is under way, as changed.
    pub(crate) fn change_net(&mut self, change: impl Fn(Message) -> Message) {
        self.net.iter_mut().for_each(|place| *place = place.map(&change));
        self.sort();
    }

    pub(crate) fn sort(&mut self) {
        self.net.sort_unstable_by_key(|place| (place.is_none(), *place));
    }

    /// Forgets what nothing depends on any more: copies that are dead, hold nothing and have nothing under way,
    /// and what a copy remembers of a successor that is over.
    pub(crate) fn tidy(&mut self, view: &View) {
        let pending = view.pending.map_or(0, |pending| pending.transfer);
        for copy in self.copies.iter_mut().flatten() {
            for successor in [&mut copy.quiesce_for, &mut copy.gave_to] {
                *successor = if *successor == pending { pending } else { 0 };
            }
            if copy.epoch > 0 {
                copy.open = false;
            }
            if copy.run == Run::Off {
                copy.work = copy.known;
            }
        }
        if view.holder != Who::Source && self.source.run != Run::Runs {
            // Alive or not, it is one that does not hold the session any more, with an old snapshot in its hands.
            (self.source.run, self.source.work) = (Run::Quiet, 0);
        }
        for number in 1..=COPIES {
            let number = u8::try_from(number).expect("copies are few");
            let dead = self.copy(number).is_some_and(|copy| copy.run == Run::Off);
            let named = self.under_way(|message| message.copy() == Some(number));
            if dead && !named && view.holder != Who::Copy(number) {
                self.copies[usize::from(number) - 1] = None;
            }
        }
    }
}
